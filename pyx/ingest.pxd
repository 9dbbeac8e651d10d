from jlog._core.calls cimport Caller
from jlog._core.lock cimport Deadline

cdef object adopt(Caller caller, str path, pieces, dict state, Deadline deadline)
