from libc.stdint cimport uint64_t

from jlog._core.system.lock cimport Deadline
from jlog._core.write.member cimport Options
from jlog._core.write.sync cimport Syncer

cdef class Attachment(Syncer):
    cdef object key  # (device, inode) of the journal's directory
    cdef object opened  # a lock that is held until it is open, or could not be opened
    cdef object opening_mutex
    cdef int exclusive_writers
    cdef bint first  # of all processes
    cdef bint mended  # files after a failed sync

    cdef enter(self, uint64_t capacity, Deadline deadline)
    cdef take_part(self, uint64_t capacity, Deadline deadline)
    cdef bint join(self, Deadline deadline) except -1
    cdef leave(self, bint wait, Deadline deadline)
    cdef void unregister(self)
    cdef close(self, Deadline deadline)
    cdef let_go(self)
    cdef recover(self, const Options *options, Deadline deadline)
    cdef forget_derived(self, bounds)
    cdef finish_dead(self)
    cdef map_buffer(self)
    cdef enlarge(self, capacity)
    cdef take_slot(self)
    cdef remove_unfinished(self, bint alone)
    cdef note_end(self, Deadline deadline)
