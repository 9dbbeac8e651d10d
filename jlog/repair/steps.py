"""The plan of a repair: the journal as it is to be, and the steps that lead there. Nothing in it changes."""

from __future__ import annotations

from dataclasses import dataclass

from jlog.repair.findings import BlockPlace, BlockRun, SegmentHead
from jlog.storage.damage import Damage
from jlog.storage.meta import Meta


@dataclass(frozen=True)
class NewBlock:
    """Records of a block that is to be written. `base_time_us`: None where they are state."""

    raw: bytes
    base_time_us: int | None = None
    is_state_block: bool = False  # the STATE block with which every segment begins


@dataclass(frozen=True)
class NewSegment:
    """A segment as it is to be."""

    first_sequence: int
    end: BlockPlace
    epoch: int
    previous: BlockPlace | None
    head: SegmentHead | None  # of the file that has its blocks
    source: int | None  # that file
    parts: tuple[tuple[BlockRun | NewBlock, int], ...]  # what follows the header, and the sequence with which each begins
    records: int
    doubtful: bool  # the bytes that are read of it may not be on the disk, and never come there
    stands: bool  # its file is as it is to be, but for what may stand beyond its end


@dataclass(frozen=True)
class RepairStep:
    """One step of a repair. `file` is a name in the journal's directory; `text` says what is done, None where no user needs to
    know."""

    file: str
    text: str | None


class MakeDirectory(RepairStep):
    pass


@dataclass(frozen=True)
class WriteMeta(RepairStep):
    meta: Meta
    keep_old: bool  # the present file goes to quarantine


@dataclass(frozen=True)
class KeepBytes(RepairStep):
    """Copies bytes to quarantine."""

    start: int
    end: int | None  # None: the end of the file


@dataclass(frozen=True)
class WriteSegment(RepairStep):
    segment: NewSegment
    clock_us: int  # no block of the journal was written later


@dataclass(frozen=True)
class WriteAgain(RepairStep):
    """Writes bytes to their own place once more, and syncs them."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WriteBounds(RepairStep):
    first_sequence: int
    end: BlockPlace
    is_new: bool


class InvalidatePage(RepairStep):
    pass


@dataclass(frozen=True)
class CutSegment(RepairStep):
    end: int


class TakeAway(RepairStep):
    """Moves a whole file to quarantine."""


class RemoveFile(RepairStep):
    pass


class RemoveUnfinished(RepairStep):
    """Removes a file unless a step before has used its name."""


@dataclass(frozen=True)
class MakeIndex(RepairStep):
    segment: int
    end: int


@dataclass(frozen=True)
class RestoreCopy(RepairStep):
    """Restores the copy at `offset` of a dual-slot record from the other one."""

    offset: int
    is_bounds: bool


@dataclass(frozen=True)
class SetPosition(RepairStep):
    kind: str
    name: str
    sequence: int


@dataclass(frozen=True)
class RepairPlan:
    """`segments`: the journal's segments as they are to be, oldest first. Where `sound`, they are those that are there;
    otherwise the last one is empty, and writing goes on there."""

    segments: tuple[NewSegment, ...]
    sound: bool
    steps: tuple[RepairStep, ...]
    damage: tuple[Damage, ...]
    lost: tuple[tuple[int, int], ...]

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.segments)

    @property
    def blocks(self) -> int:
        parts = [part for segment in self.segments for part, _ in segment.parts]
        return sum(part.blocks if isinstance(part, BlockRun) else 1 for part in parts)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of sequences that no record has."""
        ends = [(segment.previous or (0, 0, 0))[2] for segment in self.segments]
        firsts = [segment.first_sequence for segment in self.segments]
        return [(end, first) for end, first in zip(ends, firsts, strict=True) if end < first]
