from libc.stdint cimport int64_t, uint64_t

from jlog._core.format.dual_slot cimport SyncedMark
from jlog._core.process.process cimport WritingProcess

# The syncs of one writing process.
cdef class SegmentSync:
    cdef WritingProcess process
    cdef uint64_t synced_incarnation  # whose name is in the directory for certain
    cdef int under_way  # by threads of this process
    cdef int64_t last_us  # how long the last fdatasync took

    cdef int sync(self, SyncedMark *mark) except -1
    cdef int sync_files(self, uint64_t segment, uint64_t end) except -1
    cdef int sync_segment(self, uint64_t segment, uint64_t end) except -1
    cdef int fail(self, int error) except -1
