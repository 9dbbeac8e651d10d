"""Append once: what one writer knows of the last ids, which all processes append."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING

from jlog._core.read.cursor import Cursor
from jlog._core.system.lock import AT_ONCE, Deadline
from jlog._core.system.notices import warn
from jlog.errors import CorruptJournal, JournalError, JournalLocked, PositionLost
from jlog.options import dedup_of
from jlog.positions.position_files import table_locked
from jlog.storage.ids import HEADER, LastIds, StoredIds, first_readable, read_ids, stored_end, write_ids
from jlog.storage.meta import NAME as META
from jlog.storage.meta import read_meta
from jlog.storage.segments import segments_now
from jlog.system.clock import now_us
from jlog.system.files import file_in

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from jlog._core.write.writer import Writer

    Headers = Iterable[tuple[str, Buffer | None]] | Mapping[str, Buffer | None]

STORED_EVERY = 200_000  # records that another process reads at most before its first append with an id


class Ids:
    """The last ids of a journal, as one writer knows them: those of the file `ids`, and of the records that follow.

    Threads share it without a lock. An id is added before the end moves past its record, and a thread notes the end before it
    looks an id up. So every record before the end that it hands to the core has been looked at.
    """

    def __init__(self, path: str, deadline: Deadline) -> None:
        self._path = path
        self._process = os.getpid()
        self._cursors: list[Cursor] = []  # of threads that are not reading now
        self._meta_file = self._stat_meta()
        self._meta = read_meta(path)  # its Writer has begun the present epoch
        self._uuid = self._meta.uuid
        self._last = LastIds(1)
        self._end = self._stored_end = 0
        self._load(deadline)

    def close(self) -> None:
        while self._cursors:
            self._cursors.pop().close()

    def append(
        self,
        writer: Writer,
        value: Buffer | None,
        key: Buffer | None,
        headers: Headers | None,
        timestamp_us: int | None,
        identity: bytes,
        deadline: Deadline,
    ) -> int:
        """Appends a record with an id, or finds the one that has it. Returns its sequence."""
        pairs = _with_id(headers, identity)
        self._follow_options()
        while True:
            self._catch_up(writer.next_sequence, deadline)
            end = self._end
            known = self._last.find(identity)
            if known is not None:
                return known
            sequence = writer._append_once(value, key, pairs, timestamp_us, identity, end, deadline)
            if sequence is not None:
                break
            if deadline.left() == 0:
                raise JournalLocked(
                    f"{self._path}: others have appended for the whole lock_timeout, so that it is not known whether the id is "
                    "new; call it again"
                )
        self._last.add(identity, sequence, now_us())
        if self._end == sequence:
            self._end = sequence + 1
        if self._end >= self._stored_end + STORED_EVERY:
            self._store_quietly(writer)
        return sequence

    def _stat_meta(self) -> tuple[int, int]:
        found = os.stat(file_in(self._path, META))
        return found.st_ino, found.st_mtime_ns

    def _follow_options(self) -> None:
        """Takes the journal's option as it is now. A larger one brings no id back."""
        now = self._stat_meta()
        if now != self._meta_file:
            self._meta_file = now
            self._last.dedup = dedup_of(read_meta(self._path).options)

    def _load(self, deadline: Deadline) -> None:
        """Reads the file and the records after it. Without a file, creates it: from then on cleaning keeps the ids of what it
        removes."""
        tried: StoredIds | None = None
        while True:
            stored = self._read_file()
            try:
                self._read_on(stored, deadline, past_removed=stored is not None and stored == tried)
                return
            except PositionLost:  # removed since the file was read: it has their ids by now
                tried = stored

    def _read_file(self) -> StoredIds | None:
        try:
            return read_ids(self._path, self._meta)
        except CorruptJournal as error:
            warn(self._path, "ids of removed records are forgotten", error)
            return None

    def _read_on(self, stored: StoredIds | None, deadline: Deadline, *, past_removed: bool) -> None:
        dedup = dedup_of(read_meta(self._path).options)
        with closing(Cursor(self._path, self._uuid)) as cursor:
            end = int(cursor.next_sequence)
            if stored is None:
                begin = self._search_from(cursor, dedup)
                last = LastIds(dedup)
            else:
                # In a copy the file may be newer than the records, whose numbers are then given to others.
                begin = min(stored.end, end)
                last = LastIds(dedup, (entry for entry in stored.entries if entry[1] < begin))
            cursor.seek(first_readable(cursor, begin) if past_removed else begin)
            last.read(cursor, end)
        if stored is None or stored.end > end:
            with table_locked(self._path, deadline):
                write_ids(self._path, self._meta, StoredIds(begin, last.entries(begin)))
        self._last, self._end, self._stored_end = last, end, begin

    def _search_from(self, cursor: Cursor, dedup: int | timedelta) -> int:
        """Returns where the search for ids begins if no file has them: such records came from another journal."""
        if isinstance(dedup, int):
            return max(cursor.first_sequence, cursor.next_sequence - dedup)
        since_us = now_us() - dedup // timedelta(microseconds=1)
        for segment in reversed(segments_now(self._path, self._meta)):  # the records may carry times of their own
            if segment.created_us is not None and segment.created_us < since_us:
                return segment.first_sequence
        return cursor.first_sequence

    def _catch_up(self, end: int, deadline: Deadline) -> None:
        """Reads what was appended since, up to `end` at least."""
        if self._end >= end:
            return
        if self._process != os.getpid():  # a child of a fork has the ids, and opens the files anew
            self._process, self._cursors = os.getpid(), []
        try:
            cursor, is_new = self._cursors.pop(), False
        except IndexError:
            cursor, is_new = Cursor(self._path, self._uuid), True
        try:
            if is_new or cursor.position != self._end:
                cursor.seek(self._end)
            self._last.read(cursor, end)
            self._end = max(self._end, int(cursor.position))
        except PositionLost:  # removed since: the file has their ids
            cursor.close()
            self._load(deadline)
        except BaseException:
            cursor.close()
            raise
        else:
            self._cursors.append(cursor)

    def _store_quietly(self, writer: Writer) -> None:
        """Stores the ids, so that the next process has few records to read. They are made durable before: an id whose record a
        power loss takes must not be known afterwards. The append is done, and nothing here may look like its failure."""
        end = self._stored_end = self._end
        try:
            writer.sync()
            with table_locked(self._path, AT_ONCE):
                stored = stored_end(self._path, self._meta)
                if stored is None or stored < end:
                    write_ids(self._path, self._meta, StoredIds(end, self._last.entries(end)))
        except JournalLocked:
            pass  # another process cleans, or stores them
        except (JournalError, OSError) as error:
            warn(self._path, "its ids are not stored yet", error)


def _with_id(headers: Headers | None, identity: bytes) -> list[tuple[str, Buffer | None]]:
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    if any(name == HEADER for name, _ in pairs):
        raise ValueError(f"the header {HEADER} holds the id; give the one or the other")
    return [(HEADER, identity), *pairs]
