from libc.stdint cimport uint8_t, uint64_t

from jlog._core.format.format cimport JLOG_DUAL_SLOT_STRIDE, JLOG_POSITION_BYTES, jlog_bounds, jlog_position
from jlog._core.system.file cimport jlog_identity
from jlog._core.system.lock cimport LockFile, Mutex

cdef int read_dual_slot(int fd, void *target, size_t size, const char *magic, const uint8_t *uuid, path) except -1
cdef int put_dual_slot(int fd, void *source, size_t size, const char *magic, const uint8_t *uuid, int found) noexcept nogil
cdef int write_dual_slot(int fd, void *source, size_t size, const char *magic, const uint8_t *uuid, path,
                         int found) except -1

# The synced mark: the boundary of two blocks before which every block is synced.
cdef struct SyncedMark:
    uint64_t segment
    uint64_t offset
    uint64_t sequence

cdef class HeldPosition:
    cdef LockFile file
    cdef object path
    cdef jlog_position position
    cdef uint8_t image[JLOG_DUAL_SLOT_STRIDE + JLOG_POSITION_BYTES]  # both copies, and zeros in between

cdef class BoundsFile:
    cdef readonly object path
    cdef LockFile lock_file
    cdef Mutex mutex  # the lock file's range does not exclude threads of one process
    cdef int fd
    cdef jlog_identity file
    cdef uint8_t uuid[16]

    cdef int read_into(self, jlog_bounds *bounds) except -1
    cdef int check_own(self) except -1
    cdef int advance_synced_mark(self, const SyncedMark *mark) noexcept nogil
