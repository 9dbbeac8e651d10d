"""What a flow needs of the place that records come from, and of the one they go to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from jlog.flow.records import BatchLike, RecordLike

# Where a source stands, part by part: {"orders/0": {"offset": 17, ...}}. A sink keeps it beside the records, and both or
# neither are there.
Marks = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Lag:
    """How far behind its end a source is read. seconds: the age of the oldest record that is not; None: not known."""

    records: int
    bytes: int | None = None
    seconds: float | None = None


class Source(Protocol):
    """Where records come from, in an order that is always the same."""

    missing: int  # records that retention had removed before they were read, and that were passed over

    def resume(self, marks: Marks, start: Any = None) -> None:
        """To where these marks say, or to `start` whatever they say. JournalError where what follows is not there."""

    def read(self, max_records: int, timeout: float) -> BatchLike:
        """Empty only if nothing came within `timeout` seconds."""

    def marks(self) -> Marks:
        """Where it stands, behind what was read."""

    def settle(self) -> None:
        """Makes sure that the marks will stand: what they count as moved survives a power loss, and is still the same."""

    def committed(self) -> None:
        """The sink has the marks: what is before them is not needed any more."""

    def at_end(self) -> bool:
        """Whether all is read that was there when it was first opened."""

    def lag(self, marks: Marks) -> Lag:
        """Of these marks; of where it stands without them. May be asked from another thread."""

    def describe(self, record: Any) -> str:
        """Where this record stands, for an error."""

    def close(self) -> None: ...


class Sink(Protocol):
    """Where records go, each transaction of them with the marks as a whole or not at all."""

    transaction_records: int  # as many as it takes well at once
    left_out: int  # records of the open transaction
    beside_bytes: int  # of keys and headers in the open transaction, where they count towards its size

    def open(self, *, forget: bool = False) -> Marks:
        """Makes sure that nobody else writes for this source any more, and returns the marks of the last transaction.
        `forget`: they do not count any more; none are returned."""

    def write(self, batch: Iterable[RecordLike]) -> int:
        """Into the open transaction; returns the bytes of their values. Refused if it will not have one of them, and was
        not told to leave it out."""

    def leave_out(self, record: RecordLike, where: str, reason: str) -> None:
        """What becomes of a record that it will not have, in the open transaction."""

    def prepare(self, marks: Marks) -> None:
        """Puts the marks into the open transaction. Only commit() follows."""

    def commit(self) -> None:
        """All of it is there when this returns. Retry where that is not known."""

    def abort(self) -> bool:
        """Nothing of the open transaction is there. False where the sink has to be opened again; Retry where it is not
        known."""

    def drop(self) -> None:
        """Forgets the open transaction, whatever becomes of it: open() will tell."""

    def close(self) -> None: ...
