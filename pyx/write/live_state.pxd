from libc.stdint cimport uint64_t

from jlog._core.write.operation cimport NewRecords
from jlog._core.write.process cimport WritingProcess

# The live state, as this process has read it last.
cdef class LiveState:
    cdef WritingProcess process
    cdef dict values  # None until it was read
    cdef tuple end  # (segment, incarnation, offset) up to which its blocks are read
    cdef uint64_t generation  # it holds the state of every block before that of this generation

    cdef bint read(self) except -1
    cdef int check(self, NewRecords *new) except -1
    cdef int note(self, NewRecords *new) except -1
