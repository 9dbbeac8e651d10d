"""A reader's position in a journal: seeks, and reads batches of records."""

import os

from libc.errno cimport ENOENT
from libc.stdint cimport INT32_MAX, uint8_t, uint64_t

from jlog._core.read.blocks cimport BlockReader
from jlog._core.records.columns cimport Batch
from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.read.position cimport IN_USE, begin_step, end_use, is_own
from jlog._core.format.format cimport JLOG_NONE, jlog_is_state, jlog_pass_plain, jlog_record
from jlog._core.buffer.page cimport jlog_word_used
from jlog._core.records.record cimport RecordBatch
from jlog._core.segments.segment cimport SegmentFile
from jlog._core.system.atomic cimport jlog_futex_wake_all

from jlog._core.segments.index import build_index, locate, segment_end
from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.segments.segment import list_segments, segment_name
from jlog.errors import CorruptJournal, PositionLost
from jlog.system.files import HeldPath, file_in, is_there


cdef enum:
    AFTER_NEEDLE = 64  # records that are read from one with the needle on, before it is looked for again
    PASSED_BYTES_MAX = 32 << 20  # of records without the needle, before the caller gets an empty batch and can stop


cdef inline const uint8_t *reach(BlockReader blocks, Py_ssize_t left) noexcept:
    """Returns the end of the records that may be handed out now, if at most `left` bytes may be."""
    return blocks.at + max(0, min(left, blocks.end - blocks.at))


