"""The life of an attachment: who uses it, and whether a call may begin."""

from jlog._core.system.lock import NEVER

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()


cdef class Life:
    """Its stages are OPENING, OPEN, CLOSING, CLOSED. While it is OPEN calls may begin, of threads that use it and of the one
    that keeps it up. The last of its users and calls to go makes it CLOSING, and is the only one that closes it: nothing else
    is under way then, and what would begin is refused. A child of a fork has none of it."""

    def __cinit__(self):
        self.worker = PyThread_get_thread_ident()
        self.closing_deadline = NEVER

    cdef bint may_call(self) noexcept:
        """Returns whether a call of this thread may begin: not before it is open; not once it is about to close, but for what
        the closing itself does; and never in a child of the process that made it."""
        if self.stage == OPEN or (self.stage == CLOSING and self.is_worker()):
            return self.lock_file.is_open()
        return False

    cdef bint is_over(self) noexcept:
        """Returns whether nobody uses it, no call is under way, and nobody closes it yet."""
        return self.pins == 0 and self.users == 0 and self.stage == OPEN

    cdef bint is_worker(self) noexcept:
        return self.worker == PyThread_get_thread_ident()

    cdef void begin_closing(self) noexcept:
        self.stage, self.worker = CLOSING, PyThread_get_thread_ident()
