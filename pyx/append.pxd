from jlog._core.member cimport Call, Member

cdef int attempt(Member member, Call *call) noexcept nogil
cdef int step(Member member, Call *call) noexcept nogil
