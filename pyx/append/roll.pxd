from libc.stdint cimport uint64_t

from jlog._core.process.operation cimport Ingest, Operation
from jlog._core.process.process cimport WritingProcess
from jlog._core.buffer.page cimport jlog_page

cdef bint has_records(jlog_page *page) noexcept nogil
cdef bint state_is_newer(jlog_page *page, uint64_t generation) noexcept nogil
cdef int roll(WritingProcess process, Operation *operation) noexcept nogil
cdef int ingest(WritingProcess process, Ingest *ingest) noexcept nogil
cdef int replace(WritingProcess process, Operation *operation) noexcept nogil
