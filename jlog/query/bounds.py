"""The ranges of sequence and timestamp in which all records of a condition lie, and bytes that each of their values has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jlog.positions.names import timestamp_us_of

LEAST, MOST = -(1 << 63), (1 << 63) - 1
# The times that a datetime of every zone can be: years 1 to 9999, but for a day at each end.
TIMES_US = range(-62_135_510_400_000_000, 253_402_214_400_000_000)
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True)
class Bounds:
    """Lowest and highest sequence, earliest and latest time; both ends belong to it. `needle`: bytes that each record's value
    has. A condition that is not understood has the bounds of everything: then reading leaves out nothing that it may want."""

    sequences: tuple[int, int] = (LEAST, MOST)
    times_us: tuple[int, int] = (LEAST, MOST)
    needle: bytes = b""

    def both(self, other: Bounds) -> Bounds:
        """Returns the bounds of two conditions that hold together."""
        needle = max(self.needle, other.needle, key=len)
        return Bounds(_both(self.sequences, other.sequences), _both(self.times_us, other.times_us), needle)

    def either(self, other: Bounds) -> Bounds:
        """Returns the bounds of two conditions of which one holds."""
        if self.is_empty or other.is_empty:
            return other if self.is_empty else self
        needle = self.needle if self.needle == other.needle else b""
        return Bounds(_either(self.sequences, other.sequences), _either(self.times_us, other.times_us), needle)

    @property
    def is_empty(self) -> bool:
        """Says whether no record can lie within."""
        return self.sequences[0] > self.sequences[1] or self.times_us[0] > self.times_us[1]


EVERYTHING = Bounds()


def compared(column: str, operator: str, value: Any) -> Bounds:
    """Returns the bounds of `column operator value`, where value is an int or an aware datetime."""
    if column == "sequence" and isinstance(value, int) and not isinstance(value, bool):
        return Bounds(sequences=_range(operator, value))
    if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return Bounds(times_us=_range(operator, timestamp_us_of(value)))
    return EVERYTHING


def containing(column: str, text: str | bytes) -> Bounds:
    """Returns the bounds of a column that has this within it."""
    needle = text.encode() if isinstance(text, str) else text
    return Bounds(needle=needle) if column == "value" else EVERYTHING


def one_of(column: str, values: list[Any]) -> Bounds:
    """Returns the bounds of `column IN (values)`."""
    if not values:
        return EVERYTHING
    found = compared(column, "=", values[0])
    for value in values[1:]:
        found = found.either(compared(column, "=", value))
    return found


def _range(operator: str, value: int) -> tuple[int, int]:
    return {
        "<": (LEAST, value - 1),
        "<=": (LEAST, value),
        ">": (value + 1, MOST),
        ">=": (value, MOST),
        "=": (value, value),
    }.get(operator, (LEAST, MOST))


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _either(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0], other[0]), max(one[1], other[1])
