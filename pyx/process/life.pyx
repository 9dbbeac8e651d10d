"""The life of an attachment: its users, its calls, and whether a call may begin."""

from jlog._core.system.lock import NEVER

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()


cdef class Life:
    """The stages of a life are OPENING, OPEN, CLOSING and CLOSED. While the attachment is OPEN, calls of its users and of its
    maintenance thread may begin. The last user or call to go makes it CLOSING, and alone closes it: no other call is under way
    then, and no new one may begin. In a child of a fork no call may begin."""

    def __cinit__(self):
        self.opener_or_closer = PyThread_get_thread_ident()
        self.closing_deadline = NEVER

    cdef bint may_call(self) noexcept:
        """Returns whether a call of this thread may begin: while the attachment is open; while it closes, only in the thread
        that closes it; and never in a child of the process that created it."""
        if self.stage == OPEN or (self.stage == CLOSING and self.opens_or_closes_it()):
            return self.lock_file.is_open()
        return False

    cdef bint may_be_closed(self) noexcept:
        """Returns whether it has no user and no call under way, and no thread closes it yet."""
        return self.pins == 0 and self.users == 0 and self.stage == OPEN

    cdef bint opens_or_closes_it(self) noexcept:
        return self.opener_or_closer == PyThread_get_thread_ident()

    cdef void begin_closing(self) noexcept:
        self.stage, self.opener_or_closer = CLOSING, PyThread_get_thread_ident()
