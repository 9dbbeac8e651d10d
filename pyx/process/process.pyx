"""One process that writes to a journal, with the mapped page, the locks and the descriptors."""

from libc.stdint cimport uint8_t, uint64_t

from jlog._core.buffer.page cimport JLOG_PAGE_BYTES, jlog_first_unwritten, jlog_open_slot, jlog_slot
from jlog._core.system.lock cimport OPEN_BYTE, Deadline, Mutex
from jlog._core.read.journal_end cimport block_bytes
from jlog._core.process.descriptors cimport Descriptors
from jlog._core.process.locks cimport Locks


cdef class WritingProcess:
    def __init__(self, str path not None, bytes uuid not None):
        self.path = path
        self.uuid = uuid
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
        before = last.offset - first.offset if first.segment == last.segment and first.offset < last.offset else 0
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
