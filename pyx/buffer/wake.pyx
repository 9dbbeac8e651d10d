"""Lets writers wake readers: readers set a flag in the control page, and sleep on a counter beside it.

A reader reads the counter, then sets the flag, then looks for a record once more. A record that is published after that look
finds the flag. No reader sleeps longer than a second, because a writer may die between publishing and waking.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, mmap, munmap

from jlog._core.system.file cimport jlog_read_at, jlog_write_at
from jlog._core.buffer.page cimport JLOG_PAGE_BYTES, JLOG_WAKE_COUNTER_OFFSET, JLOG_WAKE_FLAG_OFFSET
from jlog._core.buffer.precommit cimport Precommit


cdef class Waker:
    """Ends the waits of a thread of this process. It needs no memory: a threading.Event without memory keeps its lock, so that
    each later call waits for it."""

    cpdef ring(self):
        jlog_ring(&self.word)

    @property
    def rings(self) -> int:
        return self.word

    cdef bint wait(self, int64_t timeout_us) noexcept:
        """Waits until it has rung once, or for this time. Returns whether it has rung."""
        with nogil:
            jlog_wait_private(&self.word, 0, timeout_us)
        return self.word != 0


cdef class WakeWord:
    """The wake counter of a control page. The page is mapped only to sleep on this word, and is never dereferenced: the kernel
    reads it, and answers EFAULT for a truncated file."""

    def __init__(self, Precommit precommit not None):
        self.precommit = precommit
        page = mmap(NULL, JLOG_PAGE_BYTES, PROT_READ, MAP_SHARED, precommit.fd, 0)
        if page != MAP_FAILED:  # otherwise ask() returns False, and the reader polls
            self.page = page
            self.word = <uint32_t *> (<uint8_t *> page + JLOG_WAKE_COUNTER_OFFSET)

    def __dealloc__(self):
        if self.page != NULL:
            munmap(self.page, JLOG_PAGE_BYTES)

    cdef uint32_t counter(self) noexcept nogil:
        cdef uint32_t found = 0
        jlog_read_at(self.precommit.fd, &found, sizeof(found), JLOG_WAKE_COUNTER_OFFSET)
        return found

    cdef bint ask(self) noexcept nogil:
        """Asks writers to wake this reader for everything they publish from now on. Returns False if that is not possible."""
        cdef uint32_t flag = 1
        return self.word != NULL and jlog_write_at(self.precommit.fd, &flag, sizeof(flag), JLOG_WAKE_FLAG_OFFSET) == 0


cdef WakeWord wake_word(WakeWord known, Precommit precommit):
    """Returns the wake word of this page: the known one, unless that is None or another page's."""
    return known if known is not None and known.precommit is precommit else WakeWord(precommit)
