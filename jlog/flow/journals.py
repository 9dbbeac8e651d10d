"""A journal as the source and as the sink of a flow. One process at a time may write to a sink."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Any

import portalocker

from jlog.errors import JournalError, JournalLocked, PositionLost
from jlog.flow.ends import Lag, SourcePosition
from jlog.flow.engine import nothing
from jlog.flow.records import RecordLike, columns_of
from jlog.journal import Journal
from jlog.reading.reader import Reader
from jlog.record import RecordBatch
from jlog.system.files import open_directory
from jlog.writer import Writer

STATE_PREFIX = b"jlog.source:"
READ_BYTES = 4 << 20


class JournalSource:
    """Reads the journal at `path` as `subscriber`, and holds that name.

    Without a subscriber it needs no write access, and holds nothing back from retention; with durable_only it then hands out
    only synced records.
    start: where a new subscriber begins.
    skip_missing: goes on behind records that retention has removed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        subscriber: str | None,
        *,
        start: Any = "begin",
        durable_only: bool = True,
        skip_missing: bool = False,
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        self.missing = 0
        self._journal = Journal(path)
        self._durable_only = durable_only and subscriber is None
        self._reader = Reader(path, subscriber, start=start, durable_only=self._durable_only)
        self._subscriber = subscriber
        self._begin = self._reader.position  # where this flow began, maybe in an earlier process
        self._end: int | None = None
        self._skip_missing = skip_missing
        self._on_event = on_event

    @property
    def journal(self) -> Journal:
        return self._journal

    @property
    def position(self) -> int:
        return self._reader.position

    def resume(self, source_positions: SourcePosition, start: Any = None) -> None:
        source_position = source_positions.get(self._journal.uuid)
        if source_position is not None and start is None:
            check_source_position(self._journal, source_position)
            self._begin = int(source_position["begin"])
            self._seek(int(source_position["sequence"]))
        else:
            if start is not None:
                self._begin = self._sequence_of(start)
            elif self._subscriber is not None:
                self._begin = self._reader.committed
            self._seek(self._begin)
        if self._end is None:
            self._end = self._end_now()

    def _end_now(self) -> int:
        with Reader(self._journal.path, start="end", durable_only=self._durable_only) as reader:
            return reader.position

    def _sequence_of(self, start: Any) -> int:
        if isinstance(start, int):
            return start
        with Reader(self._journal.path, start=start) as reader:
            return reader.position

    def _seek(self, sequence: int) -> None:
        try:
            self._reader.seek(sequence)
        except PositionLost as lost:
            self._pass_over(sequence, lost)

    def _pass_over(self, sequence: int, lost: PositionLost) -> None:
        path, first = self._journal.path, lost.first_sequence
        what = f"{path}: retention has removed records {sequence} to {first - 1} before they were moved"
        if not self._skip_missing:
            raise PositionLost(
                f"{what}; --skip-missing goes on at {first}, and a subscriber keeps what it has not read",
                first,
            ) from None
        self.missing += first - sequence
        self._on_event(f"{what}; going on at {first}")
        self._reader.seek(first)

    def read(self, max_records: int, timeout: float) -> RecordBatch:
        while True:
            try:
                return self._reader.read(max_records, READ_BYTES, timeout)
            except PositionLost as lost:
                self._pass_over(self._reader.position, lost)

    def source_positions(self) -> SourcePosition:
        epoch = self._journal.epochs[-1][0]
        return {self._journal.uuid: {"epoch": epoch, "sequence": self._reader.position, "begin": self._begin}}

    def secure(self) -> None:
        if self._subscriber is not None:
            self._reader.sync()

    def committed(self) -> None:
        if self._subscriber is not None:
            self._reader.commit()

    def at_end(self) -> bool:
        return self._end is not None and self._reader.position >= self._end

    def lag(self, source_positions: SourcePosition) -> Lag:
        source_position = source_positions.get(self._journal.uuid)
        return journal_lag(self._journal, self._begin if source_position is None else int(source_position["sequence"]))

    def describe(self, record: Any) -> str:
        return f"{self._journal.path}: record {record.sequence}"

    def close(self) -> None:
        self._reader.close()


