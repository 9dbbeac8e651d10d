from libc.stdint cimport int64_t, uint8_t, uint64_t

from jlog._core.read.end cimport JournalEnd
from jlog._core.format.format cimport jlog_block_header, jlog_record
from jlog._core.read.open_block cimport OpenBlock
from jlog._core.buffer.page cimport jlog_slot
from jlog._core.segments.segment cimport SegmentFile
from jlog._core.segments.window cimport Window

cdef class Blocks:
    cdef readonly str path
    cdef readonly bytes uuid
    cdef JournalEnd stop  # as it was when reading last began
    cdef const uint64_t *process
    cdef uint64_t token
    # The block, and where in it the next record stands.
    cdef SegmentFile file
    cdef uint64_t offset
    cdef uint64_t size  # of header and stored body, once the block is closed; 0 for what is read from the buffer
    cdef int64_t base_time_us
    cdef const uint8_t *records
    cdef const uint8_t *at
    cdef const uint8_t *end  # as far as may be handed out now
    cdef const uint8_t *block_end
    cdef uint64_t sequence
    cdef uint64_t end_sequence  # behind the closed block's last record, as its header says
    # What its records are kept in.
    cdef Window window
    cdef OpenBlock open_block
    cdef bytes raw  # decompressed

    cdef int begin(self) except -1
    cdef int clip(self) except -1
    cdef bint in_open_block(self) noexcept
    cdef bint advance(self) except -1
    cdef void move_to(self, SegmentFile file, uint64_t offset, uint64_t sequence) noexcept
    cdef int let_go(self) except -1
    cdef void forget_block(self) noexcept
    cdef bint in_closing_block(self) noexcept
    cdef bint load_from_buffer(self, const jlog_slot *slot) except -1
    cdef int load_closed(self, uint64_t consumed) except -1
    cdef bint reopen(self) except -1
    cdef int load_from_file(self, uint64_t consumed) except -1
    cdef int decompress_body(self, const uint8_t *stored, const jlog_block_header *header) except -1
    cdef bint ends_here(self) except -1
    cdef bint next_segment(self) except -1
    cdef size_t decode(self, jlog_record *record) except 0
