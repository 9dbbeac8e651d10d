from jlog._core.write.member cimport Call, Member, Options
from jlog._core.buffer.page cimport jlog_page

cdef int attempt(Member member, Call *call) noexcept nogil
cdef int step(Member member, Call *call) noexcept nogil
cdef void apply_options(jlog_page *page, const Options *options) noexcept nogil
cdef bint has_options(const jlog_page *page, const Options *options) noexcept nogil
