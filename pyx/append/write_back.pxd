from libc.stdint cimport uint64_t

from jlog._core.process.operation cimport Operation
from jlog._core.process.process cimport WritingProcess
from jlog._core.buffer.page cimport jlog_page, jlog_slot

cdef int close_block(WritingProcess process, Operation *operation) noexcept nogil
cdef bint is_plain(jlog_page *page, const jlog_slot *slot, const Operation *operation) noexcept nogil
cdef int defer_block(WritingProcess process, Operation *operation) noexcept nogil
cdef int drain(WritingProcess process, Operation *operation) noexcept nogil
cdef int write_back(WritingProcess process, Operation *operation) noexcept nogil
cdef int write_back_for(WritingProcess process, Operation *operation) noexcept nogil
cdef void count_block(jlog_page *page, uint64_t records, uint64_t raw_bytes, uint64_t stored_bytes) noexcept nogil
