"""The declarations of failpoint.h, for the Cython sources."""


cdef extern from "system/failpoint.h" nogil:
    int JLOG_FAILPOINT(const char *name)
