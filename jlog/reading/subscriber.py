"""The durable position of a named reader: where reading resumes, and what retention keeps for it."""

from __future__ import annotations

from jlog._core.system.lock import Deadline
from jlog.care.cleaning import clean_if_free
from jlog.errors import JournalClosed, JournalError, PositionLost
from jlog.positions import position_files
from jlog.positions.names import Start
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, PositionFile
from jlog.positions.start import find_start, outlives_its_records
from jlog.reading.journal_records import JournalRecords
from jlog.reading.sources import seek_before_the_end


class Subscriber:
    """Holds the subscriber `name` for one Reader, and moves the position of `journal` to where it resumes.

    lost: the error that the next read raises, since retention has removed the next record; None: there is none.
    """

    def __init__(self, journal: JournalRecords, name: str, start: Start, create: bool, deadline: Deadline) -> None:
        self.name = name
        self.lost: PositionLost | None = None
        self._journal = journal
        self._clean_at = 0
        if not position_files.exists(journal.path, SUBSCRIBER, name):
            if not create:
                raise position_files.not_found(journal.path, SUBSCRIBER, name)
            self._make(start, deadline)
        self._file: PositionFile | None = position_files.hold(journal.path, journal.meta, name)
        try:
            self._resume(self._file.read())
        except BaseException:
            self.close()
            raise

    def _make(self, start: Start, deadline: Deadline) -> None:
        path, meta, cursor = self._journal.path, self._journal.meta, self._journal.cursor
        with position_files.table_locked(path, deadline):
            if not position_files.exists(path, SUBSCRIBER, self.name):
                sequence = find_start(path, meta, cursor, start)
                cursor.kept(sequence)
                position_files.make(path, meta, SUBSCRIBER, self.name, sequence)

    def _resume(self, sequence: int) -> None:
        """Goes to a committed position. A position that retention has removed becomes an error of the next read, so that a
        late subscriber can still be opened and seek."""
        journal = self._journal
        self.lost = None
        try:
            journal.cursor.seek(sequence)
        except PositionLost as error:
            self.lost = error
        except ValueError:
            outlives = outlives_its_records(journal.path, journal.meta, sequence, journal.cursor.next_sequence)
            # The end is looked up again: a writer may have opened the journal in between.
            if not outlives and journal.cursor.next_sequence < sequence:
                raise JournalError(
                    f"{journal.path}: subscriber {self.name!r} stands at {sequence}, behind the journal's end: the journal "
                    f"was replaced by an older one; `jlogtool subscriber set` moves the subscriber"
                ) from None
            seek_before_the_end(journal, min(sequence, journal.cursor.next_sequence))

    @property
    def committed(self) -> int:
        return self._open_file().read()

    def commit(self, sequence: int, deadline: Deadline, *, durable: bool) -> None:
        journal, file = self._journal, self._open_file()
        if sequence >= file.read():
            if sequence > journal.cursor.position and sequence > journal.cursor.next_sequence:
                raise ValueError(f"{journal.path} ends before sequence {sequence}; commit what has been read")
            file.write(sequence)
        else:
            with position_files.table_locked(journal.path, deadline):
                journal.cursor.kept(sequence)
                file.write(sequence)
        if durable:
            file.sync()
        self._clean(sequence)

    def _clean(self, sequence: int) -> None:
        """Looks for segments to remove, once for each segment that this subscriber leaves behind: the turn of the slowest
        subscriber removes it."""
        if sequence < self._clean_at:
            return
        gaps = self._journal.gaps
        self._clean_at = gaps.next_segment_after(sequence)
        if gaps.has_segment_before(sequence):
            clean_if_free(self._journal.path)

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
        self._clean_at = 0
        self._resume(sequence)

    def close(self) -> None:
        """Frees the name."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_file(self) -> PositionFile:
        if self._file is None:
            raise JournalClosed(f"{self._journal.path}: this reader is closed; open a new one")
        return self._file
