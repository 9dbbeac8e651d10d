from libc.stdint cimport uint32_t

from jlog._core.buffer.page cimport jlog_buffer
from jlog._core.system.lock cimport LockFile
from jlog._core.process.operation cimport Operation

# Takes the lock words of the page for this process. Its byte in the lock file proves that the process lives.
cdef class Locks:
    cdef jlog_buffer *buffer
    cdef LockFile file
    cdef readonly int slot

    cdef int take_slot(self) except -1
    cdef int acquire(self, uint32_t *word, Operation *operation) noexcept nogil
    cdef int take_over(self, uint32_t *word, uint32_t dead) noexcept nogil
    cdef void release(self, uint32_t *word) noexcept nogil
