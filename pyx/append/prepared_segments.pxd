from libc.stdint cimport uint64_t

from jlog._core.append.live_state cimport LiveState
from jlog._core.process.operation cimport Operation, Prepared
from jlog._core.process.process cimport WritingProcess

# The files that this process prepares for the next segments. One that a call did not need is kept as the spare.
cdef class PreparedSegments:
    cdef WritingProcess process
    cdef LiveState state
    cdef Prepared *spare
    cdef uint64_t count

    cdef bytes next_name(self)
    cdef void take_spare(self, Operation *operation) noexcept
    cdef prepare(self, Operation *operation)
    cdef bytes start_of(self, bint replacing, uint64_t *replaces)
    cdef int fill(self, Prepared *prepared, Operation *operation) except -1
    cdef int keep_or_drop(self, Operation *operation, bint keep) except -1
    cdef void drop(self, Prepared *prepared) noexcept
    cdef void drop_spare(self) noexcept