cdef class Cursor(ReadPosition):
    """A position in a journal. A method is one step of a call: it takes the cursor and gives it back. A second thread that
    calls meanwhile, because the first one waits or reads without the GIL, is refused."""

    def __init__(self, path not None, bytes uuid not None, *, bint durable_only=False):
        self.start(JournalEnd(path, uuid, durable_only=durable_only))

    cdef int start(self, JournalEnd stop) except -1:
        self.note(stop.path)
        self.uuid = stop.uuid
        self.blocks = BlockReader(stop)
        return 0

    cdef int check_path(self) except -1:
        """Raises JournalMoved if the cursor belongs to a Reader, whose path does not lead to its journal any more."""
        if isinstance(self.path, HeldPath):
            self.path.check()
        return 0

    def decode_with(self, decoder) -> None:
        """Gives this decoder to all records that are read from now on."""
        self.blocks.decoder = decoder

    def _wake(self):
        self.blocks.closed = True
        if self.use & IN_USE and self.wake is not None:
            jlog_futex_wake_all(self.wake.word)  # it looks again, although the word has not changed

    cdef void release(self) noexcept:
        self.blocks.forget_block()
        self.blocks.file = None
        self.wake = None
        self.blocks.stop.release()
        self.path = self.blocks.path = self.blocks.stop.path

    cdef uint64_t where(self) except? -1:
        return self.blocks.sequence

    cdef int go_back(self, uint64_t sequence) except -1:
        self.blocks.begin()
        return self.go_to(sequence)

    # --- Where it stands ------------------------------------------------------------------------------------------

    @property
    def first_sequence(self) -> int:
        """Sequence of the oldest retained record."""
        return self.blocks.stop.first_retained()

    @property
    def durable_only(self) -> bool:
        return self.blocks.stop.durable_only

    @property
    def next_sequence(self) -> int:
        """Sequence of the next record that is published or, with durable_only, synced."""
        return self.find_end(self.blocks.stop.durable_only)

    @property
    def journal_end(self) -> int:
        """Sequence of the next record that is published."""
        return self.find_end(False)

    cdef uint64_t find_end(self, bint durable_only) except? -1:
        cdef Cursor other
        cdef JournalEnd stop
        self.check_open()
        self.check_path()
        stop = self.blocks.stop.another()
        stop.durable_only = durable_only
        other = Cursor.__new__(Cursor)
        other.start(stop)
        other.seek_end()
        return other.blocks.sequence

    @property
    def place(self) -> tuple:
        """Segment and offset of the block in which the position lies."""
        self.check_open()
        return self.blocks.file.segment, self.blocks.offset

    @property
    def end_place(self) -> tuple:
        """Segment, offset and first sequence of the first block that is not in its segment now."""
        self.refresh()
        return self.blocks.stop.written_place

    @property
    def open_segment(self) -> object:
        """First sequence of the open segment now; None if no process has the journal open for writing. Reads the control page
        alone, and leaves the noted end as it is."""
        return self.blocks.stop.open_segment

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the blocks after the end place will take in their segment, as the end was noted last."""
        return self.blocks.stop.buffered_bytes

    def refresh(self) -> None:
        """Notes the journal's end as it is now."""
        begin_step(self)
        try:
            self.check_path()
            self.blocks.begin()
        finally:
            end_use(self)

    def look(self) -> bool:
        """Notes the journal's end as it is now, and says whether there is a record to read before it."""
        begin_step(self)
        try:
            self.blocks.begin()
            return self.blocks.advance() or self.check_path()
        except OSError:
            self.check_open()  # the files of a closed reader may be gone
            raise
        finally:
            end_use(self)

    def can_go_on(self) -> bool:
        """Returns whether there is a next record before the noted end. Raises CorruptJournal if it is damaged."""
        begin_step(self)
        try:
            return self.blocks.advance()
        finally:
            end_use(self)

    # --- Seeking ------------------------------------------------------------------------------------------------

    def seek(self, uint64_t sequence) -> None:
        """Moves to this sequence, or to the end of the gap in which it lies. Raises PositionLost if retention has removed it,
        ValueError if it is beyond the journal's end."""
        begin_step(self)
        try:
            self.blocks.begin()
            self.go_to(sequence)
        finally:
            end_use(self)

    def seek_end(self) -> None:
        """Moves to the journal's end as it is now."""
        begin_step(self)
        try:
            self.go_to_end()
        finally:
            end_use(self)

    def enter(self, SegmentFile file not None, uint64_t offset, uint64_t sequence) -> None:
        """Moves to a block that is known to stand there and to begin with this sequence."""
        begin_step(self)
        self.blocks.move_to(file, offset, sequence)
        end_use(self)

    cdef int go_to_end(self) except -1:
        while True:
            self.blocks.begin()
            try:
                file = self.segment_file(self.blocks.stop.now.slot.segment)
            except FileNotFoundError:
                if self.blocks.stop.now.slot.segment < self.first_sequence:
                    continue  # sealed and removed since the end was noted
                raise
            self.blocks.move_to(file, self.blocks.stop.now.slot.offset, self.blocks.stop.now.slot.first_sequence)
            if self.blocks.stop.limit != JLOG_NONE:
                self.blocks.begin()
                return self.go_to(max(min(self.blocks.stop.limit, self.blocks.sequence), self.first_sequence))
            if (jlog_word_used(self.blocks.stop.now.slot.publish_word) == 0
                    or self.blocks.load_from_buffer(&self.blocks.stop.now.slot)):
                break
        self.blocks.clip()
        return self.blocks.skip_to(self.blocks.end, JLOG_NONE)

    def segment_file(self, segment):
        """Returns the segment's file, to begin reading in. Its header is not checked: each block has checksums of its own, and
        a damaged header must not hide them."""
        if self.blocks.file is not None and self.blocks.file.segment == segment:
            return self.blocks.file
        return SegmentFile(self.path, segment, self.uuid, check_header=False)

    cdef int go_to(self, uint64_t sequence) except -1:
        """Does what seek() says, up to the noted end."""
        cdef bint inside
        gone = None
        while True:
            sequence = self.kept(sequence)
            try:
                inside = self.enter_segment_of(sequence)
                break
            except FileNotFoundError as error:  # removed since it was listed: now a later segment is the first one
                if error.filename == gone:
                    raise
                gone = error.filename
        if not inside:
            return 0
        while self.blocks.sequence < sequence:
            try:
                if not self.blocks.advance():
                    end = self.blocks.sequence
                    raise ValueError(f"{self.path} ends at sequence {end}; {sequence} is beyond it")
            except CorruptJournal:
                if not self.step_over_damage(sequence):
                    return 0  # the damaged bytes hold it: reading raises
                continue
            self.blocks.skip_to(self.blocks.end, sequence)
        return 0

    def kept(self, uint64_t sequence) -> int:
        """Returns the sequence itself, or the first one that is retained if only a gap lies between the two. Raises
        PositionLost if retention has removed records at or after it."""
        cdef uint64_t first = self.first_sequence
        if sequence >= first:
            return sequence
        try:
            file = SegmentFile(self.path, first, self.uuid)
        except (FileNotFoundError, CorruptJournal):
            file = None  # removed during this call, or damaged
        if file is not None and file.previous_segment != JLOG_NONE and file.previous_end_sequence <= sequence:
            return first
        raise PositionLost(f"{self.path}: the records before {first} have been removed by retention; seek to {first} or "
                           "later", first)

    cdef bint enter_segment_of(self, uint64_t sequence) except -1:
        """Moves to a block at or before this sequence. Returns False if the sequence lies in a gap, or in damaged or missing
        blocks: then reading goes on after it, or raises."""
        cdef uint64_t open_segment = self.blocks.stop.now.slot.segment
        if sequence >= open_segment and is_there(file_in(self.path, segment_name(open_segment))):
            segments = [open_segment]  # a listing would take longer than all the rest
        else:
            segments = list_segments(self.path)
        if open_segment in segments:  # a roll that died has left a file after it
            segments = segments[:segments.index(open_segment) + 1]
        if not segments:
            raise CorruptJournal(self.path, 0, "there is no segment file; restore one from a backup")
        at = max((s for s in segments if s <= sequence), default=segments[0])
        file = self.segment_file(at)
        if at > sequence:
            # Checked again: its segment may have been removed before the listing.
            self.blocks.move_to(file, SEGMENT_HEADER_BYTES, self.kept(sequence))
            return False
        if at == open_segment and sequence >= self.blocks.stop.now.slot.first_sequence:
            self.blocks.move_to(file, self.blocks.stop.now.slot.offset, self.blocks.stop.now.slot.first_sequence)
            return True
        if at == open_segment and sequence >= self.blocks.stop.written().first_sequence:
            self.blocks.move_to(file, self.blocks.stop.written().offset, self.blocks.stop.written().first_sequence)
            return True
        if sequence == open_segment:
            first, offset = sequence, SEGMENT_HEADER_BYTES
        elif at == open_segment:
            first, offset, _ = build_index(self.path, at, self.uuid, self.blocks.stop.written().offset).locate(sequence)
        elif at == segments[-1]:
            if self.first_sequence > open_segment:
                raise FileNotFoundError(ENOENT, "removed during this call", file.path)
            raise CorruptJournal(os.path.join(self.path, segment_name(open_segment)), 0, "the segment file is missing")
        else:
            following = segments[segments.index(at) + 1]
            end_offset, end_sequence, stated = segment_end(self.path, at, following, self.uuid)
            if sequence >= end_sequence:
                if stated:
                    self.blocks.move_to(self.segment_file(following), SEGMENT_HEADER_BYTES, following)
                else:
                    self.blocks.move_to(file, end_offset, end_sequence)
                return False
            first, offset = locate(self.path, at, self.uuid, end_offset, sequence)
        self.blocks.move_to(file, offset, first)
        return True

    cdef bint step_over_damage(self, uint64_t sequence) except -1:
        """Moves to the next whole block of the segment. Returns False if there is none, or if it begins after this
        sequence."""
        cdef bint is_open = self.blocks.file.segment == self.blocks.stop.now.slot.segment
        cdef uint64_t end = self.blocks.stop.written().offset if is_open else self.blocks.file.file_bytes
        block = self.blocks.file.next_block(self.blocks.offset + 1, end)
        while block is not None and block.first_sequence < self.blocks.sequence:
            block = self.blocks.file.next_block(block.offset + 1, end)
        if block is None or block.first_sequence > sequence:
            return False
        self.blocks.move_to(self.blocks.file, block.offset, block.first_sequence)
        return True

    # --- Handing out --------------------------------------------------------------------------------------------

    def read(self, Py_ssize_t max_records, Py_ssize_t max_bytes) -> RecordBatch:
        """Reads records up to the journal's end as it is now: at least one if there is any."""
        cdef RecordBatch batch = RecordBatch()
        batch.decoder = self.blocks.decoder
        begin_step(self)
        try:
            self.blocks.begin()
            self.read_into(batch, max_records, max_bytes, JLOG_NONE)
        finally:
            end_use(self)
        return batch

    def read_with(self, bytes needle not None, uint64_t end, Py_ssize_t max_records,
                  Py_ssize_t max_bytes) -> RecordBatch | None:
        """Reads records up to the sequence `end`, as read() does. It may leave out any whose value does not have the needle.
        Returns an empty batch after 32 MiB without such a record, so that the caller can stop, and None at the end."""
        cdef RecordBatch batch = RecordBatch()
        cdef bint more
        batch.needle, batch.decoder = needle, self.blocks.decoder
        begin_step(self)
        try:
            self.blocks.begin()
            more = self.read_into(batch, max_records, max_bytes, end)
        finally:
            end_use(self)
        return batch if batch.count or more else None

    cdef int read_into(self, Batch batch, Py_ssize_t max_records, Py_ssize_t max_bytes, uint64_t end) except -1:
        """Adds records to the batch, up to the noted end and to the sequence `end`. Where the batch has a needle, it may pass
        over any record without it. Returns 1 if more may follow, though the batch may be empty, and 0 otherwise. The cursor
        is taken. An error that comes after records is left to the next call. If something else interrupts it, the caller
        goes back."""
        cdef BlockReader blocks = self.blocks
        cdef jlog_record record
        cdef const uint8_t *start
        cdef const uint8_t *at
        cdef const uint8_t *found = NULL
        cdef uint64_t first, most, count, passed = 0
        cdef Py_ssize_t left = min(max_bytes, INT32_MAX), before  # a column of Arrow's holds no more
        cdef size_t size
        while batch.count < max_records and (left > 0 or batch.count == 0):
            if passed > PASSED_BYTES_MAX:
                return 1
            try:
                if blocks.sequence >= end:
                    break
                if batch.by_headers and blocks.at_whole_block(end):
                    if batch.count and batch.count + <Py_ssize_t> blocks.header.record_count > max_records:
                        break
                    batch.add_by_header(blocks.sequence, blocks.header.record_count)
                    blocks.pass_block()
                    continue
                if blocks.at == blocks.end:
                    found = NULL
                if not blocks.advance():
                    break
                if batch.needle is not None:
                    start = blocks.at
                    found = blocks.skip_to_needle(batch.needle, found, end)
                    passed += blocks.at - start
                    if blocks.at == blocks.end:
                        continue
            except BaseException as error:
                if batch.count == 0 or not is_own(error):
                    raise
                break  # the records that were read come first; the next call meets the error again
            if blocks.sequence >= end:
                break
            most = min(<uint64_t> (max_records - batch.count), end - blocks.sequence)
            if batch.needle is not None:
                most = min(most, AFTER_NEEDLE)
            start, before = blocks.at, batch.count
            try:
                blocks.at = batch.add_ready(start, reach(blocks, left), blocks.base_time_us, blocks.sequence, most)
                left -= blocks.at - start
                most -= batch.count - before
                blocks.sequence += batch.count - before
                start, first, count = blocks.at, blocks.sequence, 0
                while blocks.at < blocks.end and count < most:
                    at = blocks.at
                    blocks.at = jlog_pass_plain(at, reach(blocks, left), most - count, &count)
                    if blocks.at == at:  # it has more than a value and a timestamp, or is too large
                        size = blocks.decode(&record)
                        if batch.count + count and <Py_ssize_t> size > left:
                            left = 0
                            break
                        if not jlog_is_state(&record):
                            count += 1
                        blocks.at += size
                    left -= blocks.at - at
                if blocks.at != start:
                    batch.add(start, blocks.at - start, blocks.base_time_us, first, count)
            except BaseException as error:
                blocks.at = start  # place and sequence move together or not at all
                if batch.count == 0 or not is_own(error):
                    raise
                break
            blocks.sequence = first + count
        return 0
