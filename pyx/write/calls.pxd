from libc.stdint cimport int64_t, uint64_t

from jlog._core.write.encode cimport Body
from jlog._core.system.lock cimport Deadline
from jlog._core.write.member cimport Call, Member, Prepared

cdef class Caller(Member):
    cdef object policy
    # Users have it attached, pins are calls under way. It closes when both have gone, by whoever was the last, once.
    cdef int users
    cdef int pins
    cdef Deadline closing_deadline  # of whoever gave it back last
    cdef Prepared *spare
    cdef uint64_t prepared_count
    cdef object state
    cdef object state_end
    cdef uint64_t state_generation

    cdef uint64_t run(self, Call *call, Deadline deadline) except? 0xFFFFFFFFFFFFFFFF
    cdef int serve(self, int status, Call *call, Deadline deadline) except -1
    cdef object pack_open_block(self, Call *call)
    cdef int wait_for_generation(self, Call *call) except -1
    cdef int finish_closing(self, Call *call, Deadline deadline) except -1
    cdef int check_state(self, Call *call) except -1
    cdef int note_state(self, Call *call) except -1
    cdef bint read_state(self) except -1
    cdef int make_room(self, Call *call, Deadline deadline) except -1
    cdef int tidy_up(self, Call *call) except -1
    cdef int pin(self) except -1
    cdef unpin(self)
    cdef finish(self, Deadline deadline)
    cdef lease(self, uint64_t count, Deadline deadline)
    cdef bytes next_name(self)
    cdef prepare(self, Call *call)
    cdef int keep_or_drop(self, Call *call) except -1
    cdef void drop(self, Prepared *prepared) noexcept
    cdef int raise_unless_done(self, int status, Call *call) except -1
