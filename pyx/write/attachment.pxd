from libc.stdint cimport uint64_t

from jlog._core.system.lock cimport Deadline, Deferred
from jlog._core.write.group_commit cimport GroupCommit
from jlog._core.write.maintenance cimport Maintenance
from jlog._core.append.operations cimport Operations
from jlog._core.process.process cimport Life, WritingProcess

cdef class Attachment:
    cdef object key  # (device, inode) of the journal's directory
    cdef object opened  # a lock that is held until the opening has succeeded or failed
    cdef WritingProcess process
    cdef Life life
    cdef Operations operations
    cdef GroupCommit group
    cdef Maintenance maintenance
    cdef object thread  # the MaintenanceThread; None without one
    cdef int exclusive_writers
    cdef int found  # result of take_part(), until begin() has used it

    cdef enter(self, uint64_t capacity, Deadline deadline)
    cdef bint is_lost(self)
    cdef bint join(self, Deadline deadline) except -1
    cdef leave(self, bint wait, Deadline deadline)
    cdef int pin(self) except -1
    cdef unpin(self)
    cdef finish(self, Deadline deadline)
    cdef void unregister(self)
    cdef begin(self, Deadline deadline)
    cdef int take_writers(self, bint exclusive, care) except -1
    cdef int give_writers(self, bint exclusive) except -1
    cdef change_options(self, options, Deadline deadline)
    cdef int start_maintenance(self) except -1
    cdef int make_durable(self, Deadline deadline) except -1
    cdef int flush(self, Deadline deadline) except -1
    cdef int roll(self, Deadline deadline) except -1
    cdef close(self, Deadline deadline)
    cdef let_go(self)
    cdef write_closed_end(self, Deadline deadline)

cdef class Leaving(Deferred):
    cdef Attachment attachment  # None before begin(), and afterwards
    cdef object timeout
    cdef Deadline deadline

    cdef void begin(self, Attachment attachment) noexcept
