from libc.stdint cimport int64_t, uint8_t, uint64_t

from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.format.format cimport jlog_block_header, jlog_record
from jlog._core.read.open_block cimport OpenBlock
from jlog._core.buffer.page cimport jlog_slot
from jlog._core.segments.segment cimport ReadAhead, SegmentFile

cdef enum BlockSource:  # where the loaded block came from
    NO_BLOCK  # no block is loaded
    FROM_BUFFER  # a copy of the open or the immutable block, with the records that were published then
    FROM_SEGMENT  # a stored block, with all of its records

cdef class BlockReader:
    cdef object path
    cdef bytes uuid
    cdef JournalEnd stop  # the end as begin() noted it last
    cdef bint closed  # loads nothing more
    cdef object decoder  # of the records; None: the reader has no codec
    # The place of the block, and the next record's sequence.
    cdef SegmentFile file
    cdef uint64_t offset
    cdef uint64_t sequence
    # The loaded block.
    cdef BlockSource source
    cdef int64_t base_time_us
    cdef const uint8_t *records
    cdef const uint8_t *at  # the next record
    cdef const uint8_t *end  # end of the records that may be handed out now
    cdef const uint8_t *block_end
    cdef uint64_t size  # bytes of header and stored body; of a stored block only
    cdef uint64_t end_sequence  # end of the block's sequences, as its header says; of a stored block only
    # The memory that holds its records.
    cdef ReadAhead window
    cdef ReadAhead state_window  # of a segment's first block: a search that begins there keeps the block that it comes from
    cdef OpenBlock open_block
    cdef bytes raw  # a decompressed body
    cdef jlog_block_header header  # of the block that at_whole_block() has met

    cdef int begin(self) except -1
    cdef int clip(self) except -1
    cdef bint in_open_block(self) noexcept
    cdef bint in_immutable_block(self) noexcept
    cdef uint64_t consumed(self) noexcept
    cdef int state(self) noexcept
    cdef bint advance(self) except -1
    cdef bint at_whole_block(self, uint64_t end) except -1
    cdef void pass_block(self) noexcept
    cdef void move_to(self, SegmentFile file, uint64_t offset, uint64_t sequence) noexcept
    cdef int leave_sealed_segment(self) except -1
    cdef int leave_immutable_block(self) except -1
    cdef int leave_stored_block(self) except -1
    cdef void forget_block(self) noexcept
    cdef int load(self, const jlog_slot *slot) except -1
    cdef bint load_from_buffer(self, const jlog_slot *slot) except -1
    cdef bint load_stored(self, uint64_t consumed) except -1
    cdef bint reopen(self) except -1
    cdef bint load_from_file(self, uint64_t consumed) except -1
    cdef SegmentFile next_by_name(self)
    cdef SegmentFile next_listed(self)
    cdef bint is_next(self, SegmentFile found) noexcept
    cdef bint ends_here(self) except -1
    cdef bint next_segment(self) except -1
    cdef damage(self, reason)
    cdef int raise_if_lost(self) except -1
    cdef size_t decode(self, jlog_record *record) except 0
    cdef int skip_to(self, const uint8_t *limit, uint64_t sequence) except -1
    cdef const uint8_t *skip_to_needle(self, bytes needle, const uint8_t *found, uint64_t sequence) except NULL

cdef closed_error(path)
