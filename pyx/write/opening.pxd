from libc.stdint cimport uint64_t

from jlog._core.system.lock cimport Deadline
from jlog._core.process.operation cimport Options
from jlog._core.append.operations cimport Operations

# The state in which take_part() has found the journal.
cdef enum:
    BESIDE_OTHERS = 0
    ALONE = 1
    ALONE_AFTER_FAILED_SYNC = 2  # alone, and files were rewritten after a failed sync

cdef int take_part(Operations operations, uint64_t capacity, Deadline deadline) except -1
cdef Options as_options(numbers) except *
