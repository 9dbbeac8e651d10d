from jlog._core.process.operation cimport Operation
from jlog._core.process.process cimport WritingProcess

cdef int take_append_lock(WritingProcess process, Operation *operation) noexcept nogil
cdef int complete_takeover(WritingProcess process, Operation *operation) noexcept nogil
cdef int finish_replacing(WritingProcess process, Operation *operation) noexcept nogil
