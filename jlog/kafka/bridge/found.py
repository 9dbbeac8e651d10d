"""A position on the other side, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

Offsets = Mapping[int, int]  # of the next message of each partition


@dataclass(frozen=True)
class Found:
    """A pair of positions: a sequence in the journal, and an offset in each partition of the topic.

    exact: the record at the position was found itself, and not by its time.
    again: so many records, at most, are read a second time.
    missing: so many records, at most, are on the side that the reader leaves, and no longer on the other one.
    """

    sequence: int
    offsets: Offsets
    exact: bool = True
    again: int = 0
    missing: int = 0


@dataclass
class Sum:
    """Adds up what is found for each partition."""

    exact: bool = True
    again: int = 0
    missing: int = 0
    positions: dict[int, int] = field(default_factory=dict)


class Bridge(Protocol):
    """A journal and a topic between which records are moved."""

    def offsets_at(self, sequence: int) -> Found:
        """Finds the offsets at which a reader of the topic goes on that has read the records before this sequence."""

    def sequence_at(self, offsets: Offsets) -> Found:
        """Finds the sequence at which a reader of the journal goes on that has read the messages before these offsets."""

    def close(self) -> None: ...
