"""Writes a segment file anew, as a whole."""

from __future__ import annotations

import time

from jlog._core.read.rebuild import moved_block, segment_header
from jlog._core.recover.recovery import encode_block, sync_directory
from jlog._core.segments.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentFile,
    index_name,
    segment_name,
)
from jlog.repair.planned import NewBlock, PlannedSegment
from jlog.repair.scan import BlockRun
from jlog.repair.small_files import TEMPORARY
from jlog.storage.copying import copy_range
from jlog.system.files import Directory, read_whole, write_whole


def write_segment(path: str, uuid: bytes, target: PlannedSegment, clock_us: int) -> None:
    """Under its own name once it is there as a whole and synced; a file of this name is replaced. `clock_us`: no block of
    the journal was written later."""
    head = target.source.head if target.source is not None else None
    created_us, replacements = (time.time_ns() // 1000, 0) if head is None else (head.created_us, head.replacements)
    name = segment_name(target.first_sequence)
    with Directory(path) as directory, directory.made(name, TEMPORARY) as fd:
        header = segment_header(uuid, target.epoch, target.first_sequence, target.previous, created_us, replacements)
        write_whole(fd, header, 0)
        offset = SEGMENT_HEADER_BYTES
        for part, sequence in target.parts():
            if isinstance(part, BlockRun):
                _copy_run(path, uuid, target, part, fd, offset)
                offset += part.end - part.start
            else:
                block = _made(uuid, target, part, offset, sequence, clock_us)
                write_whole(fd, block, offset)
                offset += len(block)
        directory.remove(index_name(target.first_sequence))  # it may speak of other blocks
    sync_directory(path)


def _copy_run(path: str, uuid: bytes, target: PlannedSegment, run: BlockRun, fd: int, offset: int) -> None:
    assert target.source is not None
    file = SegmentFile(path, target.source.segment, uuid, check_header=False)
    try:
        if target.source.segment == target.first_sequence and run.start == offset and not target.doubtful:
            copy_range(file.fileno(), run.start, run.end, fd, offset)
            return
        for block in file.blocks(run.start):  # a block's header says where it stands
            if block.offset >= run.end:
                break
            content = read_whole(file.fileno(), block.end - block.offset, block.offset)
            at = offset + block.offset - run.start
            write_whole(fd, moved_block(content, uuid, target.first_sequence, at), at)
    finally:
        file.close()


def _made(uuid: bytes, target: PlannedSegment, part: NewBlock, offset: int, sequence: int, clock_us: int) -> bytes:
    return encode_block(
        uuid,
        target.first_sequence,
        offset,
        part.raw,
        clock_us if part.base_time_us is None else part.base_time_us,
        sequence,
        snapshot=part.is_state_block,
        clamp_us=clock_us,
    )
