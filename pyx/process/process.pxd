from libc.stdint cimport uint64_t

from jlog._core.buffer.page cimport jlog_buffer
from jlog._core.buffer.precommit cimport Precommit
from jlog._core.format.dual_slot cimport BoundsFile
from jlog._core.system.lock cimport Deadline, DirectoryLock, Mutex
from jlog._core.process.descriptors cimport Descriptors
from jlog._core.process.locks cimport Locks

cdef class WritingProcess:
    cdef readonly str path
    cdef readonly bytes uuid
    cdef readonly uint64_t epoch  # epoch that the process has read or begun under the open lock
    cdef jlog_buffer buffer
    cdef Precommit precommit
    cdef BoundsFile bounds
    cdef Locks locks
    cdef DirectoryLock directory_lock
    cdef Descriptors descriptors
    cdef Mutex opening_mutex

    cdef object opening(self, Deadline deadline)
    cdef int map_buffer(self) except -1
    cdef tuple written_place(self)
    cdef uint64_t buffered_bytes(self) noexcept
    cdef close(self)
