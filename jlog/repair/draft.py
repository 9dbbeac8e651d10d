"""Segments as they are to be. They change until the plan is complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from jlog._core.format.constants import BLOCK_HEADER_BYTES, SEGMENT_HEADER_BYTES
from jlog._core.recover.abandoned_buffer import Body
from jlog._core.segments.build import encode_state
from jlog._core.segments.segment import segment_name
from jlog.repair.findings import BlockPlace, BlockRun, FoundSegment, SegmentHead

State = dict[bytes, bytes]
StateChanges = dict[bytes, bytes | None]  # None deletes the key


@dataclass(frozen=True)
class NewBlock:
    """Records of a block that is to be written. `base_time_us`: None where they are state."""

    raw: bytes
    base_time_us: int | None = None
    is_state_block: bool = False  # the STATE block with which every segment begins


@dataclass(eq=False)
class SegmentDraft:
    """A header, a state block unless the first run has it, runs of blocks, and perhaps a block of the pre-commit buffer."""

    first_sequence: int
    source: FoundSegment | None = None
    runs: list[BlockRun] = field(default_factory=list)
    state: State | None = None  # of the state block that is to be made; None: it stands in the first run
    follows: SegmentDraft | None = None  # the segment whose last state it begins with
    changes: dict[int, StateChanges] = field(default_factory=dict)  # by the number of the run before which they go
    body: Body | None = None
    previous: BlockPlace | None = None
    epoch: int = 0
    doubtful: bool = False  # the bytes that are read of it may not be on the disk, and never come there

    @property
    def end_sequence(self) -> int:
        if self.body is not None:
            return self.body.first_sequence + self.body.records
        return self.runs[-1].end_sequence if self.runs else self.first_sequence

    @property
    def end(self) -> BlockPlace:
        """The place where its blocks end."""
        size = sum(
            part.end - part.start if isinstance(part, BlockRun) else BLOCK_HEADER_BYTES + len(part.raw)
            for part, _ in self.parts()
        )
        return self.first_sequence, SEGMENT_HEADER_BYTES + size, self.end_sequence

    @property
    def records(self) -> int:
        return sum(run.end_sequence - run.first_sequence for run in self.runs) + (self.body.records if self.body else 0)

    @property
    def head(self) -> SegmentHead | None:
        """The header of the file that has its blocks; None where there is no such file, or the header is damaged."""
        return None if self.source is None else self.source.head

    def parts(self) -> Iterator[tuple[BlockRun | NewBlock, int]]:
        """Yields what follows the header, in order, and the sequence with which each part begins."""
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
        """Whether its file is as it is to be, but for what may stand beyond its end."""
        return self.is_verbatim and not self.doubtful and self.head is not None and self.head.previous == self.previous

    @property
    def ends_in_damage(self) -> bool:
        """Whether something stood after its last block that cannot be read."""
        return (
            self.source is not None
            and bool(self.runs)
            and any(damaged_range.offset >= self.runs[-1].end for damaged_range in self.source.damaged_ranges)
        )

    def describe(self) -> str:
        """Says what becomes of the segment's file when it is written."""
        records = self.end_sequence - self.first_sequence
        if self.source is None or not self.runs:
            return f"made, with {records} records" + (" of the pre-commit buffer" if self.body is not None else "")
        if self.source.segment != self.first_sequence:
            return f"made, with {records} records that stood after the damage in {segment_name(self.source.segment)}"
        new = []
        if self.head is None:
            new.append("its header")
        elif self.head.previous != self.previous:
            new.append("what its header says of the segment before")
        if self.state is not None:
            new.append("the state that it begins with")
        if self.changes:
            new.append("state that was stored where it is damaged")
        return f"written anew, with {records} records" + (f"; new is {', '.join(new)}" if new else "")
