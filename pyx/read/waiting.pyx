"""Waits for many journals in one thread, for jlog/reading/event_loops.py."""

from libc.errno cimport EAGAIN, EINTR, ETIMEDOUT
from libc.stdint cimport int64_t, uint32_t

from jlog._core.read.cursor cimport Cursor
from jlog._core.read.journal_end cimport JournalEnd
from jlog._core.buffer.wake cimport (
    JLOG_WORDS_MAX, Waker, WakeWord, jlog_await, jlog_awaited, jlog_wait_for_any, jlog_wait_private)

from jlog.errors import JournalError
from jlog.system.files import HeldPath

JOURNALS_MAX = JLOG_WORDS_MAX - 1  # one word is the bell's


cdef class WatchedJournal:
    """A journal, and the readers that wait for it."""

    cdef readonly set waiters
    cdef readonly bint asked  # its writers were asked to wake this process; otherwise it is polled
    cdef JournalEnd end
    cdef WakeWord wake
    cdef uint32_t counter  # the wake counter as last seen: all readers know of everything before it
    cdef object state

    def __init__(self, Cursor cursor not None):
        self.waiters = set()
        self.end = cursor.blocks.stop.another()
        if self.end.precommit is not None:
            self.wake = WakeWord(self.end.precommit)
            self.counter = self.wake.counter()
        self.has_changed()

    @staticmethod
    def key(Cursor cursor not None) -> tuple:
        """Returns a key that is the same for all readers of a journal."""
        cursor.check_open()
        if cursor.blocks.stop.precommit is None:
            return cursor.path, 0, 0
        return cursor.path, cursor.blocks.stop.precommit.file.device, cursor.blocks.stop.precommit.file.inode

    def ask(self, Cursor cursor not None) -> None:
        """Asks the writers to wake us for everything they publish from now on. Comes before the cursor's last look."""
        self.asked = self.wake is not None and cursor.blocks.stop.can_be_woken() and self.wake.ask()

    def has_changed(self) -> bool:
        """Returns whether the journal's end has changed since the last call."""
        try:
            self.end.note()
            if isinstance(self.end.path, HeldPath):
                self.end.path.check()
        except (JournalError, OSError):
            return True  # each waiting reader meets the error itself
        before, self.state = self.state, self.end.state
        return before != self.state

    cdef bint was_woken(self) noexcept:
        cdef uint32_t counter
        if not self.asked:
            return False
        counter = self.wake.counter()
        if counter == self.counter:
            return False
        self.counter = counter
        return True


def wait_for_change(list journals not None, Waker waker not None, uint32_t rings, double seconds, double poll_seconds) -> list:
    """Waits until a writer wakes us, the bell has been rung more than `rings` times, or the seconds have passed. Returns the
    journals whose writers woke us. A kernel that cannot wait for many words at once is polled every `poll_seconds`."""
    cdef jlog_awaited awaited[JLOG_WORDS_MAX]
    cdef WatchedJournal journal
    cdef unsigned count = 1
    cdef int error
    jlog_await(&awaited[0], &waker.word, rings, False)
    for journal in journals:
        if journal.asked:
            jlog_await(&awaited[count], journal.wake.word, journal.counter, True)
            count += 1
    with nogil:
        error = jlog_wait_for_any(awaited, count, <int64_t> (seconds * 1e6))
        if error not in (0, EAGAIN, EINTR, ETIMEDOUT):
            jlog_wait_private(&waker.word, rings, <int64_t> (min(seconds, poll_seconds) * 1e6))
    return [journal for journal in journals if journal.was_woken()]
