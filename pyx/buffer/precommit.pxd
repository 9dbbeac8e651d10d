from libc.stdint cimport uint8_t, uint32_t, uint64_t

from jlog._core.buffer.page cimport jlog_page, jlog_slot
from jlog._core.system.file cimport jlog_identity

cdef enum:
    PAGE_VALID = 1
    PAGE_INVALID = 0
    PAGE_OF_ANOTHER_BOOT = 2  # otherwise valid: it may be of this boot, which another container knows by another id

# The buffer as a reader sees it at one moment.
cdef struct Snapshot:
    jlog_slot slot
    uint64_t durable_end
    bint has_immutable  # there is an immutable block
    jlog_slot immutable
    uint64_t capacity
    uint64_t new_inode  # inode of the file that is about to take the open segment's name; 0: none
    uint64_t new_end  # end of the blocks in that file

cdef class Precommit:
    cdef readonly object path
    cdef int fd
    cdef uint8_t uuid[16]
    cdef jlog_page *page
    cdef size_t mapped_bytes
    cdef jlog_identity file
    cdef uint8_t believed_boot[16]  # a boot id that is known to mean this boot, besides this process's own

    cdef int identify(self, const jlog_page *page) noexcept nogil
    cdef int check_layout(self) except -1
    cpdef void close(self) noexcept
    cdef void imprint(self) noexcept nogil
    cdef uint64_t room(self) noexcept nogil
    cdef int believe_boot(self) except -1
    cdef int identify_beside_writers(self) except -1
    cdef int snapshot(self, Snapshot *found, const jlog_slot *known) noexcept nogil
    cdef int read_body(self, const jlog_slot *slot, uint64_t capacity, uint8_t *target, uint32_t start,
                       uint32_t end) noexcept nogil
    cdef uint64_t generation(self) noexcept nogil
    cdef bytes stored_body(self, const jlog_slot *slot, uint64_t capacity)
