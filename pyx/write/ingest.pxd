from libc.stdint cimport int64_t

from jlog._core.system.lock cimport Deadline
from jlog._core.append.operations cimport Operations

cdef enum:
    NOT_INGESTED = -2

cdef int64_t ingest(Operations operations, str path, pieces, dict state, Deadline deadline) except -1
