"""Facts about a damaged journal's directory, as a scan finds them. A plan needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.format.dual_slot import Bounds
from jlog._core.recover.abandoned_buffer import Body, Page
from jlog.storage.damage import Damage, DamagedRange
from jlog.storage.meta import Meta

BlockPlace = tuple[int, int, int]  # segment, offset, sequence


@dataclass(frozen=True)
class SegmentHead:
    """The fields of a segment's header that a repair needs."""

    epoch: int
    previous: BlockPlace | None
    created_us: int
    replacements: int


@dataclass(frozen=True)
class BlockRun:
    """A run of whole blocks of a segment, each of which begins where the one before ends."""

    start: int
    end: int
    first_sequence: int
    end_sequence: int
    blocks: int
    has_state_block: bool  # it begins with the STATE block with which every segment begins


@dataclass(frozen=True)
class FoundSegment:
    """A segment file of which something can be read."""

    segment: int
    path: str
    head: SegmentHead | None  # None: the header is damaged
    runs: tuple[BlockRun, ...]
    damaged_ranges: tuple[DamagedRange, ...]
    clock_us: int  # the latest clock of a block
    durable_end: int  # the greatest one that a block states

    @property
    def known_end(self) -> int:
        """The offset after all runs and gaps."""
        return max([*(run.end for run in self.runs), *(damaged_range.end for damaged_range in self.damaged_ranges)], default=0)

    @property
    def whole_run(self) -> BlockRun | None:
        """The run that holds all blocks of the segment; None where blocks are missing, or their header."""
        run = self.runs[0] if len(self.runs) == 1 else None
        return run if run is not None and run.has_state_block and self.head is not None else None


@dataclass(frozen=True)
class SegmentFileOnDisk:
    """A file with the name of a segment, whatever is in it."""

    file_bytes: int
    to_keep: tuple[tuple[int, int | None], ...]  # ranges that go to quarantine if the file is changed; those of zeros do not


@dataclass(frozen=True)
class FoundIndex:
    """An index file. `right`: it says what the blocks of its segment say."""

    segment: int
    file: str
    right: bool


@dataclass(frozen=True)
class FoundPosition:
    """The file of a subscriber or a checkpoint."""

    kind: str
    name: str
    sequence: int | None  # None: neither copy can be read
    damaged_copies: tuple[int, ...]  # offsets of the damaged copies, where the other one is whole

    @property
    def file(self) -> str:
        return f"{self.kind}s/{self.name}"


@dataclass(frozen=True)
class FoundBody:
    """A block of the pre-commit buffer."""

    body: Body
    rest: Body | None  # records after those of the block at its place in the segment, where it has the body's first records
    written_end: int  # end offset of that block


@dataclass(frozen=True)
class Findings:
    """All that a repair knows of a journal."""

    path: str
    meta: Meta  # where the file is missing or damaged: built from what the other files say
    has_meta: bool
    new_epoch: int  # a random number, for the epoch that the repair may begin
    bounds: Bounds | None
    damaged_bounds_copies: tuple[int, ...]
    page: Page | None
    bodies: tuple[FoundBody, ...]
    segments: tuple[FoundSegment, ...]  # the journal's, oldest first
    segment_files: dict[int, SegmentFileOnDisk]
    open_end: BlockPlace | None  # end of the blocks, as the page states it
    recovered_end: BlockPlace | None  # end of the blocks, as the next writer finds it where no page states it
    indexes: tuple[FoundIndex, ...]
    positions: tuple[FoundPosition, ...]
    missing_directories: tuple[str, ...]
    unfinished: tuple[str, ...]  # files that a killed process has left half written
    damage: tuple[Damage, ...]  # of the small files

    @property
    def trusted_page(self) -> Page | None:
        """The page; an outdated one states no end."""
        return trusted(self.page, self.bounds)


def is_outdated(page: Page | None, bounds: Bounds | None) -> bool:
    """Says whether a repair that was killed has begun a segment after the one that the page states."""
    return page is not None and bounds is not None and bounds.mark_segment > page.segment


def trusted(page: Page | None, bounds: Bounds | None) -> Page | None:
    """Returns the page, which states no end any more where it is outdated."""
    if page is not None and is_outdated(page, bounds):
        return page._replace(current=False, whole=False, direct=False)
    return page


def is_chain(segments: tuple[FoundSegment, ...]) -> bool:
    """Whether every segment is whole, and each header names the end of the segment before."""
    before: BlockPlace | None = None
    for segment in segments:
        run, head = segment.whole_run, segment.head
        if run is None or head is None or (before is not None and head.previous != before):
            return False
        assert run.start == SEGMENT_HEADER_BYTES
        before = segment.segment, run.end, run.end_sequence
    return bool(segments)
