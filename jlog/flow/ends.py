"""The protocols of the two ends of a flow, its source and its sink, and the errors that they raise beside jlog.errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from jlog.errors import JournalError, JournalFull
from jlog.flow.records import BatchLike, RecordLike

# The source position, part by part: {"orders/0": {"offset": 17, ...}}. A sink stores it together with the records: both are
# there, or neither.
SourcePosition = dict[str, dict[str, Any]]
# The same for the parts that change. A part that is None is removed.
SourcePositionChange = Mapping[str, dict[str, Any] | None]

# The place of a record: the part of the source position; what tells this part from an earlier one of the same name (the id of a
# topic, the epoch of a record of a journal); the position in the part
Place = tuple[str, str, int]

# What a sink calls for a record that it refuses: with its index in the batch, the record, and the reason. The result says
# whether to go on after it.
Refuse = Callable[[int, RecordLike, str], bool]


def changed_by(source_positions: SourcePosition, change: SourcePositionChange) -> SourcePosition:
    """Returns the source position with this change."""
    merged = {**source_positions, **change}
    return {name: source_position for name, source_position in merged.items() if source_position is not None}


def difference(stored: SourcePosition, change: SourcePositionChange) -> dict[str, dict[str, Any] | None]:
    """Returns the parts of the change that differ from the stored source position."""
    return {name: source_position for name, source_position in change.items() if stored.get(name) != source_position}


@dataclass(frozen=True)
class Lag:
    """The distance of a source position from the end of the source. seconds: the age of the oldest record that is not read yet;
    None: not known. parts: the records of each partition, as TOPIC/PARTITION; nothing for a journal."""

    records: int
    bytes: int | None = None
    seconds: float | None = None
    parts: Mapping[str, int] = field(default_factory=dict, compare=False)


class Source(Protocol):
    """The end that records come from, in an order that is always the same."""

    identity: str  # names the source among those of one sink
    problem: str  # why a part of it cannot be read, while the rest is; empty: all of it is

    @property
    def missing(self) -> int:
        """The number of records that retention removed before they were read, and that were passed over."""

    def resume(self, source_positions: SourcePosition) -> None:
        """Goes to the source position. Raises JournalError where the next record is missing."""

    def positions_at(self, position: Any, part: str | None, stored: SourcePosition) -> SourcePositionChange:
        """Returns what becomes of the stored source position if this part of the source, or all of it, goes on at `position`.
        Raises ValueError where there is no such part or position."""

    def read(self, max_records: int, timeout: float) -> BatchLike:
        """Returns records; an empty batch only if none came within `timeout` seconds."""

    def give_back(self, batch: Any, index: int) -> None:
        """Takes the records of the last batch from this index on back: source_positions() is before them. resume() comes
        next, if anything does."""

    def source_positions(self) -> SourcePositionChange:
        """Returns the source position after the records that were read, as far as it differs from the one to which it went."""

    def secure(self) -> None:
        """Makes sure that the source position will hold: the records before it survive a power loss, and are still the same."""

    def committed(self) -> None:
        """Is called when the sink has stored the source position: the records before it are not needed any more."""

    def at_end(self) -> bool:
        """Says whether all records are read that were there when the source was first opened."""

    def lag(self, source_positions: SourcePosition) -> Lag:
        """Returns the lag of this source position; without one, that of the current position. May be called in another
        thread."""

    def describe(self, record: Any) -> str:
        """Names the place of this record, for an error."""

    def place(self, record: Any) -> Place:
        """Returns the place of this record in the source."""

    def is_ahead(self, place: Place, committed: SourcePosition) -> bool:
        """Returns whether the flow comes to the record at this place, once more or for the first time, from `committed` on."""

    def close(self) -> None: ...

    def discard(self) -> None:
        """Closes it, and removes the subscriber that it has created, since the flow cannot begin."""


class Sink(Protocol):
    """The end that records go to: each transaction stores its records and the source position as a whole, or nothing."""

    where: str  # the path or the URL
    problem: str  # why a part of it takes no records; empty: all of it does
    transaction_records: int  # number of records that suits a transaction
    left_out: int  # records that the open transaction leaves out
    overhead_bytes: int  # bytes of keys and headers in the open transaction, where they count towards its size

    def open(self, *, forget: bool = False) -> SourcePosition:
        """Makes sure that no other process writes for this source any more, and returns the source position of the last
        transaction. forget: the whole position is set anew, so that it need not fit this sink, which may be another one of the
        same name."""

    def look(self) -> None:
        """Looks whether it could take records, while none come. Raises Retry, or an error that stays. Waits for nothing."""

    def write(self, batch: Iterable[RecordLike], refuse: Refuse) -> int:
        """Writes into the open transaction, and returns the bytes of the values. Calls `refuse` for each record that it
        refuses, and goes on after it, or writes none of those after it. Raises Refused where a record was refused that it took
        before."""

    def leave_out(self) -> None:
        """Counts a refused record, in the open transaction."""

    def prepare(self, source_positions: SourcePositionChange) -> None:
        """Puts the source position into the open transaction. Only commit() follows."""

    def commit(self) -> None:
        """Commits the transaction. Raises Retry where it is not known whether that was done."""

    def abort(self) -> bool:
        """Drops the records of the open transaction. Returns False where the sink has to be opened again. Raises Retry where it
        is not known whether they are dropped."""

    def drop(self) -> None:
        """Forgets the open transaction, whatever becomes of it: open() finds out."""

    def close(self) -> None: ...


# --- Errors ---------------------------------------------------------------------------------------------------------


class Retry(JournalError):
    """An error that may pass. It is not known whether the open transaction was committed: the sink says so when it is opened
    again."""


class Undecided(Retry):
    """The codec cannot reach the service that it needs to decode a record."""


class Unsettled(Retry):
    """The end changes at this moment, or not all of its parts know of a change yet. A flow tries again also where it has not
    begun, unlike with an end that can't be reached."""


class NoRoom(JournalFull, Retry):
    """A journal is full for now: retention, or a reader that commits, makes room."""


class TookTooLong(Retry):
    """The sink has not taken the transaction within the time that it has for one. A smaller one may be taken."""


class Refused(JournalError):
    """The sink refuses one of the records of the open transaction, which has to be given up. `record` is anything that the
    source's describe() takes for that record; None where it is not known which one it is."""

    def __init__(self, message: str, record: object = None) -> None:
        super().__init__(message)
        self.record = record


class RecordRefused(JournalError):
    """The sink, or the function before it, refuses this record. All records before it have been moved; it and the following
    ones have not."""

    def __init__(self, message: str, sequence: int | None = None) -> None:
        super().__init__(message)
        self.sequence = sequence
