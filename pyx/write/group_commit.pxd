from libc.stdint cimport int64_t, uint32_t, uint64_t

from jlog._core.format.dual_slot cimport SyncedMark
from jlog._core.system.lock cimport Deadline
from jlog._core.append.operations cimport Operations
from jlog._core.process.process cimport WritingProcess
from jlog._core.write.segment_sync cimport SegmentSync

cdef class GroupCommit:
    cdef WritingProcess process
    cdef Operations operations
    cdef SegmentSync segments
    cdef int synced_mark_error  # errno of the last attempt to move the synced mark

    cdef int make_durable(self, Deadline deadline) except -1
    cdef int wait_durable(self, uint64_t wanted, Deadline deadline) except -1
    cdef int64_t gather_us(self, uint32_t arrival) noexcept
    cdef bint take_sync_lock(self) noexcept
    cdef bint is_stuck(self) noexcept
    cdef bint take_sync_lock_from_dead(self) noexcept
    cdef int lead(self, uint64_t wanted, Deadline deadline) except -1
    cdef int sync_alone(self, Deadline deadline) except -1
    cdef int tell(self, const SyncedMark *mark, bint has_word) except -1
