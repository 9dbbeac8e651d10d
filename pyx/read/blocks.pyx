"""Reads the blocks of a journal in order, from its segments and from the open block, in any process.

The open block is read from the buffer, and so is the closing one before it, until it is written; every other one stands in
its segment. The generation, looked at again, tells whether it was still that block's body.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t

from jlog._core.read.end cimport JournalEnd
from jlog._core.format.format cimport (
    JLOG_CODEC_LZ4,
    JLOG_NONE,
    jlog_block_header,
    jlog_crc32c,
    jlog_decode_record,
    jlog_headers_valid,
    jlog_load64,
    jlog_record,
)
from jlog._core.system.lock cimport process_token
from jlog._core.read.open_block cimport OpenBlock
from jlog._core.buffer.page cimport JLOG_BASE_BYTES, jlog_slot, jlog_word_raw, jlog_word_used
from jlog._core.segments.segment cimport SegmentFile
from jlog._core.segments.window cimport Window

from jlog._core.segments.index import segment_end
from jlog._core.segments.segment import SEGMENT_HEADER_BYTES, decompress, list_segments
from jlog.errors import CorruptJournal, JournalClosed, JournalError, PositionLost


cdef class Blocks:
    """Stands in one block, of which the records from `at` to `end` have not been handed out, and goes on to the next."""

    def __init__(self, JournalEnd stop not None):
        self.path = stop.path
        self.uuid = stop.uuid
        self.process = process_token()
        self.token = self.process[0]
        self.stop = stop
        self.window = Window()
        self.open_block = OpenBlock()

    @property
    def first_sequence(self) -> int:
        """Of the first record that is kept."""
        return self.stop.first_kept()

    def check_open(self) -> None:
        """JournalClosed where it is closed, or the parent's."""
        if self.token == 0 or self.process[0] != self.token:
            raise JournalClosed(f"{self.path}: this reader is closed, or belongs to the process that this one was forked "
                                "from; open a new one")

    cdef int begin(self) except -1:
        """Notes the end as it is now: how far reading goes until the next begin()."""
        self.stop.note()
        return self.clip()

    cdef int clip(self) except -1:
        """How far the current block may be handed out."""
        cdef uint64_t raw
        self.end = self.block_end
        if self.records != NULL and self.in_open_block():
            raw = jlog_word_raw(self.stop.now.slot.word)
            if self.records + raw < self.end:
                self.end = self.records + raw
            if self.end < self.at:
                self.end = self.at
                raise CorruptJournal(self.stop.page_path, self.stop.body_offset(&self.stop.now.slot),
                                     "the open block is shorter than what was read of it")
        return 0

    cdef bint in_open_block(self) noexcept:
        return self.file.segment == self.stop.now.slot.segment and self.offset == self.stop.now.slot.offset

    cdef bint in_closing_block(self) noexcept:
        return (self.stop.now.is_closing and self.file.segment == self.stop.now.closing.segment
                and self.offset == self.stop.now.closing.offset)

    cdef bint advance(self) except -1:
        """Makes at < end, loading what comes next, without handing it out. False at the end as begin() noted it."""
        cdef uint64_t raw, consumed
        while self.at == self.end:
            if self.token == 0:
                self.check_open()
            if self.sequence == self.stop.now.slot.first_sequence and jlog_word_used(self.stop.now.slot.word) == 0:
                # What may stand before the end is state, in a file that another may have replaced since.
                if self.file.segment != self.stop.now.slot.segment:
                    self.let_go()
                return False
            if self.sequence >= self.stop.limit:
                return False
            consumed = self.at - self.records if self.records != NULL else 0
            if self.in_open_block():
                raw = jlog_word_raw(self.stop.now.slot.word)
                if consumed >= raw:
                    return False
                if not self.load_from_buffer(&self.stop.now.slot):
                    self.load_closed(consumed)
            elif self.size == 0 and self.in_closing_block():
                if consumed == jlog_word_raw(self.stop.now.closing.word):
                    if self.sequence != self.stop.now.slot.first_sequence:
                        raise self.damage(f"the closing block ends with sequence {self.sequence}, and the open one begins with "
                                          f"{self.stop.now.slot.first_sequence}")
                    self.offset = self.stop.now.slot.offset
                    self.forget_block()
                elif not self.load_from_buffer(&self.stop.now.closing):
                    self.load_closed(consumed)
            elif self.records == NULL:
                if self.load_closed(0) == 0:
                    self.next_segment()
            elif self.size == 0:  # the open block when it was read; it stands in the segment now
                self.load_closed(consumed)
            else:
                if self.sequence != self.end_sequence:
                    raise self.damage(f"the block's records end with sequence {self.sequence}, its header says "
                                      f"{self.end_sequence}")
                self.offset += self.size
                self.forget_block()
            self.clip()
        return True

    cdef int let_go(self) except -1:
        """All of the current segment is read, and another one is open: its file is not needed any more, and once it is removed
        it takes up space as long as it is open."""
        try:
            found = SegmentFile(self.path, self.stop.now.slot.segment, self.uuid, check_header=False)
        except (OSError, JournalError):
            return 0  # the next record will tell
        self.move_to(found, self.stop.now.slot.offset, self.sequence)
        return 0

    cdef void forget_block(self) noexcept:
        self.records = self.at = self.end = self.block_end = NULL
        self.size = 0

    cdef bint load_from_buffer(self, const jlog_slot *slot) except -1:
        """What was published in this block. False when it stands in its segment by now."""
        cdef bint inside = self.records != NULL
        cdef uint64_t consumed = self.at - self.records if inside else 0
        if inside and self.size != 0:
            return False
        self.open_block.make_room(jlog_word_used(slot.word))
        if inside:  # what is held may lie elsewhere now
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
        self.block_end = self.open_block.body + jlog_word_used(slot.word)
        self.size = 0
        return True

    cdef int load_closed(self, uint64_t consumed) except -1:
        """The block at this place of the segment, reading on behind `consumed` bytes of its records. 0 where none
        stands, which at the end of a sealed segment is no damage."""
        try:
            return self.load_from_file(consumed)
        except CorruptJournal:
            if not self.reopen():
                raise
        return self.load_from_file(consumed if self.records != NULL else 0)

    cdef bint reopen(self) except -1:
        """Whether another file has the segment's name now, where what comes then is in that one only: after a failed fdatasync
        the blocks are copied to a new one, and one that holds state alone is replaced by a shorter one."""
        try:
            found = SegmentFile(self.path, self.file.segment, self.uuid, check_header=False)
        except FileNotFoundError:
            return False
        if os.path.sameopenfile(found.fileno(), self.file.fileno()):
            return False
        self.window.forget()
        if self.sequence == found.segment:
            self.move_to(found, SEGMENT_HEADER_BYTES, found.segment)
        self.file = found
        return True

    cdef int load_from_file(self, uint64_t consumed) except -1:
        cdef bint is_open = self.file.segment == self.stop.now.slot.segment
        cdef uint64_t open_offset = self.stop.written().offset if is_open else JLOG_NONE
        cdef const char *problem
        cdef const jlog_block_header *header = self.window.block(self.file, self.offset, open_offset, &problem)
        cdef const uint8_t *stored
        if header == NULL:
            if problem != NULL and not self.ends_here():
                raise self.damage(problem.decode())
            if consumed or is_open:
                raise self.damage("no block stands here")
            return 0
        stored = <const uint8_t *> (header + 1)
        if consumed == 0 and header.first_sequence != self.sequence:
            if self.ends_here():
                return 0
            raise self.damage(f"the block begins with sequence {header.first_sequence} instead of {self.sequence}")
        if jlog_crc32c(0, stored, header.stored_bytes) != header.stored_crc:
            self.window.forget()
            header = self.window.block(self.file, self.offset, open_offset, &problem)
            stored = <const uint8_t *> (header + 1)
            if header == NULL or jlog_crc32c(0, stored, header.stored_bytes) != header.stored_crc:
                if consumed == 0 and self.ends_here():
                    return 0  # torn by a writer that was killed, and rolled away from before anybody cut it off
                raise self.damage("the block's body fails its checksum")
        if consumed > header.raw_bytes:
            raise self.damage(f"the block holds {header.raw_bytes} bytes of records, {consumed} were read already")
        if header.codec == JLOG_CODEC_LZ4:
            self.decompress_body(stored, header)
            stored = <const uint8_t *> PyBytes_AS_STRING(self.raw)
        self.base_time_us = header.base_time_us
        self.end_sequence = header.first_sequence + header.record_count
        self.records = stored
        self.at = self.end = self.records + consumed
        self.block_end = self.records + header.raw_bytes
        self.size = sizeof(jlog_block_header) + header.stored_bytes
        return 1

    cdef int decompress_body(self, const uint8_t *stored, const jlog_block_header *header) except -1:
        """Into self.raw."""
        cdef bytes raw
        try:
            raw = decompress(PyBytes_FromStringAndSize(<const char *> stored, header.stored_bytes), header.raw_bytes)
        except ValueError as error:
            raise self.damage(str(error)) from None
        if jlog_crc32c(0, <const uint8_t *> raw, header.raw_bytes) != header.raw_crc:
            raise self.damage("the block's body fails its checksum once decompressed")
        self.raw = raw
        return 0

    def damage(self, reason):
        return CorruptJournal(self.file.path, self.offset, reason)

    cdef bint ends_here(self) except -1:
        """Whether the next segment's header says that this one's blocks end at this place. PositionLost where retention has
        removed that segment."""
        if self.file.segment == self.stop.now.slot.segment:
            return False
        following = min((s for s in list_segments(self.path) if s > self.file.segment), default=None)
        try:
            if following is not None and segment_end(self.path, self.file.segment, following, self.uuid) == (
                    self.offset, self.sequence, True):
                return True
        except FileNotFoundError:
            pass  # cleaned in this moment, or before the listing
        self.raise_if_lost()
        return False

    cdef bint next_segment(self) except -1:
        """Goes on in the segment whose header says that it follows here."""
        found = None
        for name in [s for s in list_segments(self.path) if s > self.file.segment and s >= self.sequence]:
            try:
                found = SegmentFile(self.path, name, self.uuid)
            except FileNotFoundError:
                continue  # cleaned in this moment
            break
        if found is None:
            self.raise_if_lost()  # all that were listed have been cleaned meanwhile
            raise self.damage("no block stands here, and no segment follows")
        if (found.previous_segment, found.previous_end_offset, found.previous_end_sequence) != (
                self.file.segment, self.offset, self.sequence):
            if self.reopen():
                return False
            self.raise_if_lost()
            raise self.damage(f"no block stands here, and the next segment {found.path} follows another place")
        self.move_to(found, SEGMENT_HEADER_BYTES, found.segment)
        return True

    def raise_if_lost(self):
        first = self.first_sequence
        if first > self.sequence:
            raise PositionLost(f"{self.path}: retention has removed the records from {self.sequence} to {first - 1}; seek to "
                               f"{first} to go on", first)

    cdef void move_to(self, SegmentFile file, uint64_t offset, uint64_t sequence) noexcept:
        self.file = file
        self.offset = offset
        self.sequence = sequence
        self.forget_block()

    cdef size_t decode(self, jlog_record *record) except 0:
        cdef size_t size = jlog_decode_record(self.at, self.end - self.at, self.base_time_us, record)
        if size == 0:
            raise self.damage("a record of the block does not fit into it")
        if record.headers_bytes != 0 and not jlog_headers_valid(record.headers, record.headers_bytes):
            raise self.damage("the headers of a record do not fill their bytes")
        return size
