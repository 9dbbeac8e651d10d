"""Does the steps of a repair, one after the other.

Each step is a whole file, synced, and renamed to its name; or the cutting of a file whose end is stated elsewhere already.
Killed anywhere, the next repair goes on, and no record that can be read is lost in between: segments are made from the newest
on, because blocks only ever move into a later segment than theirs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace

from jlog._core.format.constants import DUAL_SLOT_OFFSETS, RESERVATION_STRIDE, SEGMENT_HEADER_BYTES
from jlog._core.format.dual_slot import BoundsFile, both_copies
from jlog._core.recover.found_page import invalidate_page
from jlog._core.recover.quarantine import Quarantine
from jlog._core.segments.build import encode_block, moved_block, segment_header
from jlog._core.segments.index import write_index
from jlog._core.segments.segment import SegmentFile, index_name, segment_name
from jlog._core.system.durable import sync_data, sync_directory
from jlog._core.system.lock import Deadline, LockFile
from jlog.positions.position_files import PositionFile
from jlog.repair import steps
from jlog.repair.findings import BlockRun
from jlog.repair.steps import NewBlock, NewSegment, RepairStep
from jlog.storage.copying import copy_range
from jlog.storage.meta import Meta, write_meta
from jlog.system.clock import now_us
from jlog.system.files import Directory, naming, open_file, read_whole, write_whole

PIECE_BYTES = 1 << 20
TEMPORARY = "next.repair"  # under this name a file is not part of a journal


class Applier:
    """Does steps to the journal at `path`, whose open lock is held on `lock_file`."""

    def __init__(self, path: str, meta: Meta, lock_file: LockFile, deadline: Deadline) -> None:
        self._path = path
        self._meta = meta
        self._lock_file = lock_file
        self._deadline = deadline
        self._quarantine = Quarantine(path)

    def apply(self, wanted: Iterable[RepairStep]) -> Iterator[RepairStep]:
        """Yields each step once it is done, but for those that a step before has made needless."""
        for step in wanted:
            if not isinstance(step, steps.RemoveUnfinished) or os.path.isfile(os.path.join(self._path, step.file)):
                self._do(step)
                yield step

    def _do(self, step: RepairStep) -> None:
        path, uuid = self._path, self._meta.uuid
        file = os.path.join(path, step.file)
        match step:
            case steps.MakeDirectory():
                Directory(path, step.file, make=True).close()
                sync_directory(path)
            case steps.WriteMeta():
                if step.keep_old and os.path.exists(file):
                    self._quarantine.keep(file)
                self._meta = replace(step.meta)  # a position that is set later is moved in the new epoch
                write_meta(path, self._meta)
            case steps.KeepBytes():
                self._quarantine.keep(file, step.start, step.end)
            case steps.WriteSegment():
                _write_segment(path, uuid, step.segment, step.clock_us)
            case steps.WriteAgain():
                _write_again(file, step.ranges)
            case steps.WriteBounds():
                self._write_bounds(file, step)
            case steps.InvalidatePage():
                invalidate_page(path, uuid)
            case steps.CutSegment():
                _cut(file, step.end)
            case steps.TakeAway():
                self._quarantine.take(file)
            case steps.RemoveFile() | steps.RemoveUnfinished():
                os.unlink(file)
            case steps.MakeIndex():
                write_index(path, step.segment, uuid, step.end, TEMPORARY)
            case steps.RestoreCopy():
                _restore_copy(file, uuid, step)
            case steps.SetPosition():
                self._set_position(step)
            case _:
                raise AssertionError(step)

    def _write_bounds(self, file: str, step: steps.WriteBounds) -> None:
        uuid, end = self._meta.uuid, step.end
        reservation = end[0] + RESERVATION_STRIDE
        if not step.is_new:
            bounds = BoundsFile(file, uuid, self._lock_file)
            bounds.update(mark=end, reservation_limit=reservation, closed=end, durable=True, deadline=self._deadline)
            bounds.close()
            return
        if os.path.exists(file):
            self._quarantine.keep(file)
        BoundsFile.create(file, uuid, reservation, end, first_sequence=step.first_sequence, mark=end, temporary=TEMPORARY)
        sync_directory(self._path)

    def _set_position(self, step: steps.SetPosition) -> None:
        with closing(PositionFile(self._path, self._meta, step.kind, step.name)) as position:
            self._quarantine.keep(position.path)
            position.write(step.sequence)
            position.sync()


def _write_again(file: str, ranges: tuple[tuple[int, int], ...]) -> None:
    with naming(file), open_file(file, os.O_RDWR) as opened:
        for start, end in ranges:
            for at in range(start, end, PIECE_BYTES):
                write_whole(opened.fd, read_whole(opened.fd, min(PIECE_BYTES, end - at), at), at)
        sync_data(opened.fd, file)


def _cut(file: str, end: int) -> None:
    with naming(file), open_file(file, os.O_RDWR) as opened:
        os.ftruncate(opened.fd, end)
        os.fsync(opened.fd)


def _restore_copy(file: str, uuid: bytes, step: steps.RestoreCopy) -> None:
    """Reads the copies again: a subscriber may have moved since the scan."""
    with open_file(file, os.O_RDWR) as opened:
        copies = both_copies(opened.fd, uuid, bounds=step.is_bounds)
        for at, copy, other in zip(DUAL_SLOT_OFFSETS, copies, reversed(copies), strict=True):
            if at == step.offset and copy is None and other is not None:
                with naming(file):
                    write_whole(opened.fd, other, at)
                    os.fdatasync(opened.fd)


def _write_segment(path: str, uuid: bytes, segment: NewSegment, clock_us: int) -> None:
    """Writes a segment file anew. It has its own name once it is whole and synced, and a file of this name is replaced.
    `clock_us`: no block of the journal was written later."""
    head = segment.head
    created_us, replacements = (now_us(), 0) if head is None else (head.created_us, head.replacements)
    with Directory(path) as directory, directory.made(segment_name(segment.first_sequence), TEMPORARY) as fd:
        header = segment_header(uuid, segment.epoch, segment.first_sequence, segment.previous, created_us, replacements)
        write_whole(fd, header, 0)
        offset = SEGMENT_HEADER_BYTES
        for part, sequence in segment.parts:
            if isinstance(part, BlockRun):
                _copy_run(path, uuid, segment, part, fd, offset)
                offset += part.end - part.start
            else:
                block = _encode(uuid, segment, part, offset, sequence, clock_us)
                write_whole(fd, block, offset)
                offset += len(block)
        directory.remove(index_name(segment.first_sequence))  # it may speak of other blocks
    sync_directory(path)


def _copy_run(path: str, uuid: bytes, segment: NewSegment, run: BlockRun, fd: int, offset: int) -> None:
    assert segment.source is not None
    with closing(SegmentFile(path, segment.source, uuid, check_header=False)) as file:
        if segment.source == segment.first_sequence and run.start == offset and not segment.doubtful:
            copy_range(file.fileno(), run.start, run.end, fd, offset)
            return
        for block in file.blocks(run.start):  # a block's header says where it stands
            if block.offset >= run.end:
                break
            content = read_whole(file.fileno(), block.end - block.offset, block.offset)
            at = offset + block.offset - run.start
            write_whole(fd, moved_block(content, uuid, segment.first_sequence, at), at)


def _encode(uuid: bytes, segment: NewSegment, block: NewBlock, offset: int, sequence: int, clock_us: int) -> bytes:
    return encode_block(
        uuid,
        segment.first_sequence,
        offset,
        block.raw,
        clock_us if block.base_time_us is None else block.base_time_us,
        sequence,
        snapshot=block.is_state_block,
        floor_us=clock_us,
    )
