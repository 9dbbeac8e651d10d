"""The descriptors that one writing process keeps of the journal's directory and segments.

Everything here runs without the interpreter, except the making of the class.
"""

from libc.errno cimport ESTALE
from libc.stdint cimport uint64_t
from libc.string cimport memmove
from posix.fcntl cimport O_RDWR

from jlog._core.system.file cimport (
    close_file, duplicate, identify, is_file, jlog_has_no_name, jlog_inode_at, open_at)
from jlog._core.format.format cimport JLOG_NAME_BYTES, JLOG_NONE, jlog_segment_name
from jlog._core.buffer.page cimport jlog_page
from jlog._core.system.atomic cimport jlog_load_acquire

cdef extern from "process/leaf_mutex.h" nogil:
    int jlog_leaf_start()
    void jlog_leaf_lock()
    void jlog_leaf_unlock()


if jlog_leaf_start() != 0:
    raise MemoryError


cdef uint64_t doubtful_now(jlog_page *page, uint64_t own) noexcept nogil:
    """Returns the generation before which a descriptor that is opened now may not report failed write-backs of blocks; 0 if it
    reports all. The kernel reports a failed write-back to the descriptors that are open when it happens. A descriptor that is
    opened later gets the report only if no other one has got it. The page holds the result of every sync that has ended. So a
    sync that has begun and not ended makes the older blocks doubtful. `own`: how many of these syncs are the caller's own."""
    cdef uint64_t ended = jlog_load_acquire(&page.syncs_ended)
    return 0 if jlog_load_acquire(&page.syncs_begun) == ended + own else jlog_load_acquire(&page.generation)


cdef class Descriptors:
    def __cinit__(self):
        self.directory = self.open.fd = -1
        self.open.segment = JLOG_NONE

    def __dealloc__(self):
        self.close()

    cdef void close(self) noexcept nogil:
        """Closes all descriptors. No call may be under way."""
        self.forget(JLOG_NONE, False)
        self.directory = -1

    cdef int of_open(self, uint64_t segment) noexcept nogil:
        """Returns the descriptor of the open segment, or -errno. The caller holds the append lock."""
        cdef char name[JLOG_NAME_BYTES]
        cdef int fd
        if segment == self.open.segment and self.is_current(&self.open):
            return self.open.fd
        fd = -self.in_place()
        if fd < 0:
            return fd
        jlog_segment_name(name, segment)
        fd = open_at(self.directory, name, O_RDWR, 0)
        if fd >= 0:
            self.take(segment, fd, doubtful_now(self.buffer.page, 0))
        return fd

    cdef int in_place(self) noexcept nogil:
        """Returns 0 if the directory still holds the buffer that this process has mapped, or else an errno. Another journal may
        have been restored in its place, with segments of the same names."""
        cdef uint64_t inode = 0
        cdef int error = jlog_inode_at(self.directory, b"precommit", &inode)
        return ESTALE if error == 0 and inode != self.buffer.page.inode else error

    cdef bint is_current(self, const Descriptor *found) noexcept nogil:
        """Returns whether it still is the descriptor of its file, and this file certainly still has the segment's name: no
        other file has taken it since."""
        return found.incarnation == jlog_load_acquire(&self.buffer.page.incarnation) and is_file(found.fd, &found.file)

    cdef void take(self, uint64_t segment, int fd, uint64_t doubtful) noexcept nogil:
        """Makes this the descriptor of the open segment. The one before is kept until its segment is synced, because Linux
        reports a failed write-back through descriptors that were open when it happened."""
        jlog_leaf_lock()
        if self.open.segment == segment:  # it belongs to a replaced file, whose content was synced
            close_file(self.open.fd, &self.open.file)
        elif self.open.fd >= 0:
            if self.retained_count == RETAINED_MAX:
                close_file(self.retained[0].fd, &self.retained[0].file)
                self.retained_count -= 1
                memmove(self.retained, self.retained + 1, self.retained_count * sizeof(Descriptor))
            self.retained[self.retained_count] = self.open
            self.retained_count += 1
        self.open.segment, self.open.fd, self.open.doubtful = segment, fd, doubtful
        self.open.incarnation = self.buffer.page.incarnation
        identify(fd, &self.open.file)
        jlog_leaf_unlock()

    cdef int borrow(self, uint64_t segment, uint64_t *doubtful) noexcept nogil:
        """Returns a duplicate of the kept descriptor, which reports the same failed write-backs; below 0 if none is kept."""
        cdef Descriptor *found = NULL
        cdef int i, fd = -1
        jlog_leaf_lock()
        if self.open.segment == segment and self.is_current(&self.open):
            found = &self.open
        for i in range(self.retained_count):
            if self.retained[i].segment == segment and is_file(self.retained[i].fd, &self.retained[i].file):
                found = &self.retained[i]
        if found != NULL:
            fd, doubtful[0] = duplicate(found.fd), found.doubtful
        jlog_leaf_unlock()
        return fd

    cdef void forget(self, uint64_t segment, bint removed) noexcept nogil:
        """Closes the descriptors of the segments before this one. They are synced, and no process writes to them. `removed`:
        also those of files that were removed or replaced. They need no sync, and take up disk space while they are open."""
        cdef int i, kept = 0
        jlog_leaf_lock()
        if self.open.fd >= 0 and (self.open.segment < segment or (removed and not self.is_current(&self.open))):
            close_file(self.open.fd, &self.open.file)
            self.open.segment, self.open.fd = JLOG_NONE, -1
        for i in range(self.retained_count):
            if self.retained[i].segment < segment or (removed and (
                    jlog_has_no_name(self.retained[i].fd) or not is_file(self.retained[i].fd, &self.retained[i].file))):
                close_file(self.retained[i].fd, &self.retained[i].file)
            else:
                self.retained[kept] = self.retained[i]
                kept += 1
        self.retained_count = kept
        jlog_leaf_unlock()
