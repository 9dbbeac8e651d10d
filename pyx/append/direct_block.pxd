from libc.stdint cimport int64_t, uint64_t

from jlog._core.format.format cimport jlog_block_header
from jlog._core.process.operation cimport NewRecords, Operation
from jlog._core.process.process cimport WritingProcess
from jlog._core.buffer.page cimport jlog_slot

cdef int reserve(WritingProcess process, Operation *operation, uint64_t end) noexcept nogil
cdef int64_t build_direct_header(WritingProcess process, NewRecords *new, jlog_block_header *header, uint64_t segment,
                                 uint64_t offset) noexcept nogil
cdef int write_direct(WritingProcess process, NewRecords *new, jlog_slot *slot) noexcept nogil
cdef void publish_direct(WritingProcess process, NewRecords *new, uint64_t segment, uint64_t end, uint64_t offset,
                         int64_t now_us) noexcept nogil
