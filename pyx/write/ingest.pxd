from jlog._core.write.calls cimport Caller
from jlog._core.system.lock cimport Deadline

cdef object adopt(Caller caller, str path, pieces, dict state, Deadline deadline)
