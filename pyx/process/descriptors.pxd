from libc.stdint cimport uint64_t

from jlog._core.buffer.page cimport jlog_buffer, jlog_page
from jlog._core.system.file cimport jlog_identity

cdef enum:
    RETAINED_MAX = 32  # twice as many segments as the synced mark may lag by

cdef struct Descriptor:
    uint64_t segment
    uint64_t incarnation  # value of the page's field when the descriptor was opened
    int fd
    jlog_identity file
    uint64_t doubtful  # it may not report failed write-backs of generations before this one

cdef uint64_t doubtful_now(jlog_page *page, uint64_t own) noexcept nogil

# Descriptors of segments that this process writes to: the open one, and older ones that are not synced yet. They are changed
# under the append lock and the leaf mutex.
cdef class Descriptors:
    cdef const jlog_buffer *buffer
    cdef int directory  # of the HeldPath
    cdef Descriptor open
    cdef Descriptor retained[RETAINED_MAX]
    cdef int retained_count

    cdef bint is_current(self, const Descriptor *found) noexcept nogil
    cdef int in_place(self) noexcept nogil
    cdef int of_open(self, uint64_t segment) noexcept nogil
    cdef void take(self, uint64_t segment, int fd, uint64_t doubtful) noexcept nogil
    cdef int borrow(self, uint64_t segment, uint64_t *doubtful) noexcept nogil
    cdef void forget(self, uint64_t segment, bint removed) noexcept nogil
    cdef void close(self) noexcept nogil
