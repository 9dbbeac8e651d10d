# One operation under the append lock: a head that all have, and a struct for each kind.
#
# A call creates its operation on the stack, and passes it down. For work that must be done outside the lock an attempt returns
# a status. The caller does that work, and then tries the operation again.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from jlog._core.records.encode cimport Records, StoredBody
from jlog._core.system.file cimport jlog_identity

# The result of one attempt. After SIGNALS or a NEEDS_ status the caller does what the comment says, and tries again.
cdef enum:
    DONE = 0
    FAILED = 1  # operation.error and operation.what describe the error
    SIGNALS = 2  # the lock is busy: test whether Ctrl-C was pressed
    TIMED_OUT = 3
    NEEDS_SEGMENT = 4  # prepare the next segment outside the lock
    NEEDS_RESERVATION = 5  # reserve more sequences
    SYNC_FAILED = 6  # an fdatasync has failed: no process appends until all have closed
    DAMAGED = 7  # operation.what describes the damage
    NEEDS_BODY = 8  # encode and compress the records outside the lock, for a direct block
    NEEDS_COMPRESSION = 9  # compress the open block, which this operation has marked as closed, outside the lock
    NEEDS_WAIT = 10  # another operation compresses the open block: wait until it has rotated
    NEEDS_STATE = 11  # other state was stored meanwhile: test whether this state still has room
    NEEDS_SPACE = 12  # the journal is at its limit: clean outside the lock
    NEEDS_WRITE_BACK = 13  # wait outside the lock until the immutable block is in its segment
    TAKEN_OVER = 14  # the lock word is taken, and its owner before was dead
    NEEDS_IDS = 15  # records were appended that the caller has not seen, or one of them has the id: read them outside the lock

# The kinds of operations, each with its struct.
cdef enum:
    APPEND = 1  # Append
    FLUSH = 2  # Flush
    ROLL = 3  # Operation
    OPTIONS = 4  # ChangeOptions
    COUNT = 5  # Count
    TURN = 6  # Operation: it rolls if the period of the open segment is over
    INGEST = 7  # Ingest

# The journal's options, as plain numbers. All but `precommit` stand in the page.
cdef struct Options:
    uint64_t precommit
    uint64_t segment_bytes
    uint64_t limit_bytes
    uint64_t sync_interval_us
    uint64_t roll_us
    uint32_t codec
    uint32_t sync_mode

# The open block, compressed. It is of no use once the journal has rotated.
cdef struct CompressedBlock:
    uint64_t generation
    const uint8_t *data  # NULL: the block stays uncompressed
    uint32_t size
    uint32_t crc

# A segment file that this process has created, about to be renamed to its place.
cdef struct Prepared:
    char name[64]
    int fd
    jlog_identity file
    uint8_t *start  # segment header and state block
    size_t start_bytes
    uint64_t state_generation  # generation up to which the state is complete
    uint64_t reserved_end
    bint spoiled  # a roll with it has failed, so no later roll can use it
    bint has_block  # the operation's records follow `start` already
    uint64_t replaces  # the open segment whose name it is to take, complete and synced; or JLOG_NONE

# The operation's progress in closing the open block. (The immutable block is the one before it.)
cdef struct BlockClose:
    CompressedBlock compressed
    uint64_t marked_closed  # generation that it has marked as closed, or for which it has waited long enough
    bint plain  # the open block is not compressed: after one attempt other writers came first
    bint writes_back  # it holds the write lock, and writes the immutable block through `fd`
    int fd

# The operation's progress in opening the next segment.
cdef struct Rolling:
    Prepared *prepared
    bint wants_block  # NEEDS_SEGMENT: the file is to hold the records
    bint wants_name  # NEEDS_SEGMENT: the file is to take the name of the open segment
    bint rolled
    uint64_t sealed_segment  # if rolled: the segment before the open one
    uint64_t sealed_end  # if rolled: where the blocks of that segment end

cdef struct Operation:
    int kind
    int64_t deadline_us  # time of the monotonic clock; -1 without a deadline
    int error  # errno
    const char *what
    bint rotated
    int space_attempts  # how often it has tried to make space
    BlockClose closing
    Rolling rolling

# The place where a direct block or an ingested file was published. Generation 0: it was not published.
cdef struct Published:
    uint64_t generation  # the generation that the rotation opened
    uint64_t segment
    uint64_t end
    uint64_t incarnation

# The common beginning of Append and Ingest: records that get the next sequences, and state.
cdef struct NewRecords:
    Operation head
    Records records
    StoredBody stored
    uint64_t block_count  # number of blocks that hold the records; 0 means 1
    void *state  # a dict with the state that this operation stores
    uint64_t state_generation  # generation for which the state is known to have room
    uint64_t sequence  # sequence of the first record, once the records are published
    Published published

cdef struct Append:
    NewRecords new
    void *items  # a tuple of bytes, encoded under the lock; or NULL, and `records` are encoded
    void *body  # the EncodedRecords that hold `records`
    bint direct  # the records become a direct block
    const uint8_t *id  # the id of the only record, which no record from `known_end` on may have; or NULL
    uint32_t id_bytes
    uint64_t known_end

cdef struct Ingest:
    NewRecords new
    uint64_t completed_for  # generation for which the prepared file is completed
    uint64_t last_offset  # where the last block of the file begins
    uint64_t end  # where that block ends
    int64_t clock_us  # time of the records that have the clock's time
    bint ingested

cdef struct Flush:
    Operation head
    uint64_t generation  # the flush is done once the block of this generation is in its segment

cdef struct ChangeOptions:
    Operation head
    const Options *options

cdef struct Count:
    Operation head
    uint64_t segment  # the open segment when the sealed ones were counted
    uint64_t sealed_bytes
    bint taken  # the page has taken the result: no segment was sealed meanwhile


cdef inline NewRecords *new_records(Operation *operation) noexcept nogil:
    """Returns the records of an Append or Ingest; NULL for another kind."""
    return <NewRecords *> operation if operation.kind == APPEND or operation.kind == INGEST else NULL


cdef inline int failed(Operation *operation, int error, const char *what) noexcept nogil:
    operation.error = error
    operation.what = what
    return FAILED
