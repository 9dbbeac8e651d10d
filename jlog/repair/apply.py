"""Does the steps of a repair, one after the other.

Each step is a whole file, synced, and renamed to its name; or the cutting of a file whose end is stated elsewhere already.
Killed anywhere, the next repair goes on, and no record that can be read is lost in between: segments are made from the newest
on, because blocks only ever move into a later segment than theirs.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import replace

from jlog._core.format.constants import DUAL_SLOT_OFFSETS, RESERVATION_STRIDE, SEGMENT_HEADER_BYTES
from jlog._core.format.dual_slot import BoundsFile, both_copies
from jlog._core.recover.abandoned_buffer import invalidate_page
from jlog._core.recover.quarantine import Quarantine
from jlog._core.segments.build import encode_block, moved_block, segment_header
from jlog._core.segments.index import write_index
from jlog._core.segments.segment import SegmentFile, index_name, segment_name
from jlog._core.system.durable import sync_data, sync_directory
from jlog._core.system.lock import Deadline, LockFile
from jlog.positions.position_files import PositionFile
from jlog.repair.draft import SegmentDraft
from jlog.repair.findings import BlockPlace, BlockRun
from jlog.storage.copying import copy_range
from jlog.storage.meta import Meta, write_meta
from jlog.system.clock import now_us
from jlog.system.files import Directory, naming, open_file, read_whole, write_whole

PIECE_BYTES = 1 << 20
TEMPORARY = "next.repair"  # under this name a file is not part of a journal


class Applier:
    """Does steps to the journal at `path`, whose open lock is held on `lock_file`. Each method is a kind of step, and gets the
    path of the step's file."""

    def __init__(self, path: str, meta: Meta, lock_file: LockFile, deadline: Deadline) -> None:
        self._path = path
        self._meta = meta
        self._lock_file = lock_file
        self._deadline = deadline
        self._quarantine = Quarantine(path)

    # --- Files as a whole -----------------------------------------------------------------------------------------------

    def make_directory(self, file: str) -> None:
        Directory(self._path, os.path.basename(file), make=True).close()
        sync_directory(self._path)

    def write_meta(self, file: str, meta: Meta, *, keep_old: bool) -> None:
        """keep_old: the present file goes to quarantine."""
        if keep_old and os.path.exists(file):
            self._quarantine.keep(file)
        self._meta = replace(meta)  # a position that is set later is moved in the new epoch
        write_meta(self._path, self._meta)

    def write_bounds(self, file: str, first_sequence: int, end: BlockPlace, *, is_new: bool) -> None:
        uuid, reservation = self._meta.uuid, end[0] + RESERVATION_STRIDE
        if not is_new:
            bounds = BoundsFile(file, uuid, self._lock_file)
            bounds.update(mark=end, reservation_limit=reservation, closed=end, durable=True, deadline=self._deadline)
            bounds.close()
            return
        if os.path.exists(file):
            self._quarantine.keep(file)
        BoundsFile.create(file, uuid, reservation, end, first_sequence=first_sequence, mark=end, temporary=TEMPORARY)
        sync_directory(self._path)

    def invalidate_page(self, _file: str) -> None:
        invalidate_page(self._path, self._meta.uuid)

    def make_index(self, _file: str, segment: int, end: int) -> None:
        write_index(self._path, segment, self._meta.uuid, end, TEMPORARY)

    def take_away(self, file: str) -> None:
        """Moves a whole file to quarantine."""
        self._quarantine.take(file)

    def remove(self, file: str) -> None:
        with suppress(FileNotFoundError):  # a step before has used the name of an unfinished file
            os.unlink(file)

    # --- Parts of files -------------------------------------------------------------------------------------------------

    def keep_bytes(self, file: str, start: int, end: int | None) -> None:
        """Copies bytes to quarantine. end: None for the end of the file."""
        self._quarantine.keep(file, start, end)

    def write_again(self, file: str, ranges: tuple[tuple[int, int], ...]) -> None:
        """Writes bytes to their own place once more, and syncs them."""
        with naming(file), open_file(file, os.O_RDWR) as opened:
            for start, end in ranges:
                for at in range(start, end, PIECE_BYTES):
                    write_whole(opened.fd, read_whole(opened.fd, min(PIECE_BYTES, end - at), at), at)
            sync_data(opened.fd, file)

    def cut(self, file: str, end: int) -> None:
        with naming(file), open_file(file, os.O_RDWR) as opened:
            os.ftruncate(opened.fd, end)
            os.fsync(opened.fd)

    def restore_copy(self, file: str, offset: int, *, is_bounds: bool) -> None:
        """Restores the copy at `offset` of a dual-slot record from the other one. Reads both again: a subscriber may have moved
        since the scan."""
        with open_file(file, os.O_RDWR) as opened:
            copies = both_copies(opened.fd, self._meta.uuid, bounds=is_bounds)
            for at, copy, other in zip(DUAL_SLOT_OFFSETS, copies, reversed(copies), strict=True):
                if at == offset and copy is None and other is not None:
                    with naming(file):
                        write_whole(opened.fd, other, at)
                        os.fdatasync(opened.fd)

    def set_position(self, _file: str, kind: str, name: str, sequence: int) -> None:
        with closing(PositionFile(self._path, self._meta, kind, name)) as position:
            self._quarantine.keep(position.path)
            position.write(sequence)
            position.sync()

    # --- Segments -------------------------------------------------------------------------------------------------------

    def write_segment(self, _file: str, segment: SegmentDraft, clock_us: int) -> None:
        """Writes a segment file anew. It has its own name once it is whole and synced, and a file of this name is replaced.
        `clock_us`: no block of the journal was written later."""
        uuid, head, first = self._meta.uuid, segment.head, segment.first_sequence
        created_us, replacements = (now_us(), 0) if head is None else (head.created_us, head.replacements)
        with Directory(self._path) as directory, directory.made(segment_name(first), TEMPORARY) as fd:
            write_whole(fd, segment_header(uuid, segment.epoch, first, segment.previous, created_us, replacements), 0)
            offset = SEGMENT_HEADER_BYTES
            for part, sequence in segment.parts():
                if isinstance(part, BlockRun):
                    self._copy_run(segment, part, fd, offset)
                    offset += part.end - part.start
                    continue
                block = encode_block(
                    uuid,
                    first,
                    offset,
                    part.raw,
                    clock_us if part.base_time_us is None else part.base_time_us,
                    sequence,
                    snapshot=part.is_state_block,
                    floor_us=clock_us,
                )
                write_whole(fd, block, offset)
                offset += len(block)
            directory.remove(index_name(first))  # it may speak of other blocks
        sync_directory(self._path)

    def _copy_run(self, segment: SegmentDraft, run: BlockRun, fd: int, offset: int) -> None:
        assert segment.source is not None
        uuid, source = self._meta.uuid, segment.source.segment
        with closing(SegmentFile(self._path, source, uuid, check_header=False)) as file:
            if source == segment.first_sequence and run.start == offset and not segment.doubtful:
                copy_range(file.fileno(), run.start, run.end, fd, offset)
                return
            for block in file.blocks(run.start):  # a block's header says where it stands
                if block.offset >= run.end:
                    break
                content = read_whole(file.fileno(), block.end - block.offset, block.offset)
                at = offset + block.offset - run.start
                write_whole(fd, moved_block(content, uuid, segment.first_sequence, at), at)
