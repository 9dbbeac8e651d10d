"""The progress of each query in a journal: an entry of the journal's state, changed in one append with the records.

A streaming query has the id that Spark keeps in its checkpoint; a batch write has its `transaction` or its `txnAppId`. A batch
write without a name cannot come back, and has no entry.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone

import jlog
from jlog.errors import JournalError
from jlog.spark.checkpoint import Content

STATE_PREFIX = b"jlog.spark:"
STATE_BYTES_MAX = 64 << 10  # of all that a journal's state holds, as with Writer.extend
COUNT_DIGITS_MAX = 19  # a commit that has begun should not end for the digits of its growing count
NAMELESS = "_"  # begins the id of a write that cannot come back; no transaction and no query begins so
STREAM, BATCH = "stream", "batch"
_WORDS = {STREAM: "batch", BATCH: "version"}


@dataclass(frozen=True)
class Entry:
    """The last batch of a query that has begun. manifest: the file that lists the staged rows, while only the first `records`
    of them are in the journal; None once all are. offsets, offsets_file: digests of what the batch is made of, see Content."""

    kind: str
    batch: int
    records: int
    time: str
    manifest: str | None = None
    offsets: str | None = None
    offsets_file: str | None = None


def queries(path: str | os.PathLike[str]) -> dict[str, Entry]:
    """Returns the queries and named batch writes of Spark that the journal knows, by their ids."""
    return _entries(jlog.Journal(path).state())


def forget(path: str | os.PathLike[str], query: str) -> None:
    """Removes from the journal's state a query that will never run again. If it did, its last batch might be appended a second
    time. Raises LookupError where the journal does not know it."""
    if query not in queries(path):
        raise LookupError(f"{os.fspath(path)} does not know the query {query!r}; jlog.spark.queries(path) lists them")
    with jlog.Writer(path, create=False) as writer:
        writer.extend([], state={_key(query): None})


class Ledger:
    """The entry of a query in the journal at `path`. No entry is ever dropped for another one. The caller holds the query's
    lock."""

    def __init__(self, path: str, query: str, kind: str) -> None:
        self._path = path
        self._query = query
        self._kind = kind
        state = jlog.Journal(path).state()
        self.entry = _entries(state).get(query)
        self._others_bytes = sum(len(key) + len(value) for key, value in state.items() if key != _key(query))
        if self.entry is not None and self.entry.kind != kind:
            raise JournalError(f"{path}: {query!r} is the id of a {self.entry.kind} write here; choose another transaction")

    @property
    def is_stream(self) -> bool:
        return self._kind == STREAM

    def check_continues(self, batch: int, noted: int | None) -> None:
        """Raises JournalError for a batch of a streaming query that has had earlier ones, which the journal lacks. noted: the
        last one that the journal had, as the query's checkpoint remembers; -1: none; None: it remembers nothing."""
        there = -1 if self.entry is None else self.entry.batch
        if noted is None:
            noted = batch - 1 if self.entry is None else there
        if there < noted:
            has = "none of them" if self.entry is None else f"only those up to {there}"
            raise JournalError(
                f"{self._path}: batch {batch} of {self._query!r} is refused, and nothing of it was appended: the query has "
                f"appended its batches up to {noted}, and the journal has {has}. It is another journal, or an older copy. "
                "Bring the right one back. Or begin the query anew, with a new checkpoint directory. Or leave out what is "
                "missing: the option adopt=true appends from this batch on"
            )

    def has(self, batch: int, content: Content) -> bool:
        """Says whether this batch is in the journal. Raises JournalError for a batch with the same number that is made of
        something else, and for a batch that comes after a later one."""
        entry = self.entry
        if entry is None or batch > entry.batch:
            return False
        if batch < entry.batch:
            raise self._refusal(batch, f"{_WORDS[entry.kind]} {entry.batch} of it is already in the journal")
        if entry.offsets_file is not None and entry.offsets_file == content.offsets_file:
            return True
        if entry.offsets is not None and content.offsets is not None and entry.offsets != content.offsets:
            raise self._refusal(batch, "it is already in the journal, where its sources begin or end at other positions")
        if entry.records != content.records:
            raise self._refusal(
                batch, f"it is already in the journal with {entry.records} records, but it has {content.records} now"
            )
        return True

    def _refusal(self, batch: int, reason: str) -> JournalError:
        assert self.entry is not None
        forget = f"jlog.spark.forget({self._path!r}, {self._query!r})"
        if self._kind == STREAM:
            advice = (
                "Its checkpoint has lost its last batches, or an older driver of this query is still at work. Bring the newest "
                "checkpoint back. Or begin with a new checkpoint directory: such a query begins where the options of its "
                f"source say, so let that be after the records that were in the journal at {self.entry.time}. Or let this "
                f"checkpoint go on: after {forget} and with the option adopt=true it appends the batch, and with it once more "
                "the records that are there"
            )
        elif self.entry.batch or batch:
            advice = (
                f"Give the load a txnVersion above {self.entry.batch}. Or append it under this version, and with it once more "
                f"the records that are there, after {forget}"
            )
        else:
            advice = (
                "A transaction's name stands for one load: give this one another name. Or append it under this name, and with "
                f"it once more the records that are there, after {forget}"
            )
        number = f"{_WORDS[self._kind]} {batch} of {self._query!r}" if self._kind == STREAM or batch else repr(self._query)
        return JournalError(f"{self._path}: {number} is refused, and nothing of it was appended, for {reason}. {advice}")

    def begin(self, batch: int, content: Content) -> None:
        """Creates the entry that note() stores."""
        self.entry = Entry(self._kind, batch, 0, "", None, content.offsets, content.offsets_file)

    def note(self, records: int, manifest: str | None) -> dict[bytes, bytes | None]:
        """Returns the change of the journal's state, for the append that brings the last of these records. Raises JournalError
        if the journal's state has no room for it."""
        assert self.entry is not None, "begin() creates the entry"
        if self._query.startswith(NAMELESS):
            return {}
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.entry = replace(self.entry, records=records, time=now, manifest=manifest)
        content = {name: value for name, value in asdict(self.entry).items() if value is not None}
        key, value = _key(self._query), json.dumps(content, separators=(",", ":")).encode()
        size = len(key) + len(value) - len(str(records)) + COUNT_DIGITS_MAX
        if self._others_bytes + size > STATE_BYTES_MAX:
            raise JournalError(
                f"{self._path} has no room for the progress of {self._query!r}: the state of a journal has at most "
                f"{STATE_BYTES_MAX} bytes. jlog.spark.queries({self._path!r}) lists the queries and named writes that it "
                f"remembers. Remove those that will never run again: jlog.spark.forget({self._path!r}, name). Loads that "
                "return need one entry in all if they have one txnAppId and a growing txnVersion"
            )
        return {key: value}


def _entries(state: dict[bytes, bytes]) -> dict[str, Entry]:
    return {
        key[len(STATE_PREFIX) :].decode(): Entry(**json.loads(value))
        for key, value in state.items()
        if key.startswith(STATE_PREFIX)
    }


def _key(query: str) -> bytes:
    return STATE_PREFIX + query.encode()
