from jlog._core.process.operation cimport Operation, Options
from jlog._core.process.process cimport WritingProcess
from jlog._core.buffer.page cimport jlog_page

cdef int attempt(WritingProcess process, Operation *operation) noexcept nogil
cdef int step(WritingProcess process, Operation *operation) noexcept nogil
cdef int step_and_release(WritingProcess process, Operation *operation) noexcept nogil
cdef void apply_options(jlog_page *page, const Options *options) noexcept nogil
cdef bint has_options(const jlog_page *page, const Options *options) noexcept nogil
