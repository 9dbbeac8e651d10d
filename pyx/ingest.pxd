from jlog._core.calls cimport Caller

cdef object adopt(Caller caller, str path, pieces, dict state, timeout)