def check_source_position(journal: Journal, source_position: dict[str, Any]) -> None:
    """Raises JournalError where the journal does not contain the records that the sink has of it: it is another journal, an
    older copy, or it has lost its tail."""
    epoch, sequence = source_position["epoch"], int(source_position["sequence"])
    epochs = journal.epochs
    known = [number for number, _ in epochs]
    parts = [first for _, first in epochs[known.index(epoch) + 1 :][:1]] if epoch in known else [0]
    parts += [first for first, following in journal.gaps() if first < sequence < following]
    kept = min([*parts, journal.next_sequence])
    if sequence > kept:
        raise JournalError(
            f"{journal.path}: records up to {sequence - 1} were moved from here, and the journal has only those up to "
            f"{kept - 1} of them: it lost its tail, or was replaced by an older copy. Restore it; or accept that what was "
            f"moved stays, and go on with what follows: --resume-at {kept}"
        )


def journal_lag(journal: Journal, position: int) -> Lag:
    """Returns the distance of `position` from the end. The bytes are estimated: a part counts of the segment in which it
    lies."""
    end = journal.next_sequence
    records = end - position
    for first, following in journal.gaps():
        records -= max(0, min(following, end) - max(first, position))
    if records <= 0:
        return Lag(0, 0, 0.0)
    size = 0.0
    for segment in journal.segments():
        behind = segment.first_sequence + segment.records - max(position, segment.first_sequence)
        if segment.records and behind > 0:
            size += segment.size_bytes * behind / segment.records
    return Lag(records, int(size), _age(journal, position))


def _age(journal: Journal, position: int) -> float | None:
    try:
        with Reader(journal.path, start=max(position, journal.first_sequence)) as reader:
            for record in reader.read(1):
                return max(0.0, time.time() - record.timestamp_us / 1e6)
    except PositionLost:
        pass  # removed in the meantime
    return None


class JournalSink:
    """Appends to the journal at `path`, which is made if there is none, with the options of jlog.Writer. The source position
    goes into its state, in one atomic append with the records. Only one process at a time is the sink of a journal; others may
    append to it."""

    transaction_records = 20_000
    overhead_bytes = 0

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.left_out = 0
        self._writer = Writer(path, **options)
        self._path = self._writer.path
        self._body = self._writer.body()
        self._source_positions: SourcePosition = {}
        self._prepared: SourcePosition = {}
        try:
            self._lock = _hold(self._path)
        except BaseException:
            self._writer.close()
            raise

    @property
    def path(self) -> str:
        return str(self._path)

    def open(self, *, forget: bool = False) -> SourcePosition:
        self.drop()
        self._source_positions = {} if forget else read_source_positions(self._path)
        return dict(self._source_positions)

    def write(self, batch: Iterable[RecordLike]) -> int:
        # Records are encoded at once: while they are in the processor's cache, and before the garbage collector has gone
        # through them.
        found = columns_of(batch)
        self._body.add_columns(found.values, found.keys, found.headers, found.timestamps_us)
        return found.value_bytes

    def leave_out(self, record: RecordLike, where: str, reason: str) -> None:  # noqa: ARG002
        self.left_out += 1

    def prepare(self, source_positions: SourcePosition) -> None:
        self._prepared = source_positions  # goes with the records, in one append

    def commit(self) -> None:
        changed = {
            name: source_position
            for name, source_position in self._prepared.items()
            if self._source_positions.get(name) != source_position
        }
        state = {
            STATE_PREFIX + name.encode(): json.dumps(source_position).encode() for name, source_position in changed.items()
        }
        try:
            self._writer.extend_body(self._body, state)
            self._source_positions |= changed
        finally:
            self.drop()

    def abort(self) -> bool:
        self.drop()
        return True

    def drop(self) -> None:
        self._body = self._writer.body()
        self.left_out = 0

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None


def read_source_positions(path: str | os.PathLike[str]) -> SourcePosition:
    """Returns the source positions that this journal has stored."""
    return {
        key[len(STATE_PREFIX) :].decode(): json.loads(value)
        for key, value in Journal(path).state().items()
        if key.startswith(STATE_PREFIX)
    }


def _hold(path: str) -> int | None:
    """Locks the directory itself, until it is closed or the process dies. Raises JournalLocked where another process has the
    lock."""
    fd = open_directory(os.fspath(path))
    # A forked child shares the lock. It cannot release it for its parent, since nothing unlocks it: it is only closed. A child
    # that outlives its parent keeps other processes out for longer; that refuses a start, but never lets a second sink in.
    try:
        portalocker.lock(fd, portalocker.LOCK_EX | portalocker.LOCK_NB)
    except portalocker.LockException:
        os.close(fd)
        raise JournalLocked(
            f"{path}: another capture or transform writes to this journal; one may at a time: stop it, or capture several "
            f"topics in one process"
        ) from None
    return fd
