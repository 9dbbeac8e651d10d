from libc.stdint cimport uint64_t

from jlog._core.process.operation cimport NewRecords, Operation, Prepared
from jlog._core.process.process cimport WritingProcess

# The live state, as this process has last read it.
cdef class LiveState:
    cdef WritingProcess process
    cdef dict values  # None before the first read()
    cdef tuple end  # (segment, incarnation, offset) up to which its blocks are read
    cdef uint64_t generation  # the values include every block before the block of this generation

    cdef bint read(self) except -1
    cdef int check(self, NewRecords *new) except -1
    cdef void note(self, NewRecords *new) noexcept

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
