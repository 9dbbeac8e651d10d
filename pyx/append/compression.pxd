from jlog._core.process.operation cimport Operation
from jlog._core.process.process cimport WritingProcess

cdef object compress_open_block(WritingProcess process, Operation *operation)
cdef int wait_for_generation(WritingProcess process, Operation *operation) except -1
