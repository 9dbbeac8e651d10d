"""One process that writes to a journal, with the mapped page, the locks and the descriptors. Its life: its users, its calls,
and whether a call may begin."""

import weakref

from cpython.pythread cimport PyThread_get_thread_ident
from libc.errno cimport ENOENT, ESTALE
from libc.stdint cimport uint8_t, uint64_t

from jlog._core.buffer.page cimport JLOG_PAGE_BYTES, jlog_first_unwritten, jlog_open_slot, jlog_slot
from jlog._core.system.lock cimport OPEN_BYTE, Deadline, Mutex
from jlog._core.read.journal_end cimport block_bytes
from jlog._core.process.descriptors cimport Descriptors
from jlog._core.process.locks cimport Locks
from jlog._core.process.operation cimport DONE, Operation, failed

from jlog._core.system.lock import NEVER
from jlog.errors import JournalClosed, JournalMoved

cdef uint64_t _NOBODY = 0  # a token that no process has


cdef class WritingProcess:
    def __init__(self, path not None, bytes uuid not None):
        self.path = path
        self.uuid = uuid
        self.appenders = weakref.WeakSet()
        self.locks = Locks()
        self.locks.buffer = &self.buffer
        self.descriptors = Descriptors()
        self.descriptors.buffer = &self.buffer
        self.opening_mutex = Mutex(f"{path}/lock")

    cdef object opening(self, Deadline deadline):
        """Returns a context with the open lock. One thread of one process at a time may open the journal, change its options,
        or close it as the last."""
        return self.locks.file.held(OPEN_BYTE, deadline=deadline, what="was opening, changing or closing it",
                                    mutex=self.opening_mutex)

    cdef int check(self) except -1:
        """Raises JournalMoved if the path does not lead to this journal any more, and JournalClosed if the program has closed
        the journal's descriptors. From then on every call of this process raises it, until the journal is opened anew: what is
        appended would be in no journal that others find, or would have no lock to protect it."""
        self.refuse_lost()
        try:
            self.look()
        except (JournalMoved, JournalClosed) as error:
            self.lost = type(error), str(error)
            for appender in self.appenders:
                (<Appender> appender).process = &_NOBODY  # ends the short way of append
            raise
        return 0

    cdef int look(self) except -1:
        cdef int error
        try:
            self.path.descriptor()
            self.locks.file.check_own()
            self.bounds.check_own()
        except JournalClosed:
            self.replaced = True
            raise
        error = self.descriptors.in_place()
        self.path.check()
        if error != ENOENT and error != ESTALE:  # another error says nothing about the journal
            return 0
        self.replaced = True
        self.directory_lock.close()  # this process appends nothing more, so that another one may go on
        raise JournalMoved(f"{self.precommit.path} was removed or replaced while this process writes to the journal, as by a "
                           "restore in place: no other process finds what it appends. Close every object that has the journal "
                           "open, and open it again")

    cdef int in_place(self, Operation *operation) noexcept nogil:
        """Returns DONE if the directory still holds this journal. Comes before each step that gives a file a name or removes
        one."""
        cdef int error = self.descriptors.in_place()
        return DONE if error == 0 else failed(operation, error, b"finding this journal's own buffer in its directory")

    cdef int refuse_lost(self) except -1:
        if self.lost is not None:
            raise self.lost[0](self.lost[1])
        return 0

    cdef int map_buffer(self) except -1:
        self.precommit.map()
        self.buffer.page = self.precommit.page
        self.buffer.bodies = <uint8_t *> self.precommit.page + JLOG_PAGE_BYTES
        return 0

    cdef tuple written_place(self):
        """Returns (segment, offset, first sequence) of the first block that is not in its segment yet."""
        cdef jlog_slot slot = jlog_first_unwritten(self.buffer.page)
        return slot.segment, slot.offset, slot.first_sequence

    cdef uint64_t buffered_bytes(self) noexcept:
        """Returns how many bytes the blocks that are not in their segment yet will take there, uncompressed."""
        cdef jlog_slot first = jlog_first_unwritten(self.buffer.page), last = jlog_open_slot(self.buffer.page)[0]
        cdef uint64_t before = last.offset - first.offset if first.segment == last.segment and first.offset < last.offset else 0
        return before + block_bytes(&last)

    cdef close(self):
        """Closes all files, also if the opening has failed halfway. This frees all locks."""
        if self.directory_lock is not None:
            self.directory_lock.close()
        if self.locks.file is not None:
            self.locks.file.close()
        if self.bounds is not None:
            self.bounds.close()
        if self.precommit is not None:
            self.precommit.close()
        self.buffer.page = NULL
        self.descriptors.close()
        self.path.close()


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
