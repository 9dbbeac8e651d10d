"""A reader's position: one call at a time, and moved as the last step before the caller has the records.

A signal's handler runs between any two steps of Python code, and may raise. So a call that takes records notes where it began,
and owes what it has taken until compiled code hands it out, with no step of Python between that and the caller. If the call is
interrupted, the next one goes back first. An exception that is raised after that step is raised in the caller's own code, where
the caller may or may not have the records: no library can know.
"""

from functools import wraps

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint64_t

from jlog._core.read.blocks cimport closed_error
from jlog._core.system.file cimport process_token

from jlog.errors import JournalError


cdef class ReadPosition:
    """The base of every position among records. Any thread may ask where it stands, and may close it; all other calls are
    refused while one is under way."""

    def __init__(self, path not None):
        self.note(path)

    cdef int note(self, path) except -1:
        self.path = path
        self.process = process_token()
        self.token = self.process[0]
        return 0

    def check_open(self) -> None:
        """Raises JournalClosed if it is closed, or was created before this process was forked."""
        if self.token == 0 or self.process[0] != self.token:
            raise closed_error(self.path)

    def close(self) -> None:
        """Closes it, in any thread. A call that is under way ends with JournalClosed; one that waits ends at once."""
        self.token = 0
        self._wake()
        if not self.use & (IN_USE | HELD):
            self.release()

    @property
    def position(self) -> int:
        """Sequence of the next record to hand out. During a call it is the one before the call."""
        return self.began if self.use & OWED else self.where()

    @property
    def reached(self) -> int:
        """Sequence where it stands now, also in the middle of a call."""
        return self.where()

    # --- One call at a time -------------------------------------------------------------------------------------

    cdef int prepare(self) except -1:
        """Refuses a call beside another one. Goes back if a call was interrupted before it could hand out what it had taken."""
        self.check_open()
        if self.use & (IN_USE | HELD):
            raise JournalError(f"{self.path}: this reader is in use by another thread, or by the call that a signal handler "
                               "interrupted; open a reader for each thread")
        if self.where() != self.began:
            self.use = HELD | OWED
            try:
                self.go_back(self.began)
            finally:
                self.use = OWED
        self.use = FREE
        return 0

    cdef int hold(self, bint goes_back) except -1:
        """Takes the position for a call of several steps. `goes_back`: goes back first, if that is owed."""
        if self.token == 0 or self.process[0] != self.token:
            self.check_open()
        if goes_back and self.use == OWED or self.use & (IN_USE | HELD):
            self.prepare()
        self.use |= HELD
        try:
            return self.owe()
        except BaseException:
            self.use &= ~HELD
            raise

    cdef int owe(self) except -1:
        """Notes that what is taken from here on is not handed out yet."""
        if not self.use & OWED:
            self.began = self.where()
            self.use |= OWED
        return 0

    cdef int let_go(self, bint done) except -1:
        """Ends the call. `done`: nothing is owed."""
        self.use = FREE if done else OWED
        if self.token == 0:
            self.release()
        return 0

    # --- Of the subclasses --------------------------------------------------------------------------------------

    cdef uint64_t where(self) except? -1:
        """Returns where it stands."""
        return self._where()

    cdef int go_back(self, uint64_t sequence) except -1:
        """Goes back to a sequence where it has stood before."""
        self._go_back(sequence)
        return 0

    cdef void release(self) noexcept:
        """Frees what it holds, once it is closed and no call uses it."""
        self._release()

    def _wake(self) -> None:
        """Ends the waiting of a call that is under way."""


cdef bint is_own(BaseException error):
    """Returns whether the error tells about the records at the position, and is not a signal's, nor one of memory."""
    return isinstance(error, JournalError) or isinstance(error, OSError) and error.errno is not None


def handing_out(call):
    """Decorates a Reader's method that returns records from its `_cursor` on. Their way from here to the caller has no step of
    Python code. After an error of the records themselves the position stands at them; after any other it is where it was."""
    return whole(call, True)


def moving(call):
    """Decorates a Reader's method that moves its `_cursor` to somewhere else. After an error the position is where it was."""
    return whole(call, False)


cdef whole(call, bint hands_out):
    @wraps(call)
    @cython.binding(True)
    def method(reader, *arguments, **options):
        cdef ReadPosition position = reader._cursor
        position.hold(hands_out)
        try:
            found = call(reader, *arguments, **options) if options else call(reader, *arguments)
            PyErr_CheckSignals()
        except BaseException as error:
            position.let_go(hands_out and is_own(error))
            raise
        position.let_go(True)
        return found

    return method
