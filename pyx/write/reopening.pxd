from jlog._core.system.lock cimport Deadline
from jlog._core.process.operation cimport Options
from jlog._core.append.operations cimport Operations

cdef bint recover(Operations operations, const Options *options, Deadline deadline) except -1
