from libc.stdint cimport int64_t, uint64_t

from jlog._core.format.format cimport jlog_block_header
from jlog._core.write.member cimport Call, Member
from jlog._core.buffer.page cimport jlog_slot

cdef int reserve(Member member, Call *call, uint64_t end) noexcept nogil
cdef int64_t fill_direct_header(Member member, Call *call, jlog_block_header *header, uint64_t segment,
                                uint64_t offset) noexcept nogil
cdef int write_direct(Member member, Call *call, jlog_slot *slot) noexcept nogil
cdef void publish_direct(Member member, Call *call, uint64_t segment, uint64_t end, uint64_t offset,
                         int64_t now_us) noexcept nogil
