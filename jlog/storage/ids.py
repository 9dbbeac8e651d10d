"""The file `ids`: the ids of records that were appended once, so that they outlive the records and need no long search.
docs/format.md, "Ids", specifies it."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta

from jlog._core.format.checksum import crc32c
from jlog._core.read.cursor import Cursor
from jlog._core.system.durable import sync_directory
from jlog.errors import CorruptJournal, PositionLost, UnsupportedFormat
from jlog.options import dedup_of
from jlog.storage.damage import batches_to, past_damage, skip_damage
from jlog.storage.epochs import ForeignPosition
from jlog.storage.meta import Meta
from jlog.system.clock import now_us
from jlog.system.files import Directory, file_in, open_stream, read_small, write_whole

NAME = "ids"
HEADER = "jlog.id"  # the header of a record that holds its id
_MAGIC = b"JLOGIDS\n"
_VERSION = 2
_START = struct.Struct("<8sII16sQQ")  # magic, version, crc, uuid, end, count
_EPOCH = struct.Struct("<Q")  # comes next, since version 2
_ENTRY = struct.Struct("<QqB")  # sequence, time, bytes of the id, which follows
_BYTES_MAX = 1 << 32
_READ_RECORDS = 10_000
_READ_BYTES = 4 << 20

Entry = tuple[bytes, int, int]  # id, sequence, microseconds since 1970 when it was appended, or somewhat later


@dataclass(frozen=True)
class StoredIds:
    """The ids of the last records before `end`. The records from there on are to be read."""

    end: int
    entries: list[Entry]


class LastIds:
    """The last ids, so many as `dedup` says: a number, or a timedelta."""

    def __init__(self, dedup: int | timedelta, entries: Iterable[Entry] = ()) -> None:
        self.dedup = dedup
        self._found: OrderedDict[bytes, Entry] = OrderedDict()
        for entry in entries:
            self.add(*entry)

    def add(self, identity: bytes, sequence: int, time_us: int) -> None:
        self._found.pop(identity, None)
        self._found[identity] = identity, sequence, time_us
        if isinstance(self.dedup, timedelta):
            while self._found and self._is_over(next(iter(self._found.values()))[2]):
                self._found.popitem(last=False)
        else:
            while len(self._found) > self.dedup:
                self._found.popitem(last=False)

    def find(self, identity: bytes) -> int | None:
        """Returns the sequence of the record that has this id; None where none of the last ones has it."""
        found = self._found.get(identity)
        return None if found is None or self._is_over(found[2]) else found[1]

    def _is_over(self, time_us: int) -> bool:
        return isinstance(self.dedup, timedelta) and time_us < now_us() - self.dedup // timedelta(microseconds=1)

    def entries(self, end: int) -> list[Entry]:
        """Lists the ids of the records before `end`."""
        return [entry for entry in list(self._found.values()) if entry[1] < end]  # threads may add to it meanwhile

    def read(self, cursor: Cursor, end: int) -> None:
        """Reads on to `end`, and adds the ids that it meets. It passes over damage, whose ids are lost."""
        for batch in past_damage(batches_to(end, cursor, _READ_RECORDS, _READ_BYTES), lambda: skip_damage(cursor)):
            read_us = now_us()  # an id must not be forgotten too early: it may have been appended at this moment
            for identity, sequence, time_us in batch._ids():
                self.add(identity, sequence, read_us if time_us is None else time_us)


def read_ids(path: str, meta: Meta) -> StoredIds | None:
    """Reads the file; None where there is none, since no record was appended with an id. Of the ids of records that are in
    another epoch now, none counts. Raises CorruptJournal for a damaged one."""
    file = file_in(path, NAME)
    try:
        content = read_small(file, _BYTES_MAX)
    except FileNotFoundError:
        return None
    if len(content) < _START.size or content[: len(_MAGIC)] != _MAGIC:
        raise CorruptJournal(file, 0, "its first bytes are not those of a file of ids")
    _, version, crc, owner, end, count = _START.unpack_from(content)
    if crc != _crc_of(content):
        raise CorruptJournal(file, 0, "its checksum does not match")
    if version > _VERSION:
        raise UnsupportedFormat(f"{file} has version {version}, this jlog reads up to {_VERSION}: upgrade pyjlog")
    if owner != meta.uuid:
        raise CorruptJournal(file, 0, "it belongs to another journal")
    entries: list[Entry] = []
    at = _START.size + (_EPOCH.size if version > 1 else 0)
    try:
        shared = _shared_end(content, meta)
        for _ in range(count):
            sequence, time_us, size = _ENTRY.unpack_from(content, at)
            at += _ENTRY.size
            entries.append((content[at : at + size], sequence, time_us))
            at += size
    except (struct.error, ValueError):
        at = -1
    if at != len(content):
        raise CorruptJournal(file, 0, "its content is not valid")
    return StoredIds(shared, entries if shared == end else [entry for entry in entries if entry[1] < shared])


def _shared_end(content: bytes, meta: Meta) -> int:
    """Returns the end of the records that the file knows the ids of, as far as the journal still has these records."""
    _, version, _, owner, end, _ = _START.unpack_from(content)
    if version == 1:
        return ForeignPosition.of(meta, end).sequence
    return ForeignPosition(owner.hex(), _EPOCH.unpack_from(content, _START.size)[0], end).shared_with(meta).end


def stored_end(path: str, meta: Meta) -> int | None:
    """Returns the file's end without reading its ids; None where it has none that counts for sure."""
    with suppress(FileNotFoundError, struct.error, ValueError), open_stream(file_in(path, NAME)) as file:
        return _shared_end(file.read(_START.size + _EPOCH.size), meta)
    return None


