"""Reads a journal or an archive: as a named subscriber, whose position is durable, or anonymously."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NoReturn

from jlog._core.read.iterate import ValueIterator
from jlog._core.read.position import handing_out, moving
from jlog._core.records.arrow import ArrowBatch, Field, fields_of, requested_fields, schema_of, stream_of
from jlog._core.records.columns import import_pyarrow
from jlog._core.records.record import Record, RecordBatch
from jlog._core.system.lock import NEVER, Deadline
from jlog.errors import JournalError
from jlog.options import check_lock_timeout
from jlog.positions.names import Start, check_name
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER
from jlog.positions.start import Range
from jlog.reading.backward import BackwardReading
from jlog.reading.journal_records import JournalRecords
from jlog.reading.pace import Pace
from jlog.reading.sources import in_columns
from jlog.reading.subscriber import Subscriber
from jlog.storage.attaching import sync_up_to
from jlog.storage.creation import create_if_missing
from jlog.storage.damage import Damage
from jlog.system.arguments import check_count, check_flag, check_timeout
from jlog.system.filesystem import is_url, journal_path
from jlog.system.threads import refuse_greenlets

if TYPE_CHECKING:
    import pyarrow
    from typing_extensions import CapsuleType

    from jlog._core.read.cursor import Cursor
    from jlog.reading.archived_records import ArchivedRecords
    from jlog.reading.event_loops import Waiter
    from jlog.reading.sources import RecordSource
    from jlog.typed.codec import Codec

# Of one batch of columns. With values of 100 bytes it has 2 MB, which a processor's caches hold. Larger batches take longer to
# fill, and smaller ones cost more calls than they save.
ARROW_RECORDS = 16_384
STREAM_BYTES = 16 << 20


class Reader:
    """Reads the records of the journal at `path` in order. It sees a record in the pre-commit buffer as soon as it is appended.

    With a `name` the reader is a subscriber: its position is durable, and retention keeps every record that it has not
    committed. After a crash reading resumes at the last commit, so that each record is delivered at least once. A name
    belongs to one Reader at a time, among all processes; the kernel frees it when its owner dies. A reader without a name
    holds nothing back and commits nothing.

    start: where a new subscriber, or an anonymous reader, begins: "begin", "end", a sequence, an aware datetime (the first
        record at or after it) or a checkpoint's name.
    create: for a reader with a name. True creates the subscriber, and the journal too if there is none: a subscriber may come
        before the first writer. False raises SubscriberNotFound or JournalNotFound instead.
    durable_only: hands out only synced records.
    codec: decodes records, for example `jlog.typed.json(Order)`: `record.decoded` and `batch.decoded()` are objects. One that
        refers to records of its Reader is never freed, nor are they.
    lock_timeout: seconds that one call waits for other processes and threads, before JournalLocked; None: for ever. Reading and
        a plain commit wait for nobody. The opening waits as long for a name that another Reader has, before SubscriberBusy; but
        with None it does not wait for that.
    archive: True begins in the journal's archive and goes on in the journal, without a gap and without a record twice; a URL
        does the same where the archive is not the one that the journal's retention names. Both are for a reader without a name.
        `jlog.Reader("s3://bucket/prefix")` reads the archive alone, also when the journal is gone. Segments are fetched one at
        a time below TMPDIR, unless the archive is on this machine.

    A Reader is used by one thread at a time; a second one gets JournalError, and so does a signal's handler that interrupts a
    call. But any thread and any handler may ask for `position` and `lag`, may commit, and may close it: during a call the
    position is the one before the call. After a fork the child's reader raises JournalClosed and the parent's goes on. A Reader
    cannot be pickled: open another one where it is needed.

    Ctrl-C, or a signal's handler that raises, passes over no record: where the exception comes out of one of jlog's own lines,
    the position is where it was before the call, and the records come again. The position moves in the last step of the call,
    with no line of Python between it and the caller. An exception that Python raises later, in the caller's own line with the
    call, finds the position moved.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        start: Start = "begin",
        create: bool = True,
        durable_only: bool = False,
        archive: bool | str = False,
        codec: Codec | None = None,
        lock_timeout: float | None = None,
    ) -> None:
        self._lock_timeout = check_lock_timeout(lock_timeout)
        if codec is not None:
            from jlog.typed.codec import Decoder, check_codec  # most programs do not need it

            check_codec(codec, "decode")
        check_flag("create", create)
        check_flag("durable_only", durable_only)
        if not isinstance(archive, (bool, str)):
            raise TypeError(f"archive must be True, False or the URL of an archive, not {archive!r}")
        self._name = name
        self._waiters: set[Waiter] = set()
        self._subscriber: Subscriber | None = None
        self._source: RecordSource
        if archive or is_url(path):
            self._source = _archived_records(path, name, archive, durable_only)
        else:
            if name is not None and create:
                check_name(name, SUBSCRIBER)
                create_if_missing(journal_path(path), self._deadline())
            self._source = journal = JournalRecords(path, durable_only=durable_only)
            if name is not None:
                self._subscriber = Subscriber(journal, check_name(name, SUBSCRIBER), start, create, self._deadline())
        self._cursor = self._source.cursor
        if codec is not None:
            self._cursor.decode_with(Decoder(codec, str(self._source.path)))
        self._backward = BackwardReading(self._source)
        if self._subscriber is None:
            self._source.go_to(start)

    def _deadline(self) -> Deadline:
        """Begins the time that one call may wait for other processes and threads."""
        return NEVER if self._lock_timeout is None else Deadline(self._lock_timeout)

    def __repr__(self) -> str:
        return f"<jlog.Reader {self._source.path!r} {self._name or 'anonymous'}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Reader cannot be pickled; hand over its path and name, and open one where they arrive")

    # --- Reading ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Record]:
        """Iterates over the records up to the end as it is now; iterate again to go on."""
        self._check_lost()
        return self._source.records()

    def values(self) -> Iterator[bytes | None]:
        """Iterates over the values alone, up to the end as it is now: the fastest way to read."""
        self._check_lost()
        return self._source.iterate(ValueIterator)

    def record_batches(
        self,
        *,
        max_records: int = ARROW_RECORDS,
        max_bytes: int = 64 << 20,
        columns: Iterable[str] | None = None,
        end: int | None = None,
    ) -> Iterator[pyarrow.RecordBatch]:
        """Iterates over pyarrow.RecordBatches up to the end as it is now, with the columns of RecordBatch.to_arrow() or those
        of them that `columns` names; a column that is left out costs nothing. A batch has at most `max_records` and, beyond its
        first record, `max_bytes`. With `end` the batches stop before that sequence. Raises ImportError without pyarrow: pip
        install 'pyjlog[arrow]'."""
        pyarrow = import_pyarrow()
        max_records, max_bytes = check_count("max_records", max_records), check_count("max_bytes", max_bytes)
        if end is not None:
            check_count("end", end, 0, what="a sequence")
        self._check_lost()
        return in_columns(self._source, fields_of(columns), end, max_records, max_bytes, convert=pyarrow.record_batch)

    def arrow_batches(
        self,
        fields: Sequence[Field],
        end: int | None = None,
        max_records: int = ARROW_RECORDS,
        max_bytes: int = STREAM_BYTES,
        needle: bytes | None = None,
        stand_in_us: int | None = None,
    ) -> Iterator[ArrowBatch]:
        """Iterates over the records in columns that no library has taken yet, for jlog.scan; as record_batches(). With a
        needle, it may leave out any record whose value does not have these bytes, and some batches may be empty. With
        stand_in_us, records may have this timestamp in place of theirs, the fields are the sequence and the timestamp at
        most, and damage within a block is not met, because headers of blocks alone are read."""
        self._check_lost()
        return in_columns(self._source, fields, end, max_records, max_bytes, needle=needle, stand_in_us=stand_in_us)

    def batches_with(self, needle: bytes, end: int, max_records: int, max_bytes: int) -> Iterator[RecordBatch]:
        """Iterates over the records before `end`, for `jlogtool dump --grep`. It may leave out any record whose value does not
        have the needle, and some batches may be empty."""
        self._check_lost()

        def batches(cursor: Cursor) -> Iterator[RecordBatch]:
            while (batch := cursor.read_with(needle, end, max_records, max_bytes)) is not None:
                yield batch

        return self._source.iterate(batches, end)

    def time_ranges(self, times_us: tuple[int, int]) -> list[Range]:
        """Returns ranges of sequences outside of which no record has a time within these, for jlog.scan."""
        return self._source.time_ranges(times_us)

    def __arrow_c_schema__(self) -> CapsuleType:
        return schema_of(fields_of())

    def __arrow_c_stream__(self, requested_schema: CapsuleType | None = None) -> CapsuleType:
        """Returns the records from the position to the end as it is now, with the columns of RecordBatch.to_arrow(), as a
        stream that every library for Arrow takes: `polars.DataFrame(reader)`, `duckdb.sql("from reader")`,
        `pyarrow.table(reader)`, `pandas.DataFrame.from_arrow(reader)`. Needs no pyarrow.

        The position moves with every batch that the consumer takes, and with nothing else. The stream may outlive every
        variable that holds the Reader; a second stream goes on where the first one stands. A requested schema is followed where
        that loses nothing: some of the columns, binary as string where it is UTF-8, large and view types, headers as a map. A
        record that does not fit it, damage, and every other error reach the consumer as its own error, with the text.
        """
        self._check_lost()
        fields = requested_fields(requested_schema, fields_of())
        end = int(self._cursor.next_sequence)
        return stream_of(fields, self.arrow_batches(fields, end), self)

    def follow(self, timeout: float | None = None, *, pace: float | None = None) -> Iterator[Record]:
        """Iterates over records as they are appended. It wakes at once, and uses no CPU while there is none. It ends after
        `timeout` seconds without a record; None: never.

        pace: hands out records with the intervals of their timestamps, to a few milliseconds: 1.0 as recorded, 2.0 twice as
            fast. The times count from the first record, and a late record comes at once. The timeout does not run while a
            record waits for its time. ValueError unless the pace is above 0.

        After CorruptJournal, PositionLost or Ctrl-C the same iterator goes on. Another thread may end it with close().
        """
        check_timeout("timeout", timeout)
        self._check_lost()
        return self._source.follow(timeout, None if pace is None else Pace(pace))

    def follow_async(self, timeout: float | None = None, *, pace: float | None = None) -> AsyncIterator[Record]:
        """The same as follow(), for `async for` in the running asyncio loop. Hundreds of readers may wait in one loop, or in
        several: one thread of the process waits for all their journals, while there is a reader that waits.

        A reader that has many records to catch up with lets other tasks run every 2 ms. The reading itself is done in the loop,
        a block at a time. A step that is cancelled loses no record, and the iterator goes on. With `archive` a cancelled step
        ends once the segment that it fetches is there. Raises JournalError where gevent or eventlet has replaced the
        threads.
        """
        check_timeout("timeout", timeout)
        refuse_greenlets("follow_async()")
        self._check_lost()
        return self._source.follow_async(timeout, None if pace is None else Pace(pace), self._waiters)

    @handing_out
    def read(self, max_records: int = 10_000, max_bytes: int = 64 << 20, timeout: float | None = 0) -> RecordBatch:
        """Returns at least one record, and at most `max_records` or, beyond the first, `max_bytes`. A batch never exceeds 2
        GiB, which is what a column of Arrow's holds. It is empty only if no record came within `timeout` seconds (None: waits
        for ever)."""
        # Calls of a few records are frequent: a check that has nothing to say costs no call.
        try:
            if max_records < 1 or max_bytes < 1 or max_records is True or max_bytes is True:
                _check_limits(max_records, max_bytes)
            if timeout != 0 or timeout is False:
                check_timeout("timeout", timeout)
            if self._subscriber is not None:
                self._check_lost()
            return self._source.read(max_records, max_bytes, timeout)
        except (TypeError, OverflowError):
            _check_limits(max_records, max_bytes)
            raise

    @handing_out
    def read_backward(self, max_records: int) -> list[Record]:
        """Returns at most so many records before the position, newest first. The position moves back before them.

        Records after damage come first. CorruptJournal is raised once the damage is directly before the position, and
        skip_damage() then goes back before it."""
        return self._backward.read(check_count("max_records", max_records))

    @handing_out
    def skip_damage(self) -> Damage:
        """Goes on after the damage after CorruptJournal, in the same iterator or another, and says what was lost. After
        read_backward() it goes on before the damage."""
        self._check_lost()
        return self._backward.skip_damage() or self._source.skip_damage()

    # --- Position ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def position(self) -> int:
        """Sequence of the next record to read. It moves with every record handed out."""
        self._cursor.check_open()
        subscriber = self._subscriber
        if subscriber is not None and subscriber.lost is not None:
            return subscriber.committed
        return int(self._cursor.position)

    @property
    def committed(self) -> int:
        """Sequence at which reading resumes after a crash."""
        return self._named().committed

    @property
    def lag(self) -> int:
        """Number of records between the position and the end of the journal. With durable_only it counts those too that are
        not synced yet."""
        end = int(self._cursor.journal_end)
        return self._source.gaps.records_between(max(self.position, int(self._cursor.first_sequence)), end)

    @moving
    def seek(self, to: Start) -> None:
        """Moves the position, not what is committed, to "begin", "end", a sequence, or an aware datetime."""
        self._cursor.check_open()
        self._source.go_to(to, checkpoints=False)
        if self._subscriber is not None:
            self._subscriber.lost = None

    # --- Commit and checkpoints -------------------------------------------------------------------------------------

    def commit(self, sequence: int | None = None, *, durable: bool = False) -> None:
        """Commits the position, or `sequence`: all records before it are done with, and reading resumes there after a crash.

        A commit survives the death of any process as soon as this returns. It survives a power loss with `durable=True`, which
        first syncs the journal up to there. Segments that no subscriber needs any more are removed, unless another process is
        at it.
        """
        subscriber = self._named()
        sequence = self.position if sequence is None else check_count("sequence", sequence, 0)
        deadline = self._deadline()
        # A process that only finds the records synced need not become one that writes, which takes longer than all the rest.
        if durable and not subscriber.is_durable(sequence):
            sync_up_to(self._source.path, sequence, deadline)
        subscriber.commit(sequence, deadline, durable=durable)

    def sync(self) -> None:
        """Syncs the journal up to the position, so that every record which was read survives a power loss. Call it before you
        tell the outside how far you have come. It needs to write to the journal; a durable_only reader has no need of it."""
        sync_up_to(self._source.path, self.position, self._deadline())

    def checkpoint(self, name: str) -> None:
        """Creates the checkpoint `name`, or moves it, at the position, durably. Like a subscriber it holds records back from
        retention."""
        check_name(name, CHECKPOINT)
        self._cursor.check_open()
        self._source.put_checkpoint(name, self.position, self._deadline())

    @moving
    def rewind(self, name: str) -> None:
        """Moves position and committed back to the checkpoint `name`, durably."""
        self._named().rewind(name, self._deadline())

    def close(self) -> None:
        """Frees the name, without a commit. A second close does nothing. A thread or a coroutine that waits in this reader gets
        JournalClosed."""
        self._cursor.close()
        self._source.close()
        if self._waiters:
            from jlog.reading.event_loops import wake_all

            wake_all(list(self._waiters))
        if self._subscriber is not None:
            self._subscriber.close()

    def __enter__(self) -> Reader:  # noqa: PYI034
        self._cursor.check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- Checks -----------------------------------------------------------------------------------------------------

    def _named(self) -> Subscriber:
        self._cursor.check_open()
        if self._subscriber is None:
            raise JournalError(f"{self._source.path}: {self._source.no_position}")
        return self._subscriber

    def _check_lost(self) -> None:
        if self._subscriber is not None and self._subscriber.lost is not None:
            raise self._subscriber.lost


def _archived_records(
    path: str | os.PathLike[str], name: str | None, archive: bool | str, durable_only: bool
) -> ArchivedRecords:
    from jlog.reading.archived_records import ArchivedRecords  # most programs do not need it

    if name is not None:
        raise JournalError(
            f"{os.fspath(path)}: an archive has no subscribers; read it without a name, and keep reader.position"
        )
    return ArchivedRecords(path, archive, durable_only=durable_only)


def _check_limits(max_records: int, max_bytes: int) -> None:
    check_count("max_records", max_records)
    check_count("max_bytes", max_bytes)
