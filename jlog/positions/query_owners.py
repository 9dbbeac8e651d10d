"""The streaming query that a subscriber belongs to: two queries that move one subscriber would hold back too little for one of
them. docs/format.md, "Subscribers of queries", specifies the file."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone

from jlog._core.system.durable import sync_directory
from jlog._core.work.window import FOLDER
from jlog.errors import CorruptJournal
from jlog.positions.position_files import SUBSCRIBER, exists, table_locked
from jlog.storage.meta import parse_json, read_meta
from jlog.system.files import Directory, read_small, write_whole

BYTES_MAX = 64 << 10
BEGINNING_BYTE = 8  # of the subscriber's file: held for a query that has begun, and is not its owner yet


@dataclass(frozen=True)
class Owner:
    """query: the id that the query keeps in its checkpoint. checkpoint: its directory; None where that is not known. The host
    and the time are those of the claim. epoch: that of the journal then; None for a claim of an earlier version, which holds in
    every epoch. In a copy the subscriber is free: the query reads the original."""

    query: str
    checkpoint: str | None
    host: str
    since: str
    epoch: int | None = None

    def __str__(self) -> str:
        checkpoint = "" if self.checkpoint is None else f", whose checkpoint is {self.checkpoint}"
        return f"the query {self.query[:8]}{checkpoint} (on {self.host}, since {self.since})"


def _name(name: str) -> str:
    return name + ".query"


def owner_of(path: str, name: str) -> Owner | None:
    """Returns the query that the subscriber belongs to; None where it belongs to none."""
    file = os.path.join(path, FOLDER, _name(name))
    try:
        owner = Owner(**parse_json(read_small(file, BYTES_MAX)))
        return owner if owner.epoch in (None, read_meta(path).epoch) else None
    except FileNotFoundError:
        return None
    except (TypeError, ValueError) as error:
        raise CorruptJournal(file, 0, f"it does not name a query: {error}; without the file the subscriber is free") from None


def claim(path: str, name: str, query: str, checkpoint: str | None) -> Owner | None:
    """Gives a subscriber that belongs to no query to this one, durably and at once. Returns its owner, which is another query
    where that one was faster; None where the subscriber is missing."""
    with table_locked(path):
        if not exists(path, SUBSCRIBER, name):
            return None
        owner = owner_of(path, name)
        if owner is None:
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            owner = Owner(query, checkpoint, os.uname().nodename, now, read_meta(path).epoch)
            with Directory(path, FOLDER, make=True) as directory:
                with directory.made(_name(name), f".{os.getpid()}.new") as fd:
                    write_whole(fd, json.dumps(asdict(owner)).encode(), 0)
                sync_directory(directory.path)
            sync_directory(path)
        return owner


def release(path: str, name: str) -> None:
    """Takes the subscriber from its query: somebody has removed it, or set its position. Called under the table's lock."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, FOLDER, _name(name)))
