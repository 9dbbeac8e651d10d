from libc.stdint cimport uint64_t

from jlog._core.process.operation cimport NewRecords
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
