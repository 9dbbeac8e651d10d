"""What can still be read of a journal's segment files, whatever has become of them. Nothing is changed here."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field

from jlog._core.format.dual_slot import Bounds
from jlog._core.read.rebuild import COPIES_AT, SIGNATURE_BYTES, Page, Signature, whose
from jlog._core.segments.segment import (
    SEGMENT_HEADER_BYTES,
    Block,
    SegmentFile,
    list_segments,
    segment_name,
)
from jlog.care.verify import Progress
from jlog.errors import CorruptJournal, JournalError
from jlog.storage.damage import Gap, open_segment, walk_segment
from jlog.system.files import open_file

NONE = 2**64 - 1
Place = tuple[int, int, int]  # segment, offset, sequence


@dataclass(frozen=True)
class Head:
    """What a segment's header says."""

    epoch: int
    previous: Place | None
    created_us: int
    replacements: int


@dataclass(frozen=True)
class Run:
    """Whole blocks of a segment that stand one behind the other."""

    start: int
    end: int
    first_sequence: int
    end_sequence: int
    blocks: int
    has_state_block: bool  # it begins with the one that every segment begins with


@dataclass
class Source:
    """What is left of a segment file."""

    segment: int
    path: str
    head: Head | None
    runs: list[Run] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    clock_us: int = 0
    durable_end: int = 0

    @property
    def looked_at(self) -> int:
        """The offset behind all that is known of it."""
        return max([*(run.end for run in self.runs), *(gap.end for gap in self.gaps)], default=0)


def survey(path: str, uuid: bytes, bounds: Bounds | None, page: Page | None, progress: Progress) -> list[Source]:
    """Of every segment file that is part of the journal, oldest first."""
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


def read_head(path: str, uuid: bytes, name: int) -> Head | None:
    file, error = open_segment(path, name, uuid)
    previous = file.previous_segment, file.previous_end_offset, file.previous_end_sequence
    head = Head(file.epoch, None if previous[0] == NONE else previous, file.created_us, file.replacements)
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
    head: Head | None,
    end: tuple[int, int] | None,
    limit: int,
    progress: Progress,
) -> Source:
    """`limit`: the next segment's first sequence, which no record here can have."""
    source = Source(file.segment, file.path, head)
    run: Run | None = None
    for piece in walk_segment(file, end):
        if isinstance(piece, Gap):
            source.gaps.append(piece)
            run = None
            progress(piece.end - piece.offset)
            continue
        behind = piece.first_sequence + piece.records
        if behind > limit:
            break
        after = piece.end
        progress(after - piece.offset)
        if run is None:
            run = Run(piece.offset, after, piece.first_sequence, behind, 1, piece.offset == SEGMENT_HEADER_BYTES)
            source.runs.append(run)
        else:
            run = Run(run.start, after, run.first_sequence, behind, run.blocks + 1, run.has_state_block)
            source.runs[-1] = run
        source.clock_us = max(source.clock_us, piece.clock_us)
        source.durable_end = max(source.durable_end, piece.durable_end)
    return source


# --- Whose files they are ----------------------------------------------------------------------------------------


def find_identity(path: str) -> tuple[bytes, list[tuple[int, int]]]:
    """(uuid, epochs with the first sequence of each) as the other files tell them, where `journal.meta` does not.
    CorruptJournal where none does."""
    found = _signatures(path)
    if not found:
        raise CorruptJournal(
            os.path.join(path, "journal.meta"),
            0,
            "it is missing or damaged, and no other file tells whose they are; restore the journal from a backup",
        )
    ((uuid, _),) = Counter(signature.uuid for signature in found).most_common(1)
    epochs: dict[int, int] = {}
    begun = 0
    for signature in found:
        if signature.uuid == uuid and signature.epoch is not None and signature.epoch not in epochs:
            begun = max(begun, signature.first_sequence or 0) if epochs else 0
            epochs[signature.epoch] = begun
    return uuid, list(epochs.items())


def _signatures(path: str) -> list[Signature]:
    """Of every file that has one, segments first and oldest first."""
    places = [(segment_name(name), 0) for name in list_segments(path)]
    others = ["bounds"]
    for folder in ("subscribers", "checkpoints"):
        if os.path.isdir(os.path.join(path, folder)):
            others += [os.path.join(folder, name) for name in sorted(os.listdir(os.path.join(path, folder)))]
    places += [(name, at) for name in others for at in COPIES_AT]
    found = []
    for name, at in places:
        try:
            fd = open_file(os.path.join(path, name))
        except (FileNotFoundError, JournalError):
            continue
        try:
            signature = whose(os.pread(fd, SIGNATURE_BYTES, at))
        finally:
            os.close(fd)
        if signature is not None:
            found.append(signature)
    return found
