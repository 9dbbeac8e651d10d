from jlog._core.write.operation cimport Operation
from jlog._core.write.process cimport WritingProcess

cdef int take_append_lock(WritingProcess process, Operation *operation) noexcept nogil
cdef int complete_takeover(WritingProcess process, Operation *operation) noexcept nogil
cdef int finish_replacing(WritingProcess process, Operation *operation) noexcept nogil
