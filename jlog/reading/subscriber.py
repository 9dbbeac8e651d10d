"""The durable position of a named reader: where reading resumes, and what retention keeps for it."""

from __future__ import annotations

from jlog._core.system.lock import AT_ONCE, Deadline
from jlog.care.passed_segments import PassedSegments
from jlog.errors import JournalClosed, JournalError, PositionLost
from jlog.positions import position_files, work_files
from jlog.positions.names import Start
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, PositionFile
from jlog.positions.start import find_start, outlives_its_records
from jlog.reading.journal_records import JournalRecords
from jlog.reading.sources import seek_before_the_end
from jlog.storage.segments import end_now


def create_if_missing(journal: JournalRecords, name: str, start: Start, create: bool, deadline: Deadline) -> None:
    """Creates the subscriber. Without `create` a missing one is SubscriberNotFound."""
    path, meta, cursor = journal.path, journal.meta, journal.cursor
    if position_files.exists(path, SUBSCRIBER, name):
        return
    if not create:
        raise position_files.not_found(path, SUBSCRIBER, name)
    with position_files.table_locked(path, deadline):
        if not position_files.exists(path, SUBSCRIBER, name):
            sequence = find_start(path, meta, cursor, start)
            cursor.kept(sequence)
            position_files.create(path, meta, SUBSCRIBER, name, sequence)


class Subscriber:
    """Holds the subscriber `name` for one Reader, and moves the position of `journal` to where it resumes.

    lost: the error that the next read raises, since retention has removed the next record; None: there is none.
    """

    def __init__(self, journal: JournalRecords, name: str, start: Start, create: bool, deadline: Deadline) -> None:
        self.name = name
        self.lost: PositionLost | None = None
        self._journal = journal
        self._passed = PassedSegments(str(journal.path), journal.meta, journal.cursor, name)
        create_if_missing(journal, name, start, create, deadline)
        waits = AT_ONCE if deadline.left() is None else deadline  # for a name nobody waits for ever
        self._file: PositionFile | None = position_files.hold(journal.path, journal.meta, name, waits)
        try:
            self._committed = self._file.read()  # the name is this object's: nobody else moves the position
            self._position = self._file.to_commit()
            self._resume(self._committed)
        except BaseException:
            self.close()
            raise

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

    def is_durable(self, sequence: int) -> bool:
        """Says whether the records before this sequence are known to survive a power loss. Only reads."""
        journal = self._journal
        try:
            return end_now(journal.path, journal.meta.uuid, durable_only=True) >= sequence
        except FileNotFoundError:
            journal.check_path()  # where the directory was removed, this says so
            raise

    def commit(self, sequence: int, deadline: Deadline, *, durable: bool) -> None:
        journal, file = self._journal, self._open_file()
        if sequence >= self._committed:
            if sequence > journal.cursor.position and sequence > journal.cursor.next_sequence:
                raise ValueError(f"{journal.path} ends before sequence {sequence}; commit what has been read")
            self._position.write(sequence)
        else:
            with position_files.table_locked(journal.path, deadline):
                journal.cursor.kept(sequence)
                work_files.forget(journal.path, journal.meta, self.name)
                self._position.write(sequence)
        self._committed = sequence
        if durable:
            file.sync()
        journal.check_path()
        self._passed.clean(sequence)

    def rewind(self, name: str, deadline: Deadline) -> None:
        journal, file = self._journal, self._open_file()
        with position_files.table_locked(journal.path, deadline):
            sequence = position_files.read(journal.path, journal.meta, CHECKPOINT, name)
            journal.cursor.kept(sequence)
            work_files.forget(journal.path, journal.meta, self.name)
            self._position.write(sequence)
            file.sync()
        self._committed = sequence
        self._passed.forget()
        self._resume(sequence)

    def close(self) -> None:
        """Frees the name."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._passed.forget()

    def _open_file(self) -> PositionFile:
        if self._file is None:
            raise JournalClosed(f"{self._journal.path}: this reader is closed; open a new one")
        return self._file
