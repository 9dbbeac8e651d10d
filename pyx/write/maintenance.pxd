from libc.stdint cimport int64_t

from jlog._core.write.group_commit cimport GroupCommit
from jlog._core.process.process cimport WritingProcess

cdef class Maintenance:
    cdef WritingProcess process
    cdef GroupCommit group
    cdef bint told_clock  # whether the log has said that the journal's times are ahead of the clock
    cdef int64_t synced_us  # time of the last sync, or of the first call without a sync; 0 before that

    cdef int64_t pause_us(self) noexcept
    cdef int maintain(self) except -1
    cdef int tell_clock(self) except -1
    cdef int sync_if_due(self, int64_t now_us) except -1
    cdef bint is_due(self, int64_t now_us) except -1
    cdef int64_t sync_pause_us(self) noexcept
