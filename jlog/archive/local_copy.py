"""An archived segment as a small journal of its own while it is read, so that the code that reads journals reads it.

A segment that is far away is fetched in ranges of blocks. The index that is archived beside it says where blocks begin. The
file here holds one run of blocks, and ends with it: before the run is a hole. Whatever looks like damage there is looked at
again in the whole segment, so that a wrong index costs bytes and no records.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
import weakref
from bisect import bisect_right
from contextlib import closing, suppress
from typing import Any

from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.format.dual_slot import BoundsFile
from jlog._core.read.cursor import Cursor
from jlog._core.segments.index import NO_TIME, SparseIndex
from jlog._core.segments.segment import SegmentFile
from jlog._core.system.file import OpenFile
from jlog.archive.indexes import fetch_index
from jlog.archive.manifest import ArchivedSegment
from jlog.archive.store import ArchiveFolder
from jlog.errors import CorruptJournal
from jlog.positions.start import find_time, first_at
from jlog.storage.meta import Meta
from jlog.system.files import open_directory, write_whole

PREFIX = "jlog-archive-"  # of the directories' names
ABANDONED_SECONDS = 60  # a directory that has no lock after so long has no process any more
FIRST_BYTES = 64 << 10  # the first range that is fetched; each further one is twice as large
RANGE_BYTES = 8 << 20  # no range is much larger, since its bytes are held in memory
RUN_BYTES = 32 << 20  # no run is much longer, since finding its end takes time for each of its blocks
WHOLE_BYTES = 256 << 10  # a segment up to this size is fetched at once, without its index
NOT_AS_INDEXED = "the blocks are not those that the index states"


class LocalCopy:
    """A directory below TMPDIR with blocks of the segment, or with a link to it where the archive is on this machine. It is
    removed by close(), with the object, or with the process. What a killed process has left is removed by the next copy: the
    directory is locked as long as its process lives.

    read_ahead: so many bytes are fetched first; the segment as a whole if it has no more.
    """

    def __init__(
        self, folder: ArchiveFolder, segment: ArchivedSegment, read_ahead: int = FIRST_BYTES, decoder: Any = None
    ) -> None:
        import tempfile  # few programs need it

        self._decoder = decoder
        self.segment = segment
        self.meta: Meta = Meta(bytes.fromhex(segment.uuid), [])
        self.read_ahead: int = read_ahead
        self._folder = folder
        self._index: SparseIndex | None = None  # None: the whole segment is here
        self._run: tuple[int, int] | None = None  # the run of blocks: from this entry of the index up to that one
        _remove_abandoned(tempfile.gettempdir())
        self.path: str = os.path.join(tempfile.gettempdir(), PREFIX + os.urandom(16).hex())
        lock: list[OpenFile] = []  # holds the lock
        self._discard = weakref.finalize(self, _discard, self.path, os.getpid(), lock)  # before there is anything to remove
        os.mkdir(self.path, 0o700)
        lock.append(open_directory(self.path))
        fcntl.flock(lock[0].fd, fcntl.LOCK_SH)
        try:
            self._index = self._archived_index()
            if self._index is None:
                self.fetch_whole()
        except BaseException:
            self.close()
            raise

    def _archived_index(self) -> SparseIndex | None:
        """Returns the segment's index; None where the segment has to be read as a whole."""
        segment = self.segment
        is_small = segment.size_bytes <= max(WHOLE_BYTES, self.read_ahead)
        if is_small or not segment.sound or self._folder.local_path(segment.name) is not None:
            return None
        index = fetch_index(self._folder, segment)
        if index is None:
            return None
        _, *others = index.entries
        # The first range begins with the state, so that it is checked too.
        return SparseIndex([(segment.first_sequence, SEGMENT_HEADER_BYTES, NO_TIME), *others])

    # --- Fetching ---------------------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        return self._index is None

    @property
    def end_sequence(self) -> int:
        """The end of the records that are here."""
        if self._index is None or self._run is None:
            return self.segment.end_sequence
        return self._index.entries[self._run[1]][0]

    def fetch_whole(self) -> None:
        """Fetches the whole segment, in place of the blocks that are here."""
        beside = os.path.join(self.path, "whole")
        self._folder.fetch(self.segment.name, beside, self.segment.size_bytes)
        os.replace(beside, os.path.join(self.path, self.segment.name))
        self._index = None
        self._bound(self.segment.end_sequence, self.segment.size_bytes)

    def _fetch(self, index: SparseIndex, sequence: int, end: int | None) -> tuple[int, int] | None:
        """Fetches the blocks from this sequence on, or before it where reading goes backward; but none from `end` on. Returns
        offset and sequence of the block at or before it; None where the archived file ends too soon."""
        entries = index.entries
        last = len(entries) - 1
        wanted = last if sequence >= entries[last][0] else bisect_right(entries, (sequence, 1 << 64, 0)) - 1
        place = entries[wanted][1], entries[wanted][0]
        first, beyond = self._run or (wanted, wanted)
        if self._run is not None and (first <= wanted < beyond or wanted == beyond == last):
            return place
        if wanted > beyond or entries[first][1] - place[0] > RANGE_BYTES:
            self.read_ahead = FIRST_BYTES  # read somewhere else from here on
            first = beyond = wanted
        size = self.read_ahead if end is None else RANGE_BYTES
        if wanted < first:
            start, stop = _back_to(index, wanted, first, size), first
        else:
            start, stop = wanted, _up_to(index, wanted, size, end)
        run = min(start, first), max(stop, beyond)
        is_new = self._run is None or first == beyond or entries[run[1]][1] - entries[run[0]][1] > RUN_BYTES
        if is_new:
            stop = max(stop, min(first + 1, last))  # reading backward has come from within that block
            run = start, stop
        if not self._copy(entries[start][1], entries[stop][1], anew=is_new):
            return None
        self._run = run
        self.read_ahead = min(2 * self.read_ahead, RANGE_BYTES)
        self._bound(*entries[run[1]][:2])
        return place

    def _copy(self, start: int, stop: int, *, anew: bool) -> bool:
        """Copies this range to the same place of the file here, and the segment's header to a file that is begun anew. Returns
        False where the archived file is too short for that."""
        ranges = [(start, stop)] if start < stop else []
        if anew and start == SEGMENT_HEADER_BYTES:
            ranges = [(0, stop)]
        elif anew:
            ranges = [(0, SEGMENT_HEADER_BYTES), *ranges]
        found = self._folder.read_ranges(self.segment.name, ranges, self.segment.size_bytes)
        if found is None:
            return False
        with OpenFile(os.path.join(self.path, self.segment.name), os.O_WRONLY | os.O_CREAT) as file:
            if anew:
                self._run = None
                os.ftruncate(file.fd, 0)
                os.ftruncate(file.fd, stop)
            for (at, _), content in zip(ranges, found, strict=True):
                write_whole(file.fd, content, at)
        return True

    def _bound(self, end_sequence: int, end_offset: int) -> None:
        """Writes down where the blocks end that are here: nothing inside a segment says that no more follow."""
        first, end = self.segment.first_sequence, self.segment.end_sequence
        mark = first, end_offset, end_sequence
        path = os.path.join(self.path, "bounds")
        BoundsFile.create(path, self.meta.uuid, end, mark, first_sequence=first, mark=mark, sync=False)

    # --- Reading ----------------------------------------------------------------------------------------------------

    def cursor(self, sequence: int, end: int | None = None) -> Cursor:
        """Returns a cursor at a block at or before this sequence, and fetches that block, if it is not here, with some of those
        that follow. In a whole segment it is the first block, and nothing is read yet.

        end: nothing is read from this sequence on.
        """
        place = None if self._index is None else self._fetch(self._index, sequence, end)
        if place is None and self._index is not None:
            self.fetch_whole()
        file = SegmentFile(self.path, self.segment.first_sequence, self.meta.uuid, check_header=False)
        cursor = Cursor(self.path, self.meta.uuid)
        cursor.decode_with(self._decoder)
        cursor.enter(file, *(place or (SEGMENT_HEADER_BYTES, self.segment.first_sequence)))
        return cursor

    def seek(self, cursor: Cursor, sequence: int) -> None:
        """Moves a cursor from where cursor() has put it to the sequence itself. Raises CorruptJournal where the blocks are
        damaged, or are not those that the index states."""
        if self.is_whole:
            cursor.seek(sequence)
            return
        while cursor.position < sequence and len(cursor.read(sequence - cursor.position, RANGE_BYTES)):
            pass
        if cursor.position != sequence:
            raise CorruptJournal(self.segment.path, cursor.place[1], NOT_AS_INDEXED)

    def find_time(self, timestamp_us: int) -> int:
        """Returns the sequence of the first record at or after this time, or the end of the segment where all are earlier."""
        if self._index is not None:
            with suppress(CorruptJournal):
                return self._find_time(self._index, timestamp_us)
        if self._index is not None:
            self.fetch_whole()
        try:
            with closing(Cursor(self.path, self.meta.uuid)) as cursor:
                return find_time(self.path, self.meta, timestamp_us, cursor)
        except CorruptJournal as error:
            raise self.named(error) from None

    def _find_time(self, index: SparseIndex, timestamp_us: int) -> int:
        """Does the same in an index and the blocks that it leads to."""
        entry = index.locate_time(timestamp_us)
        sequence = self.segment.end_sequence if entry is None else int(entry[0])
        while sequence < self.segment.end_sequence:
            cursor = self.cursor(sequence)
            found = first_at(cursor, timestamp_us)
            if found < cursor.position:
                return found
            if self.is_whole or not sequence < found == self.end_sequence:
                raise CorruptJournal(self.segment.path, cursor.place[1], NOT_AS_INDEXED)
            sequence = found
        return sequence

    def named(self, error: CorruptJournal) -> CorruptJournal:
        """Returns the error of a damage that is found here with the name of the archive's file."""
        return CorruptJournal(self.segment.path, error.offset, error.reason)

    def close(self) -> None:
        self._discard()

    def __enter__(self) -> LocalCopy:  # noqa: PYI034
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _up_to(index: SparseIndex, start: int, size: int, end: int | None) -> int:
    """Returns the entry that ends a range of about this size, which has nothing that is needless before the sequence `end`."""
    entries = index.entries
    at = start
    while (
        at < len(entries) - 1
        and entries[at][1] - entries[start][1] < size
        and (at == start or end is None or entries[at][0] < end)
    ):
        at += 1
    return at


def _back_to(index: SparseIndex, wanted: int, stop: int, size: int) -> int:
    """Returns the entry that begins a range of about this size, which ends with the entry `stop` and has the one wanted."""
    entries = index.entries
    at = wanted
    while at > 0 and entries[stop][1] - entries[at][1] < size:
        at -= 1
    return at


def _discard(path: str, process: int, lock: list[OpenFile]) -> None:
    if process == os.getpid():  # a forked child must leave the directory of the parent
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    while lock:
        lock.pop().close()


def _remove_abandoned(directory: str) -> None:
    """Removes the copies of this user whose processes are dead. A young one may be about to get its lock."""
    with os.scandir(directory) as entries:
        found = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in found:
        with suppress(OSError):
            at = os.lstat(path)
            if at.st_uid != os.geteuid() or not stat.S_ISDIR(at.st_mode) or time.time() - at.st_ctime < ABANDONED_SECONDS:
                continue
            with open_directory(path) as opened:
                fcntl.flock(opened.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _discard(path, os.getpid(), [])
