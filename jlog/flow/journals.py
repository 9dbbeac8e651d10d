"""A journal as the source and as the sink of a flow. One process at a time may write to a sink."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from jlog.errors import JournalError, JournalFull, PositionLost, RecordTooLarge, SubscriberBusy, SubscriberNotFound
from jlog.flow import stored_positions
from jlog.flow.ends import Lag, NoRoom, Place, Refuse, Refused, SourcePosition, SourcePositionChange, changed_by, difference
from jlog.flow.options import nothing
from jlog.flow.records import RecordLike, columns_of
from jlog.journal import Journal
from jlog.reading.reader import Reader
from jlog.record import VALUE_BYTES_MAX, RecordBatch
from jlog.storage.attaching import hold_as_sink
from jlog.storage.epochs import ForeignPosition
from jlog.storage.gaps import count_assigned
from jlog.storage.meta import read_meta
from jlog.writer import EncodedRecords, Writer, extend_body

PROMOTED = "promoted"  # part of the source position that says which standby has replaced the journal
ABOUT_EVERY = 1.0  # seconds between two looks at the positions of a journal that has a standby
READ_BYTES = 4 << 20


class JournalSource:
    """Reads the journal at `path` as `subscriber`, and holds that name.

    Without a subscriber it needs no write access, and holds nothing back from retention; with durable_only it then hands out
    only synced records.
    start: where a new subscriber begins.
    skip_missing: goes on after records that retention has removed.
    for_standby: the source position has a second part, which says what a standby needs to know of the journal.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        subscriber: str | None,
        *,
        start: Any = "begin",
        durable_only: bool = True,
        skip_missing: bool = False,
        for_standby: bool = False,
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        self.missing: int = 0
        self.problem = ""
        self._for_standby = for_standby
        self._about: dict[str, Any] = {}
        self._about_at = 0.0
        self.journal: Journal = Journal(path)
        self.identity: str = self.journal.uuid
        self._meta = read_meta(self.journal.path)
        self._epochs_known_to = 0
        self._durable_only = durable_only and subscriber is None
        self._tells_begin = subscriber is not None and subscriber in self.journal.subscribers()
        self._creates = subscriber is not None and not self._tells_begin
        self._reader = Reader(path, subscriber, start=start, durable_only=self._durable_only)
        self._subscriber = subscriber
        self._begin = self._reader.position  # where this flow began, maybe in an earlier process
        self._end: int | None = None
        self._skip_missing = skip_missing
        self._on_event = on_event

    def resume(self, source_positions: SourcePosition) -> None:
        if PROMOTED in source_positions:
            raise self._replaced(source_positions[PROMOTED])
        source_position = source_positions.get(self.journal.uuid)
        if source_position is not None:
            check_source_position(self.journal, source_position)
            self._begin = int(source_position["begin"])
            self._seek(int(source_position["sequence"]))
        else:
            if self._subscriber is not None:
                self._begin = self._reader.committed
            self._tell_begin()
            self._seek(self._begin)
        if self._end is None:
            self._end = self._end_now()

    def _tell_begin(self) -> None:
        """Reports where the flow begins, if the sink may lack records before that place: it may have lost its position."""
        if self._tells_begin and self._begin > self.journal.first_sequence:
            path = self.journal.path
            self._on_event(
                f"{path}: the sink stores no position of this journal; going on with record {self._begin}, where subscriber "
                f"{self._subscriber} is (`jlogtool mirror positions set {path} SINK begin` goes back to the first one left)"
            )
        self._tells_begin = False

    def _replaced(self, promoted: dict[str, Any]) -> JournalError:
        """Returns the error for a journal whose standby has taken over."""
        sequence = int(promoted["sequence"])
        return JournalError(
            f"{self.journal.path}: its standby {promoted['journal']} on {promoted['host']} has taken over at sequence "
            f"{sequence}; {max(0, self.journal.next_sequence - sequence)} records from there on are in this journal alone "
            f"(`jlogtool dump --from {sequence}` shows them). Move it away, and make a standby: `jlogtool mirror standby`"
        )

    def positions_at(self, position: Any, part: str | None, stored: SourcePosition) -> SourcePosition:
        if PROMOTED in stored:
            raise self._replaced(stored[PROMOTED])
        if part is not None:
            raise ValueError(
                f"{self.journal.path} is a journal: a position in it is a sequence, without a topic or a partition"
            )
        known = stored.get(self.journal.uuid)
        if (
            known is not None
            and about_part(self.journal.uuid) in stored
            and _kept(self.journal, known) < int(known["sequence"])
        ):
            raise JournalError(
                f"{self.journal.path}: the topic has records that this journal has lost, and its standbys have them under "
                "numbers that are given out again: mirror the journal to a new topic, and make new standbys of that one"
            )
        self._begin = self._sequence_of(position)
        self._reader.seek(self._begin)
        return self.source_positions()

    def _end_now(self) -> int:
        with Reader(self.journal.path, start="end", durable_only=self._durable_only) as reader:
            return reader.position

    def _sequence_of(self, position: Any) -> int:
        first, end = self.journal.first_sequence, self.journal.next_sequence
        if isinstance(position, int):
            if not first <= position <= end:
                raise ValueError(f"{self.journal.path}: a position must be from {first} to {end}, not {position}")
            return position
        with Reader(self.journal.path, start=position) as reader:
            return reader.position

    def _seek(self, sequence: int) -> None:
        try:
            self._reader.seek(sequence)
        except PositionLost as lost:
            self._pass_over(sequence, lost)

    def _pass_over(self, sequence: int, lost: PositionLost) -> None:
        path, first = self.journal.path, lost.first_sequence
        what = f"{path}: retention has removed records {sequence} to {first - 1} before they were moved"
        if not self._skip_missing:
            raise PositionLost(
                f"{what}; --skip-missing goes on at {first}, and a subscriber keeps what it has not read", first
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

    def give_back(self, batch: Any, index: int) -> None:
        self._reader.seek(batch[index].sequence)

    def source_positions(self) -> SourcePosition:
        position = ForeignPosition.of(read_meta(self.journal.path), self._reader.position)
        found: SourcePosition = {position.uuid: {"epoch": position.epoch, "sequence": position.sequence, "begin": self._begin}}
        if self._for_standby:
            found[about_part(self.journal.uuid)] = self._about_journal()
        return found

    def _about_journal(self) -> dict[str, Any]:
        """Returns the end, the options and the positions of the journal, as they were at most a second ago."""
        if time.monotonic() > self._about_at + ABOUT_EVERY:
            journal = self.journal
            options = read_meta(journal.path).options
            subscribers = {name: at.sequence for name, at in journal.subscribers().items() if name != self._subscriber}
            checkpoints = {name: at.sequence for name, at in journal.checkpoints().items()}
            self._about = {
                "end": journal.next_sequence,
                "subscribers": subscribers,
                "checkpoints": checkpoints,
                "options": {name: value for name, value in options.items() if name != "precommit"},
            }
            self._about_at = time.monotonic()
        return self._about

    def secure(self) -> None:
        if self._subscriber is not None:
            self._reader.sync()

    def committed(self) -> None:
        if self._subscriber is not None:
            self._reader.commit()

    def at_end(self) -> bool:
        return self._end is not None and self._reader.position >= self._end

    def lag(self, source_positions: SourcePosition) -> Lag:
        source_position = source_positions.get(self.journal.uuid)
        return journal_lag(self.journal, self._begin if source_position is None else int(source_position["sequence"]))

    def describe(self, record: Any) -> str:
        return f"{self.journal.path}: record {record.sequence}"

    def place(self, record: Any) -> Place:
        return self._place(record.sequence)

    def _place(self, sequence: int) -> Place:
        """Returns the place of a record. It does not name the first epoch, since places of earlier versions name no epoch."""
        if sequence >= self._epochs_known_to:  # the epochs of records that were read do not change
            self._meta, self._epochs_known_to = read_meta(self.journal.path), self._reader.position
        position = ForeignPosition.of(self._meta, sequence + 1)
        of = "" if position.epoch == self._meta.epochs[0][0] else f"{position.epoch:016x}"
        return position.uuid, of, sequence

    def is_ahead(self, place: Place, committed: SourcePosition) -> bool:
        part, _, sequence = place
        return place == self._place(sequence) and (part not in committed or sequence >= int(committed[part]["sequence"]))

    def close(self) -> None:
        self._reader.close()

    def discard(self) -> None:
        self.close()
        if self._creates:
            with suppress(SubscriberNotFound, SubscriberBusy):  # another flow has begun meanwhile
                self.journal.remove_subscriber(str(self._subscriber))


def about_part(uuid: str) -> str:
    """Names the part of a source position that says what a standby needs to know of the journal."""
    return f"{uuid}.about"


def check_source_position(journal: Journal, source_position: dict[str, Any]) -> None:
    """Raises JournalError where the journal does not contain the records that the sink has of it: it is another journal, an
    older copy, or it has lost its tail."""
    sequence, kept = int(source_position["sequence"]), _kept(journal, source_position)
    if sequence > kept:
        raise JournalError(
            f"{journal.path}: records up to {sequence - 1} were moved from here, but the journal ends with {kept - 1}: it "
            "lost its tail, or was replaced by an older copy. Restore it; or keep what was moved, and go on with new "
            f"records: `jlogtool mirror positions set {journal.path} SINK {kept}`"
        )


def _kept(journal: Journal, source_position: dict[str, Any]) -> int:
    """Returns the end of the records that the sink has of the journal and the journal still has."""
    position = ForeignPosition(journal.uuid, source_position["epoch"], int(source_position["sequence"]))
    lost = [first for first, following in journal.gaps() if first < position.sequence < following]
    return min([position.shared_with(read_meta(journal.path)).end, *lost, journal.next_sequence])


def journal_lag(journal: Journal, position: int) -> Lag:
    """Returns the distance of `position` from the end. The bytes are estimated: a part counts of the segment in which it
    lies."""
    records = count_assigned(journal.gaps(), position, journal.next_sequence)
    if records == 0:
        return Lag(0, 0, 0.0)
    size = 0.0
    for segment in journal.segments():
        left = segment.first_sequence + segment.records - max(position, segment.first_sequence)
        if segment.records and left > 0:
            size += segment.size_bytes * left / segment.records
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
    """Appends to the journal at `path`, which is created if there is none, with the options of jlog.Writer. The source position
    goes into its state, in one atomic append with the records. Only one process at a time is the sink of a journal; others may
    append to it."""

    transaction_records = 20_000
    overhead_bytes = 0

    def __init__(self, path: str | os.PathLike[str], **options: Any) -> None:
        self.left_out: int = 0
        self.problem = ""
        self._writer = Writer(path, **options)
        self.where: str = str(self._writer.path)
        self._body = EncodedRecords()
        self._source_positions: SourcePosition = {}
        self._state: dict[bytes, bytes] = {}
        self._prepared: SourcePositionChange = {}
        try:
            self._lock = hold_as_sink(self.where)
        except BaseException:
            self._writer.close()
            raise

    def open(self, *, forget: bool = False) -> SourcePosition:  # noqa: ARG002
        self.drop()
        self._state = Journal(self.where).state()
        self._source_positions = stored_positions.decode(self._state)
        return dict(self._source_positions)

    def write(self, batch: Iterable[RecordLike], refuse: Refuse) -> int:
        # Records are encoded at once: while they are in the processor's cache, and before the garbage collector has gone
        # through them.
        add_to = getattr(batch, "add_to", None)
        if add_to is not None:
            return int(add_to(self._body, refuse))
        try:
            found = columns_of(batch)
            if found.value_bytes <= VALUE_BYTES_MAX:
                self._body.add_columns(*found)
                return found.value_bytes
        except (Refused, ValueError):
            pass  # of one of the records: nothing of the batch is in the body
        return self._write_each(batch, refuse)

    def _write_each(self, batch: Iterable[RecordLike], refuse: Refuse) -> int:
        """Writes the records one by one, without those that no journal can store."""
        value_bytes = 0
        for index, record in enumerate(batch):
            reason, size = "", len(record.value or b"")
            if size > VALUE_BYTES_MAX:
                reason = f"{size} bytes are more than the 1 GiB that a value may have"
            else:
                try:
                    self._body.add_columns([record.value], [record.key], [record.headers], [record.timestamp_us])
                    value_bytes += size
                except (Refused, ValueError) as error:
                    reason = str(error)
            if reason and not refuse(index, record, reason):
                break
        return value_bytes

    def look(self) -> None:
        """Is always ready: what it cannot write it reports when that is written."""

    def leave_out(self) -> None:
        self.left_out += 1

    def prepare(self, source_positions: SourcePositionChange) -> None:
        self._prepared = source_positions  # goes with the records, in one append

    def commit(self) -> None:
        changed = difference(self._source_positions, self._prepared)
        source_positions = changed_by(self._source_positions, changed)
        state = stored_positions.encode(source_positions, changed, self._state)
        try:
            extend_body(self._writer, self._body, state)
            self._source_positions = source_positions
            for key, row in state.items():
                if row is None:
                    self._state.pop(key, None)
        except RecordTooLarge as error:
            raise JournalError(
                f"{self.where}: there is no room for the positions of {len(source_positions)} parts of the source ({error}): "
                "move fewer topics into one journal"
            ) from None
        except JournalFull as error:
            raise NoRoom(str(error)) from None
        finally:
            self.drop()

    def abort(self) -> bool:
        self.drop()
        return True

    def drop(self) -> None:
        self._body = EncodedRecords()
        self.left_out = 0

    def close(self) -> None:
        try:
            self._writer.close()
        finally:
            self._lock.close()


def read_source_positions(path: str | os.PathLike[str]) -> SourcePosition:
    """Returns the source positions that this journal has stored."""
    return stored_positions.decode(Journal(path).state())
