from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.lock cimport LockFile
from jlog._core.page cimport jlog_buffer
from jlog._core.precommit cimport Precommit

cdef enum:
    DONE = 0
    FAILED = 1  # call.error and call.what say how
    SIGNALS = 2  # the lock is busy: look whether Ctrl-C was pressed, and come again
    TIMED_OUT = 3
    NEEDS_SEGMENT = 4  # prepare the next segment outside the lock, and come again
    NEEDS_LEASE = 5  # lease more numbers, and come again
    SYNC_FAILED = 6  # an fdatasync failed before: nobody appends until all have closed
    DAMAGED = 7  # call.what says what
    NEEDS_BODY = 8  # encode the items outside the lock, for a direct block, and come again

cdef enum:
    APPEND = 1
    FLUSH = 2
    ROLL = 3

# A segment file of one's own, about to be renamed to its place.
cdef struct Prepared:
    char name[64]
    int fd
    uint8_t *start  # header, and the block with the state
    size_t start_bytes
    uint64_t state_generation  # the state is that of this generation
    uint64_t reserved_end
    bint spoiled  # a roll with it failed: it is of no use to the next
    bint has_block  # the call's records stand behind `start` already

# One call that needs the append lock: what it wants, how far it is, what came of it.
cdef struct Call:
    int operation
    void *items  # a tuple of bytes, encoded under the lock; or NULL, and:
    const uint8_t *records  # encoded; those with the clock's time have it at 0 microseconds from the base
    uint64_t record_bytes
    uint64_t count
    uint64_t explicit_count
    int64_t explicit_max_us
    uint32_t records_crc  # of a direct block
    bint has_state
    bint direct  # into a block of its own, not into the buffer
    int64_t deadline_us  # of the monotonic clock; -1 without
    int64_t waited_us
    Prepared *prepared
    bint wants_block  # NEEDS_SEGMENT: with the records in it
    bint rolled
    bint switched
    uint64_t sealed_segment  # rolled: what is behind us now, and where its blocks end
    uint64_t sealed_end
    uint64_t sequence
    int error
    const char *what

cdef class Member:
    cdef readonly str path
    cdef readonly bytes uuid
    cdef readonly uint64_t epoch
    cdef int directory
    cdef LockFile lock_file
    cdef Precommit precommit
    cdef readonly object bounds_file
    cdef jlog_buffer buffer
    cdef readonly int slot
    cdef bint attached
    # Descriptors of segments that this process writes to: the open one, and older ones that are not synced yet.
    cdef uint64_t open_segment
    cdef int open_fd
    cdef int retained[16]
    cdef uint64_t retained_segments[16]
    cdef int retained_count

    cdef bint usable(self) noexcept nogil
    cdef int descriptor(self, uint64_t segment) noexcept nogil
    cdef void adopt_descriptor(self, uint64_t segment, int fd) noexcept nogil
    cdef int take_over(self, uint32_t *word, uint32_t dead) noexcept nogil
    cdef int complete_direct(self, Call *call) noexcept nogil
    cdef int acquire(self, uint32_t *word, Call *call) noexcept nogil
    cdef int repair(self, Call *call) noexcept nogil
    cdef void release(self, uint32_t *word) noexcept nogil
