# One operation under the append lock: a head that all have, and a struct for each kind.
#
# It is made by the call that wants it, on that call's stack, and handed down. What can only be done outside the lock is asked
# for by a status; then the operation comes again.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.write.encode cimport Records, StoredBody

# What came of one attempt.
cdef enum:
    DONE = 0
    FAILED = 1  # operation.error and operation.what say how
    SIGNALS = 2  # the lock is busy: look whether Ctrl-C was pressed, and come again
    TIMED_OUT = 3
    NEEDS_SEGMENT = 4  # prepare the next segment outside the lock, and come again
    NEEDS_LEASE = 5  # lease more numbers, and come again
    SYNC_FAILED = 6  # an fdatasync failed before: nobody appends until all have closed
    DAMAGED = 7  # operation.what says what
    NEEDS_BODY = 8  # encode and compress outside the lock, for a direct block, and come again
    NEEDS_COMPRESSION = 9  # compress the open block, which this operation has closed, outside the lock, and come again
    NEEDS_WAIT = 10  # another operation has closed the open block and compresses it: come again when it is gone
    NEEDS_STATE = 11  # other state was stored meanwhile: look whether there is still room for this, and come again
    NEEDS_SPACE = 12  # the journal is at its limit: clean outside the lock, and come again
    NEEDS_WRITE_BACK = 13  # the closing block must be in its segment: see to it outside the lock, and come again
    TAKEN_OVER = 14  # the lock word is taken, from an owner that has died

# The kinds of operations, each with its struct.
cdef enum:
    APPEND = 1  # Append
    FLUSH = 2  # Flush
    ROLL = 3  # Operation
    OPTIONS = 4  # ChangeOptions
    COUNT = 5  # Count
    TURN = 6  # Operation: it rolls if the period of the open segment is over
    ADOPT = 7  # Adopt

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
cdef struct CompressedBlock:
    uint64_t generation
    const uint8_t *data  # NULL: it stays as it is
    uint32_t size
    uint32_t crc

# A segment file that this process has made, about to be renamed to its place.
cdef struct Prepared:
    char name[64]
    int fd
    uint8_t *start  # header, and the block with the state
    size_t start_bytes
    uint64_t state_generation  # the state is that of this generation
    uint64_t reserved_end
    bint spoiled  # a roll with it failed: it is of no use to the next
    bint has_block  # the operation's records stand behind `start` already
    uint64_t replaces  # the open segment, whose name it shall take, complete and synced; or JLOG_NONE

# How far the operation is with closing the open block. (The closing block is the one before it.)
cdef struct BlockClose:
    CompressedBlock compressed
    uint64_t noted_closed  # the generation that it has noted as closed, or has waited for long enough
    bint plain  # the open block is not compressed: it was tried once, and other writers came first
    bint writes_back  # it has the write lock, and writes the closing block through `fd`
    int fd

# How far the operation is with opening the next segment.
cdef struct Rolling:
    Prepared *prepared
    bint wants_block  # NEEDS_SEGMENT: with the records in it,
    bint wants_name  # or to take the name of the open one
    bint rolled
    uint64_t sealed_segment  # rolled: the segment before the open one, and where its blocks end
    uint64_t sealed_end

cdef struct Operation:
    int kind
    int64_t deadline_us  # of the monotonic clock; -1 without
    int error  # errno
    const char *what
    bint rotated
    int space_attempts  # how often it has tried to
    BlockClose closing
    Rolling rolling

# Where a direct block or an adopted file was published. Generation 0: it was not.
cdef struct Published:
    uint64_t generation  # the one that came to be open then
    uint64_t segment
    uint64_t end
    uint64_t incarnation

# The head of Append and Adopt: records that get the next sequences, and state.
cdef struct NewRecords:
    Operation head
    Records records
    StoredBody stored
    uint64_t block_count  # how many blocks hold the records; 0: one
    void *state  # a dict: what this operation stores
    uint64_t state_generation  # there is room for it, as of this generation
    uint64_t sequence  # of the first record, once they are published
    Published published

cdef struct Append:
    NewRecords new
    void *items  # a tuple of bytes, encoded under the lock; or NULL, and `records` are encoded
    void *body  # the Body that holds `records`
    bint direct  # into a block of its own, not into the buffer

cdef struct Adopt:
    NewRecords new
    uint64_t completed_for  # the generation that the prepared file is right for
    uint64_t last_offset  # where its last block begins,
    uint64_t end  # and where that ends
    int64_t clock_us  # the time of its records that have the clock's
    bint adopted

cdef struct Flush:
    Operation head
    uint64_t generation  # it is done when this one has gone

cdef struct ChangeOptions:
    Operation head
    const Options *options

cdef struct Count:
    Operation head
    uint64_t segment  # the open one when the others were counted
    uint64_t sealed_bytes
    bint taken  # no segment was sealed meanwhile


cdef inline NewRecords *new_records(Operation *operation) noexcept nogil:
    """Returns the records of an Append or Adopt; NULL for another kind."""
    return <NewRecords *> operation if operation.kind == APPEND or operation.kind == ADOPT else NULL


cdef inline int failed(Operation *operation, int error, const char *what) noexcept nogil:
    operation.error = error
    operation.what = what
    return FAILED
