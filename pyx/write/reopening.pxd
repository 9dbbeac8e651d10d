from jlog._core.system.lock cimport Deadline
from jlog._core.write.operation cimport Options
from jlog._core.write.operations cimport Operations

cdef bint recover(Operations operations, const Options *options, Deadline deadline) except -1
