from libc.stdint cimport uint64_t

from jlog._core.write.member cimport Call, Member
from jlog._core.buffer.page cimport jlog_page

cdef bint has_records(jlog_page *page) noexcept nogil
cdef bint state_is_newer(jlog_page *page, uint64_t generation) noexcept nogil
cdef int roll(Member member, Call *call) noexcept nogil
cdef int adopt(Member member, Call *call) noexcept nogil
cdef int replace(Member member, Call *call) noexcept nogil
