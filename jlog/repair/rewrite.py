"""Writes a segment file anew, as a whole."""

from __future__ import annotations

from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.segments.build import encode_block, moved_block, segment_header
from jlog._core.segments.segment import SegmentFile, index_name, segment_name
from jlog._core.system.durable import sync_directory
from jlog.repair.findings import BlockRun
from jlog.repair.steps import NewBlock, NewSegment
from jlog.storage.copying import copy_range
from jlog.system.clock import now_us
from jlog.system.files import Directory, read_whole, write_whole

TEMPORARY = "next.repair"  # under this name a file is not part of a journal


def write_segment(path: str, uuid: bytes, segment: NewSegment, clock_us: int) -> None:
    """The file has its own name once it is whole and synced; a file of this name is replaced. `clock_us`: no block of the
    journal was written later."""
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
    file = SegmentFile(path, segment.source, uuid, check_header=False)
    try:
        if segment.source == segment.first_sequence and run.start == offset and not segment.doubtful:
            copy_range(file.fileno(), run.start, run.end, fd, offset)
            return
        for block in file.blocks(run.start):  # a block's header says where it stands
            if block.offset >= run.end:
                break
            content = read_whole(file.fileno(), block.end - block.offset, block.offset)
            at = offset + block.offset - run.start
            write_whole(fd, moved_block(content, uuid, segment.first_sequence, at), at)
    finally:
        file.close()


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
