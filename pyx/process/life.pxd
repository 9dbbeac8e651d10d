from jlog._core.system.lock cimport Deadline, LockFile

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
