"""Reads the blocks of a journal in order, from its segments and from the buffer, in any process.

The open block is read from the buffer, and so is the immutable block before it until it is written back. All other blocks are
read from their segments. The generation is looked at again after a read, and tells whether the body was still that block's.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint8_t, uint64_t

from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.format.format cimport (
    JLOG_CODEC_LZ4, JLOG_KIND_RECORDS, JLOG_NONE, jlog_block_header, jlog_crc32c, jlog_decode_record, jlog_headers_valid,
    jlog_is_state, jlog_load64, jlog_pass_plain, jlog_record)
from jlog._core.read.open_block cimport OpenBlock
from jlog._core.buffer.page cimport JLOG_BASE_BYTES, jlog_slot, jlog_word_raw, jlog_word_used
from jlog._core.segments.segment cimport ReadAhead, SegmentFile, body_of
from jlog._core.segments.walk cimport jlog_block_end

from jlog._core.segments.index import segment_end
from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.segments.segment import list_segments
from jlog.errors import CorruptJournal, JournalClosed, JournalError, PositionLost

cdef extern from "read/find.h" nogil:
    const uint8_t *jlog_find(const uint8_t *at, const uint8_t *end, const uint8_t *needle, size_t bytes)


cdef enum:
    STATE_WINDOW_BYTES = 4 << 10
    SMALL_BYTES = 1 << 10  # blocks below this size are read together: reading each header by itself would take longer


cdef enum State:
    AT_END  # the next record is not published, or not durable
    AT_EMPTY_BLOCK  # the open block comes next, and has no record
    IN_OPEN_BLOCK  # the open block stands here, and has more records than were handed out
    IN_IMMUTABLE_BLOCK  # the immutable block stands here, and has more records than were handed out
    AFTER_IMMUTABLE_BLOCK  # all records of the immutable block were handed out
    IN_WRITTEN_BLOCK  # the loaded block came from the buffer, and stands in its segment by now
    AFTER_STORED_BLOCK  # the loaded block came from its segment, and all of its records were handed out
    BETWEEN_BLOCKS  # no block is loaded, and the next one is in a segment


cdef class BlockReader:
    """A place in the journal's blocks. The records from `at` to `end` of the loaded block have not been handed out yet. After
    them advance() loads the next records."""

    def __init__(self, JournalEnd stop not None):
        self.path = stop.path
        self.uuid = stop.uuid
        self.stop = stop
        self.window, self.state_window = ReadAhead(), ReadAhead(STATE_WINDOW_BYTES)
        self.open_block = OpenBlock()

    cdef int begin(self) except -1:
        """Notes the journal's end. Reading goes up to it until the next begin()."""
        self.stop.note()
        return self.clip()

    cdef int clip(self) except -1:
        """Sets how far the loaded block may be handed out: of the open block, only the records before the noted end."""
        cdef uint64_t raw
        self.end = self.block_end
        if self.source != NO_BLOCK and self.in_open_block():
            raw = jlog_word_raw(self.stop.now.slot.publish_word)
            if self.records + raw < self.end:
                self.end = self.records + raw
            if self.end < self.at:
                self.end = self.at
                raise CorruptJournal(self.stop.page_path, self.stop.body_offset(&self.stop.now.slot),
                                     "the open block is shorter than what was read of it")
        return 0

    cdef bint in_open_block(self) noexcept:
        return self.file.segment == self.stop.now.slot.segment and self.offset == self.stop.now.slot.offset

    cdef bint in_immutable_block(self) noexcept:
        return (self.stop.now.has_immutable and self.file.segment == self.stop.now.immutable.segment
                and self.offset == self.stop.now.immutable.offset)

    cdef uint64_t consumed(self) noexcept:
        """Returns the bytes of the loaded block's records that were handed out."""
        return self.at - self.records if self.source != NO_BLOCK else 0

    cdef int state(self) noexcept:
        """Returns where the reader stands once at == end, judged by the noted end and the loaded block."""
        cdef const jlog_slot *open_slot = &self.stop.now.slot
        if self.sequence == open_slot.first_sequence and jlog_word_used(open_slot.publish_word) == 0:
            return AT_EMPTY_BLOCK
        if self.sequence >= self.stop.limit:
            return AT_END
        if self.in_open_block():
            return IN_OPEN_BLOCK if self.consumed() < jlog_word_raw(open_slot.publish_word) else AT_END
        if self.source != FROM_SEGMENT and self.in_immutable_block():
            return (IN_IMMUTABLE_BLOCK if self.consumed() != jlog_word_raw(self.stop.now.immutable.publish_word)
                    else AFTER_IMMUTABLE_BLOCK)
        if self.source == NO_BLOCK:
            return BETWEEN_BLOCKS
        return IN_WRITTEN_BLOCK if self.source == FROM_BUFFER else AFTER_STORED_BLOCK

    cdef bint advance(self) except -1:
        """Makes at < end by loading the next records, without handing them out. Returns False at the noted end."""
        cdef int state
        while self.at == self.end:
            if self.closed:
                raise closed_error(self.path)
            state = self.state()
            if state == AT_END:
                return False
            elif state == AT_EMPTY_BLOCK:
                self.leave_sealed_segment()
                return False
            elif state == IN_OPEN_BLOCK:
                self.load(&self.stop.now.slot)
            elif state == IN_IMMUTABLE_BLOCK:
                self.load(&self.stop.now.immutable)
            elif state == AFTER_IMMUTABLE_BLOCK:
                self.leave_immutable_block()
            elif state == IN_WRITTEN_BLOCK:
                self.load_stored(self.consumed())
            elif state == AFTER_STORED_BLOCK:
                self.leave_stored_block()
            elif self.load_stored(0) == 0:
                self.next_segment()
            self.clip()
        return True

    cdef bint at_whole_block(self, uint64_t end) except -1:
        """Says whether the next records are those of a block in its segment, all before the sequence `end`. Then its `header`
        is read, and its body is not. Otherwise advance() finds out what comes next, also where it is damage."""
        cdef bint small = self.header.kind == JLOG_KIND_RECORDS and self.header.stored_bytes < SMALL_BYTES  # the one before
        cdef uint64_t open_offset
        cdef int state = self.state() if self.at == self.end and not self.closed else AT_END
        if state == AFTER_STORED_BLOCK:
            self.leave_stored_block()
            state = self.state()
        if state != BETWEEN_BLOCKS:
            return False
        open_offset = self.stop.written().offset if self.file.segment == self.stop.now.slot.segment else JLOG_NONE
        if self.offset >= open_offset:
            return False
        if not self.window.header(self.file, self.offset, open_offset, small, &self.header):
            return self.ends_here() and self.next_segment() and self.at_whole_block(end)
        return (self.header.first_sequence == self.sequence
                and self.sequence + self.header.record_count <= min(end, self.stop.limit))

    cdef void pass_block(self) noexcept:
        """Goes on after the block that at_whole_block() has met."""
        self.offset = jlog_block_end(&self.header, self.offset)
        self.sequence += self.header.record_count

    cdef int leave_sealed_segment(self) except -1:
        """Closes a segment that is read to its end once another one is open, because a removed file takes up space as long as
        it is open. Only state may still follow before the end, in a file that another one may have replaced since."""
        if self.file.segment == self.stop.now.slot.segment:
            return 0
        try:
            found = SegmentFile(self.path, self.stop.now.slot.segment, self.uuid, check_header=False)
        except (OSError, JournalError):
            return 0  # loading the next record raises it again
        self.move_to(found, self.stop.now.slot.offset, self.sequence)
        return 0

    cdef int leave_immutable_block(self) except -1:
        """Goes on to the open block."""
        if self.sequence != self.stop.now.slot.first_sequence:
            raise self.damage(f"the immutable block ends with sequence {self.sequence}, and the open one begins with "
                              f"{self.stop.now.slot.first_sequence}")
        self.offset = self.stop.now.slot.offset
        self.forget_block()
        return 0

    cdef int leave_stored_block(self) except -1:
        """Goes on to the place after the loaded block, in the same segment."""
        if self.sequence != self.end_sequence:
            raise self.damage(f"the block's records end with sequence {self.sequence}, its header says "
                              f"{self.end_sequence}")
        self.offset += self.size
        self.forget_block()
        return 0

    cdef void forget_block(self) noexcept:
        self.records = self.at = self.end = self.block_end = NULL
        self.source = NO_BLOCK

    cdef int load(self, const jlog_slot *slot) except -1:
        """Loads the records that are published in this slot's block."""
        if not self.load_from_buffer(slot):
            self.load_stored(self.consumed())
        return 0

    cdef bint load_from_buffer(self, const jlog_slot *slot) except -1:
        """Loads the records that are published in this slot's block. Returns False if the block stands in its segment by
        now."""
        cdef bint inside = self.source != NO_BLOCK
        cdef uint64_t consumed = self.consumed()
        if self.source == FROM_SEGMENT:
            return False
        self.open_block.reserve(jlog_word_used(slot.publish_word))
        if inside:  # the copy may lie at another address now
            self.records = self.open_block.body + JLOG_BASE_BYTES
            self.at = self.end = self.block_end = self.records + consumed
        if not self.open_block.read(self.stop, slot):
            return False
        if not inside and self.sequence != slot.first_sequence:
            raise self.damage(f"the blocks end with sequence {self.sequence}, and the open one begins with "
                              f"{slot.first_sequence}")
        self.base_time_us = jlog_load64(self.open_block.body)
        self.records = self.open_block.body + JLOG_BASE_BYTES
        self.at = self.end = self.records + consumed
        self.block_end = self.open_block.body + jlog_word_used(slot.publish_word)
        self.source = FROM_BUFFER
        return True

    cdef bint load_stored(self, uint64_t consumed) except -1:
        """Loads the block at this place of the segment, and goes on after `consumed` bytes of its records. Returns False if no
        block stands there and the segment ends properly."""
        try:
            return self.load_from_file(consumed)
        except CorruptJournal:
            if not self.reopen():
                raise
        return self.load_from_file(consumed if self.source != NO_BLOCK else 0)

    cdef bint reopen(self) except -1:
        """Goes on in the file that has the segment's name now; returns False if it is the same file. After a failed fdatasync
        the blocks are copied to a new file, and a segment that holds state alone is replaced by a shorter one."""
        try:
            found = SegmentFile(self.path, self.file.segment, self.uuid, check_header=False)
        except FileNotFoundError:
            return False
        if os.path.sameopenfile(found.fileno(), self.file.fileno()):
            return False
        self.window.forget()
        self.state_window.forget()
        if self.sequence == found.segment:
            self.move_to(found, SEGMENT_HEADER_BYTES, found.segment)
        self.file = found
        return True

    cdef bint load_from_file(self, uint64_t consumed) except -1:
        """Does what load_stored() says, in the file that is open."""
        cdef bint is_open = self.file.segment == self.stop.now.slot.segment
        cdef uint64_t open_offset = self.stop.written().offset if is_open else JLOG_NONE
        cdef const char *problem
        cdef ReadAhead window = self.window if self.offset > <uint64_t> SEGMENT_HEADER_BYTES else self.state_window
        cdef const jlog_block_header *header = window.block(self.file, self.offset, open_offset, &problem)
        cdef const uint8_t *stored
        if header == NULL:
            if problem != NULL and not self.ends_here():
                raise self.damage(problem.decode())
            if consumed or is_open:
                raise self.damage("there is no block here")
            return False
        stored = <const uint8_t *> (header + 1)
        if consumed == 0 and header.first_sequence != self.sequence:
            if self.ends_here():
                return False
            raise self.damage(f"the block begins with sequence {header.first_sequence} instead of {self.sequence}")
        if jlog_crc32c(0, stored, header.stored_bytes) != header.stored_crc:
            window.forget()
            header = window.block(self.file, self.offset, open_offset, &problem)
            stored = <const uint8_t *> (header + 1)
            if header == NULL or jlog_crc32c(0, stored, header.stored_bytes) != header.stored_crc:
                if consumed == 0 and self.ends_here():
                    return False  # a killed writer tore it, and the journal rolled before the file was cut off
                raise self.damage("the block's body fails its checksum")
        if consumed > header.raw_bytes:
            raise self.damage(f"the block holds {header.raw_bytes} bytes of records, {consumed} were read already")
        if header.codec == JLOG_CODEC_LZ4:
            self.raw = body_of(self.file.path, self.offset, header, stored)
            stored = <const uint8_t *> PyBytes_AS_STRING(self.raw)
        self.base_time_us = header.base_time_us
        self.end_sequence = header.first_sequence + header.record_count
        self.records = stored
        self.at = self.end = self.records + consumed
        self.block_end = self.records + header.raw_bytes
        self.size = sizeof(jlog_block_header) + header.stored_bytes
        self.source = FROM_SEGMENT
        return True

    cdef damage(self, reason):
        return CorruptJournal(self.file.path, self.offset, reason)

    cdef SegmentFile next_by_name(self):
        """Returns the segment that is named by the next sequence; None without one. Only a gap gives the next segment another
        name. So reading a segment takes the same time among 10 segments and among 100,000, which would have to be listed."""
        if self.sequence <= self.file.segment:
            return None
        try:
            return SegmentFile(self.path, self.sequence, self.uuid)
        except (OSError, CorruptJournal):
            return None  # a gap, or an error that the listing meets again

    cdef SegmentFile next_listed(self):
        """Returns the first segment after this one that has the next sequence or a later one; None without one."""
        for segment in [s for s in list_segments(self.path) if s > self.file.segment and s >= self.sequence]:
            try:
                return SegmentFile(self.path, segment, self.uuid)
            except FileNotFoundError:
                continue  # retention removed it during this call
        return None

    cdef bint is_next(self, SegmentFile found) noexcept:
        return (found.previous_segment == self.file.segment and found.previous_end_offset == self.offset
                and found.previous_end_sequence == self.sequence)

    cdef bint ends_here(self) except -1:
        """Returns whether the next segment's header says that this segment's blocks end at this place. Raises PositionLost if
        retention has removed that segment."""
        cdef SegmentFile found
        if self.file.segment == self.stop.now.slot.segment:
            return False
        found = self.next_by_name()
        if found is not None and self.is_next(found):
            return True
        following = min((s for s in list_segments(self.path) if s > self.file.segment), default=None)
        try:
            if following is not None and segment_end(self.path, self.file.segment, following, self.uuid) == (
                    self.offset, self.sequence, True):
                return True
        except FileNotFoundError:
            pass  # retention removed it during this call, or just before
        self.raise_if_lost()
        return False

    cdef bint next_segment(self) except -1:
        """Goes on in the next segment, whose header says that it follows this place. Returns False if the current segment's
        file was replaced instead, and has to be read again."""
        cdef SegmentFile found = self.next_by_name() or self.next_listed()
        if found is None:
            self.raise_if_lost()  # retention may have removed all that were listed
            raise self.damage("there is no block here, and no segment follows")
        if not self.is_next(found):
            if self.reopen():
                return False
            self.raise_if_lost()
            raise self.damage(f"there is no block here, and the next segment, {found.path}, does not continue here")
        self.move_to(found, SEGMENT_HEADER_BYTES, found.segment)
        return True

    cdef int raise_if_lost(self) except -1:
        """Raises PositionLost if retention has removed the next record."""
        cdef uint64_t first = self.stop.first_retained()
        if first > self.sequence:
            raise PositionLost(f"{self.path}: retention has removed the records from {self.sequence} to {first - 1}; seek to "
                               f"{first} to go on", first)
        return 0

    cdef void move_to(self, SegmentFile file, uint64_t offset, uint64_t sequence) noexcept:
        self.file = file
        self.offset = offset
        self.sequence = sequence
        self.forget_block()

    cdef size_t decode(self, jlog_record *record) except 0:
        """Decodes the record at `at`, and returns its size. Raises CorruptJournal if it is none."""
        cdef size_t size = jlog_decode_record(self.at, self.end - self.at, self.base_time_us, record)
        if size == 0:
            raise self.damage("a record of the block does not fit into it")
        if record.headers_bytes != 0 and not jlog_headers_valid(record.headers, record.headers_bytes):
            raise self.damage("the headers of a record do not fill their bytes")
        return size

    cdef int skip_to(self, const uint8_t *limit, uint64_t sequence) except -1:
        """Moves within the loaded block, to this sequence or to the record that reaches beyond the limit."""
        cdef jlog_record record
        cdef const uint8_t *before
        cdef uint64_t count
        cdef size_t size
        while self.at < limit and self.sequence < sequence:
            before, count = self.at, 0
            self.at = jlog_pass_plain(before, limit, sequence - self.sequence, &count)
            if self.at == before:  # it has more than a value and a timestamp, or is the one
                size = self.decode(&record)
                if size > <size_t> (limit - before):
                    break
                self.at += size
                count = not jlog_is_state(&record)
            self.sequence += count
        return 0

    cdef const uint8_t *skip_to_needle(self, bytes needle, const uint8_t *found, uint64_t sequence) except NULL:
        """Moves within the loaded block, to this sequence or to the next record that may have the needle. Returns where the
        needle is, or the block's end. `found`: what the call before returned; NULL in a new block."""
        if found < self.at:
            found = jlog_find(self.at, self.end, <const uint8_t *> PyBytes_AS_STRING(needle), len(needle))
        self.skip_to(found, sequence)
        PyErr_CheckSignals()
        return found


cdef closed_error(path):
    return JournalClosed(f"{path}: this reader is closed, or belongs to the process that this one was forked from; open a new "
                         "one")
