"""The progress of each query in a journal: an entry of the journal's state, changed in one append with the records.

A streaming query has the id that Spark keeps in its checkpoint; a batch write has its `transaction`, or a random id.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

import jlog
from jlog.errors import JournalError

STATE_PREFIX = b"jlog.spark:"
STREAM, BATCH = "stream", "batch"
KEPT = {
    STREAM: 100,
    BATCH: 100,
}  # an entry has about 200 bytes, and the state of a journal at most 64 KiB


@dataclass(frozen=True)
class Entry:
    """The last batch of a query that has begun. manifest: the file that lists the staged rows, while only the first `records`
    of them are in the journal; None once all are."""

    kind: str
    batch: int
    records: int
    time: str
    manifest: str | None = None


def queries(path: str | os.PathLike[str]) -> dict[str, Entry]:
    """Returns the queries and batch writes of Spark that the journal knows, by their ids."""
    return {
        key[len(STATE_PREFIX) :].decode(): Entry(**json.loads(value))
        for key, value in jlog.Journal(path).state().items()
        if key.startswith(STATE_PREFIX)
    }


def forget(path: str | os.PathLike[str], query: str) -> None:
    """Drops a query that will not come back from the journal's state. If it did come back, its last batch might be appended a
    second time. Raises LookupError where the journal does not know it."""
    if query not in queries(path):
        raise LookupError(f"{os.fspath(path)} knows of no query {query!r}; jlog.spark.queries(path) lists them")
    with jlog.Writer(path, create=False) as writer:
        writer.extend([], state={_key(query): None})


class Ledger:
    """The entries of the journal at `path`, for one query. The caller holds the query's lock."""

    def __init__(self, path: str, query: str, kind: str) -> None:
        self._path = path
        self._query = query
        self._kind = kind
        self._others = queries(path)
        self._dropped: list[str] = []
        self.entry = self._others.pop(query, None)
        if self.entry is not None and self.entry.kind != kind:
            raise JournalError(f"{path}: {query!r} is the id of a {self.entry.kind} write here; choose another transaction")

    def has(self, batch: int) -> bool:
        """Says whether all of this batch is in the journal."""
        return self.entry is not None and self.entry.manifest is None and batch <= self.entry.batch

    def note(self, batch: int, records: int, manifest: str | None) -> dict[bytes, bytes | None]:
        """Returns the change of the journal's state, for the append that brings the last of these records. The oldest entries
        are dropped; stored() says that this was done."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self.entry = Entry(self._kind, batch, records, now, manifest)
        told = {name: value for name, value in asdict(self.entry).items() if value is not None}
        alike = sorted((entry.time, query) for query, entry in self._others.items() if entry.kind == self._kind)
        self._dropped = [query for _, query in alike[: max(0, len(alike) + 1 - KEPT[self._kind])]]
        state: dict[bytes, bytes | None] = {_key(query): None for query in self._dropped}
        return {**state, _key(self._query): json.dumps(told).encode()}

    def stored(self) -> None:
        """Notes that the dropped entries are gone: a query that comes back meanwhile is not dropped again."""
        for query in self._dropped:
            self._others.pop(query, None)


def _key(query: str) -> bytes:
    return STATE_PREFIX + query.encode()
