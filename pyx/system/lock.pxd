from libc.stdint cimport int64_t, uint64_t

from jlog._core.system.file cimport jlog_identity

cdef enum:
    OPEN_BYTE = 0  # opening, recovery, the last close
    BOUNDS_BYTE = 1  # each write of `bounds`
    TABLE_BYTE = 2  # making, removing or moving back a subscriber or checkpoint; retention
    WRITERS_BYTE = 3  # shared by writing processes; an exclusive one holds it alone
    COPY_BYTE = 4  # shared by copies of the files; held alone to remove segments or to repair
    SINK_BYTE = 5  # held by the one process that moves records into the journal: a capture, a transform, an import
    OWNERS_BYTE = 64  # + writer slot: held while the process that has this slot lives

cdef class Deadline:
    cdef int64_t until_us  # by the monotonic clock; -1: never

    cdef int begin(self, timeout) except -1
    cdef int64_t left_us(self, int64_t at_most) noexcept

cdef class Deferred:
    cdef Deferred following

    cdef void run(self) noexcept

cdef void when_nothing_is_held(Deferred work) noexcept

cdef class _TakenRange:
    cdef uint64_t start
    cdef uint64_t process  # its token
    cdef unsigned long thread  # 0: it is free again

cdef class LockFile:
    cdef readonly object path
    cdef int fd
    cdef jlog_identity file
    cdef bint closed
    cdef list taken  # a _TakenRange for each range that it ever held; None: it never held one
    cdef int uses  # calls that use the descriptor now: a close waits for their end
    cdef const uint64_t *process
    cdef uint64_t token

    cdef bint is_open(self) noexcept nogil
    cdef bint is_own(self) noexcept nogil
    cdef int check_own(self) except -1
    cdef int end_use(self) except -1
    cdef int note_taken(self, uint64_t start) except -1
    cdef _TakenRange taken_range(self, uint64_t start)
    cdef bint is_held_by_this_thread(self, uint64_t start) except -1
    cdef void forget_taken(self) noexcept
    cdef int give(self, uint64_t start, uint64_t size) noexcept
    cdef int try_lock(self, short kind, uint64_t start, uint64_t size) noexcept nogil
    cdef int unlock(self, uint64_t start, uint64_t size) noexcept nogil

cdef class HeldRange:
    cdef LockFile file
    cdef uint64_t start
    cdef Deadline deadline
    cdef object refused

cdef class Mutex:
    cdef object path
    cdef object lock
    cdef unsigned long owner  # the thread that has it; 0: none

    cdef bint take(self, timeout) except -1
    cdef bint try_take(self) except -1
    cdef int give(self) except -1

cdef class DirectoryLock:
    cdef object path
    cdef int fd
    cdef jlog_identity file
    cdef const uint64_t *process
    cdef uint64_t token

    cpdef close(self)
    cdef int take(self, int kind) except -1
