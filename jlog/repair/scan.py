"""Scans a damaged journal: everything that can still be known of it. Nothing is changed here."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from jlog._core.format.constants import NONE, SEGMENT_HEADER_BYTES
from jlog._core.format.dual_slot import Bounds, BoundsFile
from jlog._core.read.rebuild import Page, look_at_page
from jlog._core.segments.segment import Block, SegmentFile, list_segments
from jlog.care.verify import Progress, damage_of_small_files
from jlog.errors import CorruptJournal, JournalNotFound
from jlog.options import DEFAULTS, PRECOMMIT_DEFAULT, Retention, retention_fields
from jlog.positions import position_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, PositionFile
from jlog.repair.identity import find_identity
from jlog.storage.damage import Damage, Gap, bad_sectors_are_damage, open_segment, walk_segment
from jlog.storage.meta import NAME as META
from jlog.storage.meta import Meta, read_meta

Place = tuple[int, int, int]  # segment, offset, sequence


@dataclass(frozen=True)
class SegmentHead:
    """The fields of a segment's header."""

    epoch: int
    previous: Place | None
    created_us: int
    replacements: int


@dataclass(frozen=True)
class BlockRun:
    """Intact blocks of a segment, one right behind the other."""

    start: int
    end: int
    first_sequence: int
    end_sequence: int
    blocks: int
    has_state_block: bool  # the first block is the state block with which every segment begins


@dataclass(frozen=True)
class SegmentRemains:
    """What is left of a segment file."""

    segment: int
    path: str
    head: SegmentHead | None  # None: it is damaged
    runs: tuple[BlockRun, ...]
    gaps: tuple[Gap, ...]
    clock_us: int  # no block of it was written later
    durable_end: int  # a block of it says that everything before this sequence was synced

    @property
    def looked_at(self) -> int:
        """The offset behind everything that is known of it."""
        return max([*(run.end for run in self.runs), *(gap.end for gap in self.gaps)], default=0)


@dataclass(frozen=True)
class Findings:
    """Everything that a scan has found."""

    path: str
    meta: Meta  # read, or derived from the other files
    has_meta: bool
    bounds: Bounds | None
    page: Page | None
    positions: tuple[int, ...]  # of the subscribers and checkpoints that can be read
    segments: tuple[SegmentRemains, ...]  # oldest first
    damage: tuple[Damage, ...]  # of the small files

    @property
    def page_is_behind(self) -> bool:
        """Whether a repair that was killed has begun a segment behind the one that the page speaks of."""
        return self.page is not None and self.bounds is not None and self.bounds.mark_segment > self.page.segment

    @property
    def believed_page(self) -> Page | None:
        """The page, as far as it tells where the segments end."""
        return _believed(self.page, self.bounds)


def scan(path: str, progress: Progress) -> Findings:
    """Scans the journal at `path`. CorruptJournal where nothing tells whose files they are."""
    damage: list[Damage] = []
    meta, has_meta = _read_meta(path, damage)
    bounds, page = _read_bounds(path, meta), look_at_page(path, meta.uuid)
    damage += damage_of_small_files(path, meta)
    segments = scan_segments(path, meta.uuid, bounds, _believed(page, bounds), progress)
    positions = _read_positions(path, meta)
    return Findings(path, meta, has_meta, bounds, page, tuple(positions), tuple(segments), tuple(damage))


def _believed(page: Page | None, bounds: Bounds | None) -> Page | None:
    if page is not None and bounds is not None and bounds.mark_segment > page.segment:
        return page._replace(current=False, whole=False, direct=False)
    return page


def _read_meta(path: str, damage: list[Damage]) -> tuple[Meta, bool]:
    """Reads `journal.meta`, or derives it from the other files; and says whether it is there."""
    try:
        return read_meta(path), True
    except JournalNotFound:
        reason = "it is missing"
    except CorruptJournal as error:
        reason = error.reason
    damage.append(Damage(os.path.join(path, META), 0, reason, 0, 0))
    uuid, epochs = find_identity(path)
    retained = retention_fields(Retention(delete_read=False))
    options = {**DEFAULTS, "precommit": PRECOMMIT_DEFAULT, "retention": retained}
    import secrets  # slow to import, and repairs are rare

    return Meta(uuid, epochs or [(secrets.randbits(63), 0)], options), False


