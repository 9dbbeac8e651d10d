from libc.stdint cimport uint64_t

from jlog._core.buffer.page cimport jlog_buffer
from jlog._core.buffer.precommit cimport Precommit
from jlog._core.format.dual_slot cimport BoundsFile
from jlog._core.system.lock cimport Deadline, DirectoryLock, LockFile, Mutex
from jlog._core.process.descriptors cimport Descriptors
from jlog._core.process.locks cimport Locks
from jlog._core.process.operation cimport Operation

# A Writer object, as far as the writing process has to stop it.
cdef class Appender:
    cdef const uint64_t *process
    cdef uint64_t token
    cdef object __weakref__

cdef class WritingProcess:
    cdef readonly object path  # a HeldPath
    cdef readonly bytes uuid
    cdef readonly uint64_t epoch  # epoch that the process has read or begun under the open lock
    cdef jlog_buffer buffer
    cdef Precommit precommit
    cdef BoundsFile bounds
    cdef Locks locks
    cdef DirectoryLock directory_lock
    cdef Descriptors descriptors
    cdef Mutex opening_mutex
    cdef object appenders  # a WeakSet of Appender
    cdef bint replaced  # its files are not in the journal any more, or their descriptors were closed: nothing may be written
    cdef object lost  # class and text of the error that check() has found; None: the journal is where it was opened

    cdef object opening(self, Deadline deadline)
    cdef int map_buffer(self) except -1
    cdef tuple written_place(self)
    cdef uint64_t buffered_bytes(self) noexcept
    cdef int check(self) except -1
    cdef int look(self) except -1
    cdef int in_place(self, Operation *operation) noexcept nogil
    cdef int refuse_lost(self) except -1
    cdef close(self)

# The stages of an attachment's life, in this order. They are changed with the GIL held.
cdef enum:
    OPENING = 0
    OPEN = 1
    CLOSING = 2
    CLOSED = 3

# Users have attached and not detached; pins are calls under way. The last of all to go closes the attachment, once.
cdef class Life:
    cdef int stage
    cdef int users
    cdef int pins
    cdef unsigned long opener_or_closer  # the thread that opens or closes it
    cdef LockFile lock_file
    cdef Deadline closing_deadline  # deadline of the last detach()

    cdef bint may_call(self) noexcept
    cdef bint may_be_closed(self) noexcept
    cdef bint opens_or_closes_it(self) noexcept
    cdef void begin_closing(self) noexcept
