from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.system.lock cimport LockFile
from jlog._core.buffer.page cimport jlog_buffer, jlog_page
from jlog._core.buffer.precommit cimport Precommit

cdef enum:
    DONE = 0
    FAILED = 1  # call.error and call.what say how
    SIGNALS = 2  # the lock is busy: look whether Ctrl-C was pressed, and come again
    TIMED_OUT = 3
    NEEDS_SEGMENT = 4  # prepare the next segment outside the lock, and come again
    NEEDS_LEASE = 5  # lease more numbers, and come again
    SYNC_FAILED = 6  # an fdatasync failed before: nobody appends until all have closed
    DAMAGED = 7  # call.what says what
    NEEDS_BODY = 8  # encode and compress outside the lock, for a direct block, and come again
    NEEDS_PACKING = 9  # compress the open block, which this call has closed, outside the lock, and come again
    NEEDS_PATIENCE = 10  # another call has closed the open block and compresses it: come again when it is gone
    NEEDS_STATE = 11  # other state was stored meanwhile: look whether there is still room for this, and come again
    NEEDS_ROOM = 12  # the journal is at its limit: clean outside the lock, and come again
    NEEDS_WRITE_OUT = 13  # the closing block must be in its segment: see to it outside the lock, and come again

cdef enum:
    APPEND = 1
    FLUSH = 2
    ROLL = 3
    OPTIONS = 4
    COUNT = 5
    TURN = 6
    ADOPT = 7

# The journal's options, as plain numbers. All but `precommit` stand in the page.
cdef struct Options:
    uint64_t precommit
    uint64_t segment_bytes
    uint64_t limit_bytes
    uint64_t sync_interval_us
    uint64_t roll_us
    uint32_t codec
    uint32_t sync_mode

# The open block, compressed; of no use once the generation has gone.
cdef struct Packed:
    uint64_t generation
    const uint8_t *data  # NULL: it stays as it is
    uint32_t size
    uint32_t crc

# The life of an attachment, in this order. It is changed with the GIL held.
cdef enum:
    OPENING = 0
    OPEN = 1
    CLOSING = 2
    CLOSED = 3

cdef enum:
    RETAINED_MAX = 32  # twice what the mark may stay behind

cdef struct Descriptor:
    uint64_t segment
    uint64_t incarnation  # the page's, when it was opened
    int fd
    uint64_t doubtful  # blocks of generations before this one were written before, and may have failed: it does not tell

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
    uint64_t replaces  # the open segment, whose name it shall take, complete and synced; or JLOG_NONE

# One call that needs the append lock: what it wants, how far it is, what came of it.
cdef struct Call:
    int operation
    void *items  # a tuple of bytes, encoded under the lock; or NULL, and:
    void *body  # a Body, of which:
    const uint8_t *records  # encoded; those with the clock's time have it at 0 microseconds from the base
    uint64_t record_bytes
    uint64_t count
    uint64_t explicit_count
    int64_t explicit_max_us
    const uint8_t *stored  # of a direct block: as it goes into the file; NULL until it is known to become one
    uint64_t stored_bytes
    uint32_t stored_crc
    uint32_t records_crc
    uint8_t codec
    bint has_state
    void *state  # a dict: what this call stores
    uint64_t state_generation  # there is room for it, as of this generation
    uint64_t published_generation  # a direct block: what came to be open when it was published,
    uint64_t published_segment  # where it stands,
    uint64_t published_end
    uint64_t published_incarnation
    bint direct  # into a block of its own, not into the buffer
    uint64_t completed_for  # ADOPT: the generation that the prepared file is right for,
    uint64_t last_offset  # where its last block begins,
    uint64_t end  # and where that ends
    uint64_t block_count  # how many hold the records,
    int64_t clock_us  # and the time of those that have the clock's
    bint adopted
    Options *options
    uint64_t segment  # COUNT: the open one then,
    uint64_t sealed_bytes  # and what was counted; `count` says whether it was taken
    int made_room  # so often was it tried
    uint64_t closed_generation  # which this call has closed, or has waited for long enough
    uint64_t flushed_generation  # FLUSH: done when it has gone
    Packed packed
    bint plain  # the open block is not compressed: it was tried once, and other writers came first
    int64_t deadline_us  # of the monotonic clock; -1 without
    int64_t waited_us
    Prepared *prepared
    bint wants_block  # NEEDS_SEGMENT: with the records in it,
    bint wants_name  # or to take the name of the open one
    bint rolled
    bint switched
    bint writes_out  # it has the write lock, and writes the closing block through this descriptor
    int write_fd
    uint64_t sealed_segment  # rolled: what is behind us now, and where its blocks end
    uint64_t sealed_end
    uint64_t sequence
    int error
    const char *what

cdef int failed(Call *call, int error, const char *what) noexcept nogil
cdef uint64_t doubtful_now(jlog_page *page, uint64_t own) noexcept nogil

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
    cdef int life
    cdef unsigned long worker  # the thread that opens or closes it
    # Descriptors of segments that this process writes to: the open one, and older ones that are not synced yet. Changed
    # under the append lock and the leaf mutex.
    cdef Descriptor open
    cdef Descriptor retained[RETAINED_MAX]
    cdef int retained_count

    cdef bint may_call(self) noexcept
    cdef void close_descriptors(self) noexcept nogil
    cdef int descriptor(self, uint64_t segment) noexcept nogil
    cdef void adopt_descriptor(self, uint64_t segment, int fd, uint64_t doubtful) noexcept nogil
    cdef int borrow_descriptor(self, uint64_t segment, uint64_t *doubtful) noexcept nogil
    cdef void forget_descriptors(self, uint64_t segment) noexcept nogil
    cdef void forget_cleaned(self) noexcept nogil
    cdef int take_over(self, uint32_t *word, uint32_t dead) noexcept nogil
    cdef bint is_current(self, const Descriptor *found) noexcept nogil
    cdef int complete_direct(self, Call *call) noexcept nogil
    cdef int acquire(self, uint32_t *word, Call *call) noexcept nogil
    cdef int repair(self, Call *call) noexcept nogil
    cdef int make_good(self, Call *call) noexcept nogil
    cdef int finish_replacing(self, Call *call) noexcept nogil
    cdef void release(self, uint32_t *word) noexcept nogil