def _read_bounds(path: str, meta: Meta) -> Bounds | None:
    try:
        with bad_sectors_are_damage():
            return BoundsFile(os.path.join(path, "bounds"), meta.uuid, None, writable=False).read()
    except (CorruptJournal, FileNotFoundError):
        return None


def _read_positions(path: str, meta: Meta) -> list[int]:
    found = []
    for kind in (SUBSCRIBER, CHECKPOINT):
        for name in position_files.names(path, kind):
            file = PositionFile(path, meta, kind, name)
            try:
                with bad_sectors_are_damage():
                    found.append(file.read())
            except CorruptJournal:
                continue
            finally:
                file.close()
    return found


# --- Segments ----------------------------------------------------------------------------------------------------


def scan_segments(path: str, uuid: bytes, bounds: Bounds | None, page: Page | None, progress: Progress) -> list[SegmentRemains]:
    """Scans every segment file that is part of the journal, oldest first."""
    names = list_segments(path)
    if page is not None and page.current:  # a later one was left by a roll that was killed
        names = [name for name in names if name <= page.segment]
    heads = {name: read_head(path, uuid, name) for name in names}
    names = [name for name in names if heads[name] is not None or _has_block(path, uuid, name)]
    if bounds is not None:
        behind = zip(names, [*names[1:], NONE], strict=False)
        names = [name for name, after in behind if after > bounds.first_sequence]
    found = []
    for name, following in zip(names, [*names[1:], None], strict=False):
        file = SegmentFile(path, name, uuid, check_header=False)
        end = None
        if following is not None:
            head = heads[following]
            if head is not None and head.previous is not None and head.previous[0] == name:
                end = head.previous[1:]
        elif page is not None and page.current and page.segment == name:
            end = open_end(file, page)
        found.append(_look(file, heads[name], end, NONE if following is None else following, progress))
        file.close()
    return found


def read_head(path: str, uuid: bytes, name: int) -> SegmentHead | None:
    file, error = open_segment(path, name, uuid)
    previous = file.previous_segment, file.previous_end_offset, file.previous_end_sequence
    head = SegmentHead(file.epoch, None if previous[0] == NONE else previous, file.created_us, file.replacements)
    file.close()
    return head if error is None else None


def _has_block(path: str, uuid: bytes, name: int) -> bool:
    file = SegmentFile(path, name, uuid, check_header=False)
    try:
        return any(isinstance(piece, Block) for piece in walk_segment(file, None))
    finally:
        file.close()


def open_end(file: SegmentFile, page: Page) -> tuple[int, int]:
    """A whole direct block at the open place counts, though its writer was killed before it published it."""
    if page.direct:
        block, _ = file.block_at(page.offset)
        if block is not None and block.first_sequence == page.first_sequence:
            end = block.end
            return end, page.first_sequence + block.records
    return page.offset, page.first_sequence


def _look(
    file: SegmentFile,
    head: SegmentHead | None,
    end: tuple[int, int] | None,
    limit: int,
    progress: Progress,
) -> SegmentRemains:
    """`limit`: the next segment's first sequence, which no record here can have."""
    runs: list[BlockRun] = []
    gaps: list[Gap] = []
    clock_us = durable_end = 0
    after_gap = True
    for piece in walk_segment(file, end):
        if isinstance(piece, Gap):
            gaps.append(piece)
            after_gap = True
            progress(piece.end - piece.offset)
            continue
        if piece.end_sequence > limit:
            break
        progress(piece.end - piece.offset)
        if after_gap:
            is_state_block = piece.offset == SEGMENT_HEADER_BYTES
            runs.append(BlockRun(piece.offset, piece.end, piece.first_sequence, piece.end_sequence, 1, is_state_block))
        else:
            runs[-1] = replace(runs[-1], end=piece.end, end_sequence=piece.end_sequence, blocks=runs[-1].blocks + 1)
        after_gap = False
        clock_us, durable_end = max(clock_us, piece.clock_us), max(durable_end, piece.durable_end)
    return SegmentRemains(file.segment, file.path, head, tuple(runs), tuple(gaps), clock_us, durable_end)
