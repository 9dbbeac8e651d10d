"""Reading a journal: by a named subscriber, whose position is durable, or anonymously."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from jlog._core.read.arrow import ArrowIterator
from jlog._core.read.cursor import Cursor
from jlog._core.read.follow import Following, wait
from jlog._core.read.iterate import RecordIterator, ValueIterator
from jlog._core.records.record import Record, RecordBatch
from jlog._core.system.lock import NEVER, Deadline
from jlog.care.retention import clean_if_free
from jlog.errors import CorruptJournal, JournalClosed, JournalError, PositionLost
from jlog.options import check_lock_timeout
from jlog.positions import position_files
from jlog.positions.names import Start, check_name
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, PositionFile
from jlog.positions.start import find_start, outlives_its_records
from jlog.reading.pace import Pace
from jlog.storage.damage import Damage, skip_damage
from jlog.storage.gaps import Holes
from jlog.storage.meta import read_meta
from jlog.system.filesystem import is_url, journal_path

if TYPE_CHECKING:
    import pyarrow

    from jlog.reading.event_loops import Waiter

_archive_reader: type[Reader] | None = None


def set_archive_reader(reader: type[Reader]) -> None:
    """Reads what is archived: it lies above this layer."""
    global _archive_reader  # noqa: PLW0603
    _archive_reader = reader


class Reader:
    """Reads the records of the journal at `path` in order, those in the pre-commit buffer as soon as they are appended.

    With a `name` it is a subscriber: its position is durable, and holds back every record that it has not committed.
    After a crash reading resumes at the last commit, so that each record is delivered at least once. The name belongs to
    one Reader at a time, of all processes; the kernel frees it when its owner dies. Without a name nothing is held back,
    and there is nothing to commit.

    start: where a new subscriber, or an anonymous reader, begins: "begin", "end", a sequence, an aware datetime (the first
        record at or after it) or a checkpoint's name.
    create: False raises SubscriberNotFound instead of making the subscriber.
    durable_only: hand out only what has been synced.
    lock_timeout: seconds that one call waits for what other processes and threads do, before JournalLocked; None: for ever.
        Reading and a plain commit wait for nobody.
    archive: True, for a reader without a name, begins in the journal's archive and goes on in the journal, with no gap and
        nothing twice; a URL, where that is not what the journal's retention says. The journal need not be there any more
        for `jlog.Reader("s3://bucket/prefix")`, which reads the archive alone.

    A Reader is used by one thread at a time, a second one gets JournalError; but any thread may ask for `position` and
    `lag`, and close it. After a fork the child's raises JournalClosed and the parent's goes on. It cannot be pickled: open
    another one where it is needed.
    """

    def __new__(  # noqa: PYI034
        cls,
        path: str | os.PathLike[str],
        *_: Any,
        archive: bool | str = False,
        **__: Any,
    ) -> Reader:
        other = _archive_reader if cls is Reader and (archive or is_url(path)) else None
        return super().__new__(cls if other is None else other)

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        start: Start = "begin",
        create: bool = True,
        durable_only: bool = False,
        archive: bool | str = False,  # noqa: ARG002
        lock_timeout: float | None = None,
    ) -> None:
        self._lock_timeout = check_lock_timeout(lock_timeout)
        self._path = journal_path(path)
        self._meta = read_meta(self._path)
        self._name = None if name is None else check_name(name, SUBSCRIBER)
        self._file: PositionFile | None = None
        self._lost: PositionLost | None = None
        self._clean_at = 0
        self._waiters: set[Waiter] = set()
        self._cursor = Cursor(self._path, self._meta.uuid, durable_only=durable_only)
        self._holes = Holes(self._path, self._meta.uuid)
        if self._name is None:
            self._go_to(start)
        else:
            self._subscribe(self._name, start, create)

    def _subscribe(self, name: str, start: Start, create: bool) -> None:
        if not position_files.exists(self._path, SUBSCRIBER, name):
            if not create:
                raise position_files.not_found(self._path, SUBSCRIBER, name)
            with position_files.table_locked(self._path, self._deadline()):
                if not position_files.exists(self._path, SUBSCRIBER, name):
                    sequence = find_start(self._path, self._meta, self._cursor, start)
                    self._cursor.kept(sequence)
                    position_files.make(self._path, self._meta, SUBSCRIBER, name, sequence)
        self._file = position_files.hold(self._path, self._meta, name)
        try:
            self._resume(self._file.read())
        except BaseException:
            self._file.close()
            raise

    def _deadline(self) -> Deadline:
        """Of a call that begins now."""
        return NEVER if self._lock_timeout is None else Deadline(self._lock_timeout)

    def _resume(self, sequence: int) -> None:
        """To a committed position. What retention has removed is told when it is read, so that a late subscriber can
        still be opened and seek."""
        self._lost = None
        try:
            self._cursor.seek(sequence)
        except PositionLost as error:
            self._lost = error
        except ValueError:
            outlives = outlives_its_records(self._path, self._meta, sequence, self._cursor.next_sequence)
            # The end is looked up again: a writer may have opened the journal in between.
            if not outlives and self._cursor.next_sequence < sequence:
                raise JournalError(
                    f"{self._path}: subscriber {self._name!r} stands at {sequence}, behind the journal's end: the journal "
                    f"was replaced by an older one; `jlogtool subscriber set` moves the subscriber"
                ) from None
            self._seek_before_the_end(min(sequence, self._cursor.next_sequence))

    def _seek_before_the_end(self, sequence: int) -> None:
        """To where records are, or the end is, for certain. CorruptJournal where the blocks do not reach that far."""
        try:
            self._cursor.seek(sequence)
        except ValueError as error:
            page = os.path.join(self._path, "precommit")
            raise CorruptJournal(page, 0, f"it says that records go on behind the last block: {error}") from None

    def __repr__(self) -> str:
        return f"<jlog.Reader {self._path!r} {self._name or 'anonymous'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Reader cannot be pickled; hand over its path and name, and open one where they arrive")

    # --- Reading ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        """Records up to the end as it is now; iterate again to go on."""
        self._check_lost()
        return RecordIterator(self._cursor)

    def values(self) -> Iterator[bytes | None]:
        """Their values alone, up to the end as it is now: the fastest way through."""
        self._check_lost()
        return ValueIterator(self._cursor)

    def record_batches(
        self,
        *,
        max_records: int = 32_768,
        max_bytes: int = 64 << 20,
        columns: Iterable[str] | None = None,
        end: int | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
        """The same as pyarrow.RecordBatches with the columns of RecordBatch.to_arrow(), or those of them that are named
        in `columns`: what is left out costs nothing. Each has at most `max_records` and, beyond the first record,
        `max_bytes`. With `end` they stop before that sequence. Raises ImportError without pyarrow:
        pip install 'pyjlog[arrow]'."""
        check_limits(max_records, max_bytes)
        if end is not None and end < 0:
            raise ValueError(f"a sequence is 0 or more, not {end}")
        self._check_lost()
        return ArrowIterator(self._cursor, max_records, max_bytes, columns=columns, end=end)

    def follow(self, timeout: float | None = None, *, pace: float | None = None) -> Iterator[Record]:
        """Records as they come, woken at once and without using CPU while there is none. Ends after `timeout` seconds
        without a record; None: never.

        pace: replays them as far apart as their timestamps are, to a few milliseconds: 1.0 as recorded, 2.0 twice as fast.
            The times count from the first record; one whose time has passed already comes at once. Until its time has come
            a record is not handed out, and the timeout does not run. ValueError unless it is above 0.

        After CorruptJournal, PositionLost or Ctrl-C the same iterator goes on. Another thread may end it: with close().
        """
        self._check_lost()
        return Following(self._cursor, timeout, None if pace is None else Pace(pace))

    def follow_async(self, timeout: float | None = None, *, pace: float | None = None) -> AsyncIterator[Record]:
        """The same for `async for`, in the running asyncio loop. Hundreds of readers may wait in one loop, or in several:
        one thread of the process waits for all their journals, while anybody waits.

        A reader that has much to catch up with lets other tasks run every 2 ms; reading itself, a block at a time, is done
        in the loop. A step that is cancelled loses no record, and the iterator goes on.
        """
        from jlog.reading.async_follow import AsyncFollowing  # and asyncio, which most do not need

        self._check_lost()
        return AsyncFollowing(self._cursor, timeout, None if pace is None else Pace(pace), self._waiters)

    def read(self, max_records: int = 10_000, max_bytes: int = 64 << 20, timeout: float | None = 0) -> RecordBatch:
        """At least one record, and no more than `max_records` or, beyond the first, `max_bytes`; never more than 2 GiB, which
        is what a column of Arrow's holds. Empty only if none came within `timeout` seconds (None: waits for ever)."""
        check_limits(max_records, max_bytes)
        self._check_lost()
        batch = self._cursor.read(max_records, max_bytes)
        if not len(batch) and timeout != 0:
            deadline = Deadline(timeout)
            while not len(batch) and wait(self._cursor, deadline):
                batch = self._cursor.read(max_records, max_bytes)
        return batch

    def read_backward(self, max_records: int) -> list[Record]:
        """Up to so many records before the position, newest first; the position moves back behind them."""
        if max_records < 1:
            raise ValueError(f"max_records is at least 1, not {max_records}")
        end = self.position
        found: list[Record] = []
        while len(found) < max_records:
            before = self._holes.step_back(end, max_records - len(found), self._cursor.first_sequence)
            if before == end:
                break
            found += reversed(self._read_between(before, end))
            end = before
        self._seek_before_the_end(end)
        return found

    def _read_between(self, start: int, end: int) -> list[Record]:
        """All of them: damage in between raises, however much stands before it."""
        records: list[Record] = []
        self._seek_before_the_end(start)
        while self.position < end:
            batch = self._cursor.read(end - self.position, 64 << 20)
            if not len(batch):
                break
            records += batch
        return [record for record in records if start <= record.sequence < end]

    def skip_damage(self) -> Damage:
        """After CorruptJournal: goes on behind the damage, in this iterator or another, and says what was lost."""
        self._check_lost()
        return skip_damage(self._cursor)

    # --- Where it stands --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def position(self) -> int:
        """The sequence of the next record to read. It moves with every record handed out."""
        self._cursor.check_open()
        return self._named_file().read() if self._lost is not None else int(self._cursor.position)

    @property
    def committed(self) -> int:
        """Where reading resumes after a crash."""
        return self._named_file().read()

    @property
    def lag(self) -> int:
        """Records between the position and the end of the journal."""
        end = int(self._cursor.next_sequence)
        return self._holes.records_between(max(self.position, int(self._cursor.first_sequence)), end)

    def seek(self, to: Start) -> None:
        """Moves the position, not what is committed: "begin", "end", a sequence, or an aware datetime."""
        self._go_to(to, checkpoints=False)
        self._lost = None

    def _go_to(self, start: Start, *, checkpoints: bool = True) -> None:
        while True:
            sequence = find_start(self._path, self._meta, self._cursor, start, checkpoints=checkpoints)
            try:
                return self._cursor.seek(sequence)
            except PositionLost:
                if start != "begin" and not isinstance(start, datetime):
                    raise  # else what was found was removed in this moment

    # --- What is durable --------------------------------------------------------------------------------------------

    def commit(self, sequence: int | None = None, *, durable: bool = False) -> None:
        """Everything before the position, or before `sequence`, is done with: reading resumes there after a crash.

        It survives the death of any process when this returns; a power loss with `durable=True`, which first syncs the
        journal up to there. Segments that nobody wants any more are removed, if no other process is at it.
        """
        file = self._named_file()
        if sequence is None:
            sequence = self.position
        elif isinstance(sequence, bool) or not isinstance(sequence, int):
            raise TypeError(f"a commit takes a sequence, not {sequence!r}")
        elif sequence < 0:
            raise ValueError(f"a sequence is 0 or more, not {sequence}")
        deadline = self._deadline()
        if durable:
            self._sync_journal(sequence, deadline)
        if sequence >= file.read():
            if sequence > self._cursor.position and sequence > self._cursor.next_sequence:
                raise ValueError(f"{self._path} ends before sequence {sequence}; commit what has been read")
            file.write(sequence)
        else:
            with position_files.table_locked(self._path, deadline):
                self._cursor.kept(sequence)
                file.write(sequence)
        if durable:
            file.sync()
        self._clean(sequence)

    def sync(self) -> None:
        """What has been read survives a power loss when this returns: the journal is synced up to the position. For whoever
        tells the outside how far it has come. Needs to write to the journal; a durable_only reader has no need of it."""
        self._sync_journal(self.position, self._deadline())

    def _sync_journal(self, sequence: int, deadline: Deadline) -> None:
        """What is told to the outside is on the disk first."""
        from jlog._core.write.attachment import attach, detach

        attachment = attach(self._path, deadline=deadline)
        try:
            if attachment.durable_end < sequence:
                attachment.sync(deadline)
        finally:
            detach(attachment, deadline=deadline)

    def _clean(self, sequence: int) -> None:
        """Once for each segment that this subscriber leaves behind; the slowest one's turn removes it."""
        if sequence < self._clean_at:
            return
        self._clean_at = self._holes.next_segment_after(sequence)
        if self._holes.has_segment_before(sequence):
            clean_if_free(self._path)

    def checkpoint(self, name: str) -> None:
        """Makes the checkpoint `name`, or moves it, to the position; durably. It holds back records as a subscriber does."""
        check_name(name, CHECKPOINT)
        self._cursor.check_open()
        with position_files.table_locked(self._path, self._deadline()):
            position = self.position
            self._cursor.kept(position)
            position_files.put(self._path, self._meta, CHECKPOINT, name, position)

    def rewind(self, name: str) -> None:
        """Position and committed go back to the checkpoint `name`, durably."""
        file = self._named_file()
        with position_files.table_locked(self._path, self._deadline()):
            checkpoint = PositionFile(self._path, self._meta, CHECKPOINT, name)
            try:
                sequence = checkpoint.read()
            finally:
                checkpoint.close()
            self._cursor.kept(sequence)
            file.write(sequence)
            file.sync()
        self._clean_at = 0
        self._resume(sequence)

    def close(self) -> None:
        """Frees the name. Does not commit. A second close does nothing. Whoever waits in this reader, in another thread or
        in an event loop, gets JournalClosed."""
        self._cursor.close()
        if self._waiters:
            from jlog.reading.event_loops import wake_all

            wake_all(list(self._waiters))
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Reader:  # noqa: PYI034
        self._cursor.check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- Checks -----------------------------------------------------------------------------------------------------

    def _named_file(self) -> PositionFile:
        self._cursor.check_open()
        if self._file is None:
            if self._name is None:
                raise JournalError(
                    f"{self._path}: an anonymous reader commits nothing; open it with a name, jlog.Reader(path, 'billing')"
                )
            raise JournalClosed(f"{self._path}: this reader is closed; open a new one")
        return self._file

    def _check_lost(self) -> None:
        if self._lost is not None:
            raise self._lost


def check_limits(max_records: int, max_bytes: int) -> None:
    if max_records < 1 or max_bytes < 1:
        raise ValueError(f"max_records and max_bytes are at least 1, not {max_records} and {max_bytes}")
