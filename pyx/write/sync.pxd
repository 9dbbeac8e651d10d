from libc.stdint cimport int64_t, uint32_t, uint64_t

from jlog._core.write.calls cimport Caller
from jlog._core.format.dual_slot cimport Mark
from jlog._core.system.lock cimport Deadline

cdef class Syncer(Caller):
    cdef uint64_t synced_incarnation  # whose name is in the directory for certain
    cdef int syncs  # of threads of this process, under way
    cdef int64_t sync_us  # how long the last fdatasync took
    cdef int mark_error  # errno where the mark could not be moved last
    cdef object upkeep
    cdef int64_t kept_up_us

    cdef int make_durable(self, Deadline deadline) except -1
    cdef bint take_sync_lock(self) noexcept
    cdef bint is_stuck(self) noexcept
    cdef bint take_sync_lock_from_dead(self) noexcept
    cdef int wait_durable(self, uint64_t wanted, Deadline deadline) except -1
    cdef int64_t gather_us(self, uint32_t arrival) noexcept
    cdef int lead(self, uint64_t wanted, Deadline deadline) except -1
    cdef int sync_alone(self, Deadline deadline) except -1
    cdef int tell(self, const Mark *mark, bint has_word) except -1
    cdef int sync_written(self, Mark *mark) except -1
    cdef int sync_files(self, uint64_t segment, uint64_t end) except -1
    cdef int sync_segment(self, uint64_t segment, uint64_t end) except -1
    cdef int64_t sync_pause_us(self) noexcept
    cdef int keep_up_pinned(self, int64_t now_us) except -1
    cdef bint is_due(self, int64_t now_us) except -1
    cdef int fail_sync(self, int error) except -1
