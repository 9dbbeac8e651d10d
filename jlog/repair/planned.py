"""A segment as a repair plans it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from jlog._core.read.rebuild import Body
from jlog._core.recover.recovery import encode_state
from jlog._core.segments.segment import BLOCK_HEADER_BYTES, SEGMENT_HEADER_BYTES
from jlog.repair.scan import BlockRun, Place, SegmentRemains

State = dict[bytes, bytes]


@dataclass(frozen=True)
class NewBlock:
    """The records of a block that is to be made. `base_time_us` is None where they are state."""

    raw: bytes
    base_time_us: int | None = None
    is_state_block: bool = False  # it is the state block with which every segment begins


@dataclass(eq=False)
class PlannedSegment:
    """A segment as it is to be: a header, a state block unless the first run has it, runs, and perhaps the block that was
    open. It changes while the plan is made, and never afterwards."""

    first_sequence: int
    source: SegmentRemains | None = None
    runs: list[BlockRun] = field(default_factory=list)
    state: State | None = None  # for the state block that is to be made; None: the first run begins with one
    behind: PlannedSegment | None = None  # the segment whose last state this one begins with
    changes: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)  # of the state, by the run that they precede
    body: Body | None = None
    previous: Place | None = None
    epoch: int = 0
    doubtful: bool = False  # a sync has failed: what can be read of it may never reach the disk

    @property
    def end_sequence(self) -> int:
        if self.body is not None:
            return self.body.first_sequence + self.body.records
        return self.runs[-1].end_sequence if self.runs else self.first_sequence

    @property
    def end(self) -> Place:
        """The place where its blocks end."""
        size = 0
        for part, _ in self.parts():
            size += part.end - part.start if isinstance(part, BlockRun) else BLOCK_HEADER_BYTES + len(part.raw)
        return self.first_sequence, SEGMENT_HEADER_BYTES + size, self.end_sequence

    def parts(self) -> Iterator[tuple[BlockRun | NewBlock, int]]:
        """Yields what follows the header, in order, with the sequence that each part begins with."""
        sequence = self.first_sequence
        if self.state is not None:
            yield NewBlock(encode_state(self.state), is_state_block=True), sequence
        for i in range(len(self.runs) + 1):
            if i in self.changes:
                yield NewBlock(encode_state(self.changes[i])), sequence
            if i < len(self.runs):
                yield self.runs[i], sequence
                sequence = self.runs[i].end_sequence
        if self.body is not None:
            yield NewBlock(self.body.raw, self.body.base_time_us), sequence

    @property
    def is_verbatim(self) -> bool:
        """Whether its blocks stand in its own file already, where they are to stand."""
        own = self.source is not None and self.source.segment == self.first_sequence
        made = self.state is not None or self.changes or self.body is not None
        return own and len(self.runs) == 1 and not made

    @property
    def stands(self) -> bool:
        """Whether its file is as it is to be, but for what may stand behind its end."""
        head = self.source.head if self.source is not None else None
        return self.is_verbatim and not self.doubtful and head is not None and head.previous == self.previous

    @property
    def ends_in_gap(self) -> bool:
        """Whether something stood behind its last block that cannot be read."""
        return self.source is not None and bool(self.runs) and any(gap.offset >= self.runs[-1].end for gap in self.source.gaps)
