from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.columns cimport Batch
from jlog._core.format cimport jlog_block_header, jlog_record
from jlog._core.precommit cimport Precommit, Snapshot
from jlog._core.segment cimport SegmentFile

cdef class Cursor:
    cdef readonly str path
    cdef readonly bytes uuid
    cdef readonly bint durable_only
    cdef Precommit precommit
    cdef bint writable
    cdef object lock_file
    cdef object bounds_file
    cdef SegmentFile file
    cdef const uint64_t *process
    cdef uint64_t token
    # The block that the position lies in.
    cdef uint64_t offset
    cdef uint64_t size  # of header and stored body, once the block is closed; 0 for the open one
    cdef int64_t base_time_us
    cdef const uint8_t *records
    cdef const uint8_t *at
    cdef const uint8_t *end  # as far as may be handed out now
    cdef const uint8_t *block_end
    cdef uint64_t sequence
    # What the journal held when reading last began.
    cdef Snapshot stop
    cdef bint live  # the stop is the page's; else it was computed
    cdef uint64_t stop_sequence  # durable_only: nothing from here on
    # Bytes of the segment; of the open block; decompressed.
    cdef uint8_t *window
    cdef size_t window_room
    cdef uint64_t window_offset
    cdef size_t window_bytes
    cdef uint64_t window_segment
    cdef uint8_t *body
    cdef size_t body_room
    cdef uint32_t verified
    cdef uint32_t verified_crc
    cdef uint64_t body_generation
    cdef bytes raw
    cdef object looked_at
    cdef void *wake_page

    cdef int begin(self) except -1
    cdef bint advance(self) except -1
    cdef bint load_open(self) except -1
    cdef int load_closed(self, uint64_t consumed) except -1
    cdef const jlog_block_header *block_in_window(self) except? NULL
    cdef bint next_segment(self) except -1
    cdef bint ends_here(self) except -1
    cdef int clip(self) except -1
    cdef int make_room(self, size_t size) except -1
    cdef void forget_block(self) noexcept
    cdef int read_window(self, uint64_t needed) except -1
    cdef int skip_to(self, uint64_t sequence) except -1
    cdef bint step_over_damage(self, uint64_t sequence) except -1
    cdef bint can_be_woken(self) except -1
    cdef size_t decode(self, jlog_record *record) except 0
    cdef int read_into(self, Batch batch, Py_ssize_t max_records, Py_ssize_t max_bytes, uint64_t end) except -1
