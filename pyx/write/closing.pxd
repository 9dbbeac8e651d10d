from libc.stdint cimport uint64_t

from jlog._core.write.member cimport Call, Member
from jlog._core.buffer.page cimport jlog_page, jlog_slot

cdef int close_block(Member member, Call *call) noexcept nogil
cdef bint is_plain(jlog_page *page, const jlog_slot *slot, const Call *call) noexcept nogil
cdef int defer_block(Member member, Call *call) noexcept nogil
cdef int settle(Member member, Call *call) noexcept nogil
cdef int write_out(Member member, Call *call) noexcept nogil
cdef int write_out_for(Member member, Call *call) noexcept nogil
cdef void count_block(jlog_page *page, uint64_t records, uint64_t raw_bytes, uint64_t stored_bytes) noexcept nogil
