from jlog._core.system.lock cimport Deadline
from jlog._core.append.operations cimport Operations

cdef object ingest(Operations operations, str path, pieces, dict state, Deadline deadline)
