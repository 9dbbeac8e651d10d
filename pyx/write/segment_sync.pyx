"""Syncs the segments that may not be durable yet, and the directory with their names."""

import os

from libc.errno cimport EIO
from libc.stdint cimport int64_t, uint64_t

from jlog._core.format.dual_slot cimport SyncedMark
from jlog._core.system.file cimport OpenFile, close_descriptor, jlog_sync_data, jlog_sync_directory, plain
from jlog._core.buffer.page cimport jlog_first_unwritten, jlog_page, jlog_slot
from jlog._core.buffer.publish cimport jlog_wake
from jlog._core.system.atomic cimport jlog_add64, jlog_load_acquire, jlog_raise_to
from jlog._core.system.clock cimport CLOCK_MONOTONIC, jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.process.descriptors cimport doubtful_now
from jlog._core.process.process cimport WritingProcess

from jlog._core.recover.recovery import rewrite_unsynced_blocks
from jlog._core.segments.segment import list_segments, segment_name
from jlog.errors import JournalError
from jlog.system.files import file_in, open_file


cdef class SegmentSync:
    def __init__(self, WritingProcess process not None):
        self.process = process

    cdef int sync(self, SyncedMark *mark) except -1:
        """Syncs every block that is in its segment now. The end of these blocks is read before the fdatasync, and becomes the
        mark."""
        cdef jlog_page *page = self.process.buffer.page
        cdef jlog_slot slot
        cdef int64_t began_us
        if page.sync_error != 0:
            self.fail(page.sync_error)
        slot = jlog_first_unwritten(page)
        began_us = jlog_clock_us(CLOCK_MONOTONIC)
        # A process that dies during its fdatasync may have learned of a failure without storing it. Then syncs_begun stays
        # above syncs_ended.
        jlog_add64(&page.syncs_begun, 1)
        self.under_way += 1
        try:
            JLOG_FAILPOINT(b"sync.begun")
            self.sync_files(slot.segment, slot.offset)
            JLOG_FAILPOINT(b"sync.done")
        finally:
            self.under_way -= 1
            jlog_add64(&page.syncs_ended, 1)
        self.last_us = jlog_clock_us(CLOCK_MONOTONIC) - began_us
        jlog_add64(&page.counters.syncs, 1)
        jlog_raise_to(&page.durable_segment, slot.segment)
        jlog_raise_to(&page.durable_end, slot.first_sequence)
        jlog_wake(page)  # readers with durable_only wait for the durable end
        jlog_raise_to(&page.durable_generation, slot.generation)
        self.process.descriptors.forget(slot.segment, False)
        mark.segment, mark.offset, mark.sequence = slot.segment, slot.offset, slot.first_sequence
        return 0

    cdef int sync_files(self, uint64_t segment, uint64_t end) except -1:
        """Syncs the segments from the durable one up to this one, which ends at `end`, and the directory with their names."""
        cdef jlog_page *page = self.process.buffer.page
        cdef int error = 0
        first = page.durable_segment
        for name in [segment] if first == segment else [s for s in list_segments(self.process.path) if first <= s <= segment]:
            self.sync_segment(name, end if name == segment else 0)
        # The incarnation is read after the fdatasync, which may have synced a file that took the name of another one. While it
        # is odd, the file may not have the name yet.
        incarnation = jlog_load_acquire(&page.incarnation)
        if first != segment or incarnation != self.synced_incarnation:
            with nogil:
                error = jlog_sync_directory(self.process.descriptors.directory)
            if error != 0:
                self.fail(error)
            if not incarnation & 1:
                self.synced_incarnation = incarnation
        if page.sync_error != 0:  # stored meanwhile; a descriptor that was opened afterwards does not report that failure
            self.fail(page.sync_error)
        return 0

    cdef int sync_segment(self, uint64_t segment, uint64_t end) except -1:
        """Syncs a segment. If this process still has the descriptor that was open when the segment was written, and no other
        thread of it syncs, that descriptor is used: the kernel reports a failed write-back once to each descriptor. Blocks that
        a descriptor does not report on are written once more through it."""
        cdef jlog_page *page = self.process.buffer.page
        cdef uint64_t doubtful = 0
        cdef uint64_t incarnation = jlog_load_acquire(&page.incarnation)
        cdef int error = 0, fd = self.process.descriptors.borrow(segment, &doubtful) if self.under_way == 1 else -1
        try:
            if fd < 0:
                fd = (<OpenFile> open_file(file_in(self.process.path, segment_name(segment)), os.O_RDWR)).detach(NULL)
                doubtful = doubtful_now(page, 1)
            if jlog_load_acquire(&page.durable_generation) < doubtful:
                rewrite_unsynced_blocks(self.process.path, segment, self.process.uuid, end, fd, page.durable_end)
            with nogil:
                error = jlog_sync_data(fd)
        except FileNotFoundError:
            return 0  # cleaned: its records are not needed any more
        except JournalError:
            if jlog_load_acquire(&page.incarnation) == incarnation:
                error = EIO  # the blocks are gone; after a replacement they would be in another file, which was synced
        finally:
            if fd >= 0:
                close_descriptor(fd)
        if error != 0:
            self.fail(error)
        return 0

    cdef int fail(self, int error) except -1:
        """Stores the failure in the page, and raises. It is stored before any caller learns of it: the kernel may have dropped
        the pages that it failed to write, and no later sync would report them."""
        self.process.buffer.page.sync_error = error
        raise OSError(error, f"{os.strerror(error)}: fdatasync failed; what was not durable before may be lost in a power "
                             "loss; close all writers and open the journal again", plain(self.process.path))