def write_ids(path: str, meta: Meta, stored: StoredIds) -> None:
    """Replaces the file, durably and as a whole. Called under the lock of the table."""
    body = b"".join(_ENTRY.pack(sequence, time_us, len(identity)) + identity for identity, sequence, time_us in stored.entries)
    epoch = _EPOCH.pack(ForeignPosition.of(meta, stored.end).epoch)
    content = bytearray(_START.pack(_MAGIC, _VERSION, 0, meta.uuid, stored.end, len(stored.entries)) + epoch + body)
    content[12:16] = _crc_of(content).to_bytes(4, "little")
    with Directory(path) as directory, directory.made(NAME, f".{NAME}") as fd:
        write_whole(fd, bytes(content), 0)
    sync_directory(path)


def _crc_of(content: bytes | bytearray) -> int:
    return int(crc32c(bytes(content[:12]) + bytes(4) + bytes(content[16:])))


def keep_ids(path: str, meta: Meta, end: int) -> None:
    """Stores the ids of the records before `end`, which are about to be removed. Called under the lock of the table."""
    try:
        stored = read_ids(path, meta)
    except CorruptJournal:
        stored = StoredIds(0, [])  # those of the retained records can still be read
    if stored is None or stored.end >= end:
        return
    last = LastIds(dedup_of(meta.options), stored.entries)
    with closing(Cursor(path, meta.uuid)) as cursor:
        cursor.seek(first_readable(cursor, stored.end))
        last.read(cursor, end)
    write_ids(path, meta, StoredIds(end, last.entries(end)))


def first_readable(cursor: Cursor, sequence: int) -> int:
    """Returns this sequence, or the first one after it that is retained."""
    with suppress(PositionLost):
        return cursor.kept(sequence)
    return cursor.first_sequence


def copy_ids(path: str, meta: Meta, target: str) -> None:
    """Gives a backup the ids. It is called before the end of the copy is looked up, so that no id is beyond it."""
    with suppress(CorruptJournal):
        stored = read_ids(path, meta)
        if stored is not None:
            write_ids(target, meta, stored)
