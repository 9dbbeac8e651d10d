from libc.stdint cimport int64_t, uint64_t

cdef enum:
    OPEN_BYTE = 0  # opening, recovery, the last close
    BOUNDS_BYTE = 1  # one write of `bounds`
    TABLE_BYTE = 2  # subscribers and checkpoints: made, removed, moved backward; cleaning
    WRITERS_BYTE = 3  # shared by writing processes, held alone by an exclusive one
    COPY_BYTE = 4  # shared by who copies the files, held alone to remove segments or to repair
    OWNERS_BYTE = 64  # + slot: the process that has this slot lives

cdef class Deadline:
    cdef int64_t until_us  # of the monotonic clock; -1: never

    cdef int64_t left_us(self, int64_t at_most) noexcept

cdef class LockFile:
    cdef readonly str path
    cdef int fd
    cdef bint closed
    cdef int uses  # of calls that are at work with the descriptor, without the GIL
    cdef const uint64_t *process
    cdef uint64_t token

    cdef bint is_open(self) noexcept nogil
    cdef int try_lock(self, short kind, uint64_t start, uint64_t size) noexcept nogil
    cdef int unlock(self, uint64_t start, uint64_t size) noexcept nogil

cdef const uint64_t *process_token() noexcept
