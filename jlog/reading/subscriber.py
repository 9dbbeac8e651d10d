"""The durable position of a named reader: where reading resumes, and what retention keeps for it."""

from __future__ import annotations

import time
from bisect import bisect_right

from jlog._core.segments.segment import list_segments
from jlog._core.system.lock import Deadline
from jlog.care.cleaning import clean_if_free
from jlog.errors import CorruptJournal, JournalClosed, JournalError, PositionLost
from jlog.positions import position_files
from jlog.positions.names import Start
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, PositionFile
from jlog.positions.start import find_start, outlives_its_records
from jlog.reading.journal_records import JournalRecords
from jlog.reading.sources import seek_before_the_end

RETRY_SECONDS = 1.0  # between two tries to remove segments, after both of the last two have failed
LOOK_SECONDS = 60.0  # after so long a commit looks again: a subscriber may have expired, or the retention was changed


class Subscriber:
    """Holds the subscriber `name` for one Reader, and moves the position of `journal` to where it resumes.

    lost: the error that the next read raises, since retention has removed the next record; None: there is none.
    """

    def __init__(self, journal: JournalRecords, name: str, start: Start, create: bool, deadline: Deadline) -> None:
        self.name = name
        self.lost: PositionLost | None = None
        self._journal = journal
        self._clean_at = 0  # the next segment, as far as it is known: a commit before it frees nothing
        self._looked_in: int | None = None  # the open segment, after a commit in it has looked
        self._looked_at = 0.0  # when a commit has looked last, as time.monotonic() tells it
        self._failures = 0  # how many looks in a row, up to the last one, could not remove what may go
        self._holder: PositionFile | None = None  # the lowest position then
        self._held_until = 0  # end of the segment in which that lay
        if not position_files.exists(journal.path, SUBSCRIBER, name):
            if not create:
                raise position_files.not_found(journal.path, SUBSCRIBER, name)
            self._create(start, deadline)
        self._file: PositionFile | None = position_files.hold(journal.path, journal.meta, name)
        try:
            self._committed = self._file.read()  # the name is this object's: nobody else moves the position
            self._resume(self._committed)
        except BaseException:
            self.close()
            raise

    def _create(self, start: Start, deadline: Deadline) -> None:
        path, meta, cursor = self._journal.path, self._journal.meta, self._journal.cursor
        with position_files.table_locked(path, deadline):
            if not position_files.exists(path, SUBSCRIBER, self.name):
                sequence = find_start(path, meta, cursor, start)
                cursor.kept(sequence)
                position_files.create(path, meta, SUBSCRIBER, self.name, sequence)

    def _resume(self, sequence: int) -> None:
        """Goes to a committed position. A position that retention has removed becomes an error of the next read, so that a
        late subscriber can still be opened and seek."""
        journal = self._journal
        self.lost = None
        try:
            journal.cursor.seek(sequence)
        except PositionLost as error:
            self.lost = error
        except JournalClosed:  # a ValueError too
            raise
        except ValueError:
            outlives = outlives_its_records(journal.path, journal.meta, sequence, journal.cursor.next_sequence)
            end = journal.cursor.next_sequence  # looked up again: a writer may have opened the journal in between
            if not outlives and end < sequence:
                raise JournalError(
                    f"{journal.path}: subscriber {self.name!r} is at {sequence}, beyond the end of the journal "
                    f"({end}): the journal was replaced by an older one; move the subscriber with `jlogtool subscriber set`"
                ) from None
            seek_before_the_end(journal, min(sequence, end))

    @property
    def committed(self) -> int:
        return self._open_file().read()

    def commit(self, sequence: int, deadline: Deadline, *, durable: bool) -> None:
        journal, file = self._journal, self._open_file()
        if sequence >= self._committed:
            if sequence > journal.cursor.position and sequence > journal.cursor.next_sequence:
                raise ValueError(f"{journal.path} ends before sequence {sequence}; commit what has been read")
            file.write(sequence)
        else:
            with position_files.table_locked(journal.path, deadline):
                journal.cursor.kept(sequence)
                file.write(sequence)
        self._committed = sequence
        if durable:
            file.sync()
        self._clean(sequence)

    def _clean(self, sequence: int) -> None:
        """Looks for segments to remove, once for each segment that this subscriber passes: the commit of the slowest subscriber
        removes it. In the open segment there is nothing to look for until it is sealed, or until the position that holds the
        earlier segments back has passed one of them. Time frees segments too, so that no look holds for longer than
        LOOK_SECONDS."""
        now = time.monotonic()
        if self._failures > 1 and now - self._looked_at < RETRY_SECONDS:
            return  # a backup may copy the journal for hours
        open_segment = self._journal.cursor.open_segment  # read before the listing, which is at least as new
        if now - self._looked_at < LOOK_SECONDS and (sequence < self._clean_at or self._has_looked_in(open_segment)):
            return
        self._forget_look()
        self._looked_at = now
        segments = list_segments(self._journal.path)
        following = bisect_right(segments, sequence)
        if following > 1 and not clean_if_free(self._journal.path):
            self._failures += 1
            return
        self._failures = 0
        if following < len(segments):
            self._clean_at = segments[following]
            return
        self._clean_at, self._looked_in = sequence + 1, open_segment
        if following > 1:
            self._note_holder(segments)

    def _has_looked_in(self, open_segment: int | None) -> bool:
        return open_segment is not None and open_segment == self._looked_in and self._is_held_back()

    def _note_holder(self, segments: list[int]) -> None:
        """Notes the position that holds the earlier segments back, if one does."""
        found = position_files.lowest(self._journal.path, self._journal.meta)
        if found is None:
            self._looked_in = None
            return
        self._holder, at = found
        following = bisect_right(segments, at)
        self._held_until = segments[following] if following < len(segments) else 0

    def _is_held_back(self) -> bool:
        if self._holder is None or not self._held_until:
            return True  # what is left there stays for another reason than a position
        try:
            return self._holder.is_current and self._holder.read() < self._held_until
        except (CorruptJournal, OSError):
            return False

    def _forget_look(self) -> None:
        self._clean_at, self._looked_in = 0, None
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    def rewind(self, name: str, deadline: Deadline) -> None:
        journal, file = self._journal, self._open_file()
        with position_files.table_locked(journal.path, deadline):
            checkpoint = PositionFile(journal.path, journal.meta, CHECKPOINT, name)
            try:
                sequence = checkpoint.read()
            finally:
                checkpoint.close()
            journal.cursor.kept(sequence)
            file.write(sequence)
            file.sync()
        self._committed = sequence
        self._forget_look()
        self._resume(sequence)

    def close(self) -> None:
        """Frees the name."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._forget_look()

    def _open_file(self) -> PositionFile:
        if self._file is None:
            raise JournalClosed(f"{self._journal.path}: this reader is closed; open a new one")
        return self._file
