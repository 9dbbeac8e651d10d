from libc.stdint cimport uint64_t

from jlog._core.system.lock cimport Deadline
from jlog._core.process.operation cimport Append, Operation
from jlog._core.append.live_state cimport LiveState
from jlog._core.append.prepared_segments cimport PreparedSegments
from jlog._core.process.process cimport Life, WritingProcess

# Carries operations through for one writing process.
cdef class Operations:
    cdef WritingProcess process
    cdef object policy  # the policy of attach()
    cdef object care  # of the process's first Writer; None: this process has had none, so that it appends nothing
    cdef Life life
    cdef LiveState state
    cdef PreparedSegments prepared

    cdef int run(self, Operation *operation, Deadline deadline) except -1
    cdef int attempt(self, Operation *operation) noexcept
    cdef object make_body(self, Append *append)
    cdef int serve(self, int status, Operation *operation, Deadline deadline) except -1
    cdef int finish_write_back(self, Operation *operation, Deadline deadline) except -1
    cdef int free_space(self, Operation *operation, Deadline deadline) except -1
    cdef int count_sealed(self, Deadline deadline) except -1
    cdef int raise_unless_done(self, int status, const Operation *operation) except -1
    cdef str append_lock_owner(self)
    cdef int reserve_sequences(self, uint64_t count, Deadline deadline) except -1
    cdef int tidy_up(self, Operation *operation) except -1
    cdef int flush(self, Deadline deadline) except -1
    cdef int roll(self, Deadline deadline) except -1
    cdef bint roll_if_due(self, Deadline deadline) except -1

cdef int make_direct(Append *append, int codec) except -1
