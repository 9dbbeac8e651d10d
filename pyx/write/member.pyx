"""What one process has of a journal that it writes to: a slot, the mapped page, descriptors; and how it takes a lock word,
from a dead owner too.

Everything here but the class's making runs without the interpreter. No lock word is held while the GIL is waited for.
"""

from libc.errno cimport ENOENT
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memmove

from jlog._core.system.file cimport (
    JLOG_LOWEST_DESCRIPTOR,
    jlog_has_no_name,
    jlog_inode_at,
    jlog_open_at,
    jlog_sync_directory,
    jlog_unlink_at,
)
from jlog._core.format.format cimport (
    JLOG_NAME_BYTES,
    JLOG_NONE,
    jlog_block_header,
    jlog_load64,
    jlog_segment_name,
    jlog_walk,
    jlog_walk_records,
)
from jlog._core.system.lock cimport OWNERS_BYTE
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES,
    JLOG_OWNERS_MAX,
    jlog_body,
    jlog_is_unwritten,
    jlog_open_slot,
    jlog_page,
    jlog_slot,
    jlog_word_raw,
    jlog_word_used,
)
from jlog._core.buffer.publish cimport jlog_switch, jlog_wake
from jlog._core.buffer.room cimport jlog_begin_period, jlog_block_capacity, jlog_least_reserved, jlog_period_length
from jlog._core.system.atomic cimport (
    jlog_load_acquire,
    jlog_sleep_lock,
    jlog_spin_lock,
    jlog_store_release,
    jlog_take_word,
    jlog_unlock,
)
from jlog._core.system.clock cimport jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT

from jlog._core.segments.walk cimport JLOG_BLOCK_UNREADABLE, JLOG_BLOCK_VALID, jlog_check_block


cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef extern from "<fcntl.h>" nogil:
    int fcntl(int fd, int command, ...)
    enum:
        F_DUPFD_CLOEXEC
        F_WRLCK
        O_RDWR

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from * nogil:
    """
    #include <pthread.h>
    static pthread_mutex_t jlog_leaf_mutex = PTHREAD_MUTEX_INITIALIZER;
    static void jlog_leaf_lock(void) { pthread_mutex_lock(&jlog_leaf_mutex); }
    static void jlog_leaf_unlock(void) { pthread_mutex_unlock(&jlog_leaf_mutex); }
    /* Held across a fork: a child must not find it taken by a thread that it does not have. */
    static int jlog_leaf_start(void)
    {
        return pthread_atfork(jlog_leaf_lock, jlog_leaf_unlock, jlog_leaf_unlock);
    }
    """
    int jlog_leaf_start()
    ctypedef struct pthread_mutex_t:
        pass
    pthread_mutex_t jlog_leaf_mutex
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)

cdef enum:
    CLOCK_REALTIME = 0
    CLOCK_MONOTONIC = 1
    SPIN_TURNS = 400  # some 20 us: longer than an append, shorter than a sleep
    FIRST_SLICE_US = 1000  # after this a waiter asks whether the owner lives
    LONGEST_SLICE_US = 4000
    SIGNALS_EVERY_US = 50000

# jlog_leaf_mutex: an OFD lock does not exclude threads of one process; this does, from taking a dead owner's byte to
# letting it go. It also keeps the list of descriptors together. A leaf: nothing blocks under it.


if jlog_leaf_start() != 0:
    raise MemoryError


cdef int failed(Call *call, int error, const char *what) noexcept nogil:
    call.error = error
    call.what = what
    return FAILED


cdef uint64_t doubtful_now(jlog_page *page, uint64_t own) noexcept nogil:
    """What a descriptor that has just been opened does not tell: the fate of the blocks of all generations before this one.
    0 where it tells all. The kernel tells those that are open then of a failed write-back; who opens later learns of it only if
    nobody was told, or if that one has told. `own`: so many of the syncs that are under way are the caller's."""
    cdef uint64_t ended = jlog_load_acquire(&page.syncs_ended)
    return 0 if jlog_load_acquire(&page.syncs_begun) == ended + own else jlog_load_acquire(&page.generation)


cdef class Member:
    def __cinit__(self):
        self.directory = self.open.fd = self.slot = -1
        self.open.segment = JLOG_NONE

    def __dealloc__(self):
        self.close_descriptors()

    cdef void close_descriptors(self) noexcept nogil:
        """All that it has, once. Nobody is in a call."""
        self.forget_descriptors(JLOG_NONE)
        if self.directory >= 0:
            close(self.directory)
            self.directory = -1

    cdef bint may_call(self) noexcept:
        """Whether a call of this thread may begin: not before it is open, not once it is about to close, but for what the
        closing itself does, and never in a child of the process that made it."""
        if self.life == OPEN or (self.life == CLOSING and self.worker == PyThread_get_thread_ident()):
            return self.lock_file.is_open()
        return False

    cdef int descriptor(self, uint64_t segment) noexcept nogil:
        """Of the open segment, or -errno. Under the append lock."""
        cdef char name[JLOG_NAME_BYTES]
        cdef int fd
        if segment == self.open.segment and self.is_current(&self.open):
            return self.open.fd
        jlog_segment_name(name, segment)
        fd = jlog_open_at(self.directory, name, O_RDWR, 0)
        if fd >= 0:
            self.adopt_descriptor(segment, fd, doubtful_now(self.buffer.page, 0))
        return fd

    cdef bint is_current(self, const Descriptor *found) noexcept nogil:
        """False where another file has its name by now, or may have it."""
        return found.incarnation == jlog_load_acquire(&self.buffer.page.incarnation)

    cdef void adopt_descriptor(self, uint64_t segment, int fd, uint64_t doubtful) noexcept nogil:
        """It is the open segment's. The one before is kept until a sync has passed it: Linux tells of a failed write-back
        through descriptors that were open then."""
        pthread_mutex_lock(&jlog_leaf_mutex)
        if self.open.segment == segment:  # of a file that has been replaced: what it held was synced
            close(self.open.fd)
        elif self.open.fd >= 0:
            if self.retained_count == RETAINED_MAX:
                close(self.retained[0].fd)
                self.retained_count -= 1
                memmove(self.retained, self.retained + 1, self.retained_count * sizeof(Descriptor))
            self.retained[self.retained_count] = self.open
            self.retained_count += 1
        self.open.segment, self.open.fd, self.open.doubtful = segment, fd, doubtful
        self.open.incarnation = self.buffer.page.incarnation
        pthread_mutex_unlock(&jlog_leaf_mutex)

    cdef int borrow_descriptor(self, uint64_t segment, uint64_t *doubtful) noexcept nogil:
        """A descriptor of one's own that tells what the kept one would tell; -1 where none is kept."""
        cdef Descriptor *found = NULL
        cdef int i, fd = -1
        pthread_mutex_lock(&jlog_leaf_mutex)
        if self.open.segment == segment and self.is_current(&self.open):
            found = &self.open
        for i in range(self.retained_count):
            if self.retained[i].segment == segment:
                found = &self.retained[i]
        if found != NULL:
            fd, doubtful[0] = fcntl(found.fd, F_DUPFD_CLOEXEC, JLOG_LOWEST_DESCRIPTOR), found.doubtful
        pthread_mutex_unlock(&jlog_leaf_mutex)
        return fd

    cdef void forget_descriptors(self, uint64_t segment) noexcept nogil:
        """Those of segments before this one, which are synced, and which nobody writes to."""
        cdef int i, kept = 0
        pthread_mutex_lock(&jlog_leaf_mutex)
        if self.open.fd >= 0 and self.open.segment < segment:
            close(self.open.fd)
            self.open.segment, self.open.fd = JLOG_NONE, -1
        for i in range(self.retained_count):
            if self.retained[i].segment < segment:
                close(self.retained[i].fd)
            else:
                self.retained[kept] = self.retained[i]
                kept += 1
        self.retained_count = kept
        pthread_mutex_unlock(&jlog_leaf_mutex)

    cdef void forget_cleaned(self) noexcept nogil:
        """Of files that were removed or replaced: nobody will sync them, and as long as they are open they take up space."""
        cdef int i, kept = 0
        pthread_mutex_lock(&jlog_leaf_mutex)
        if self.open.fd >= 0 and not self.is_current(&self.open):
            close(self.open.fd)
            self.open.segment, self.open.fd = JLOG_NONE, -1
        for i in range(self.retained_count):
            if jlog_has_no_name(self.retained[i].fd):
                close(self.retained[i].fd)
            else:
                self.retained[kept] = self.retained[i]
                kept += 1
        self.retained_count = kept
        pthread_mutex_unlock(&jlog_leaf_mutex)

    cdef int acquire(self, uint32_t *word, Call *call) noexcept nogil:
        """Takes a lock word. DONE; or SIGNALS, TIMED_OUT, DAMAGED, FAILED with the word not taken."""
        cdef int64_t began_us, slice_us = FIRST_SLICE_US, now_us
        cdef uint32_t found = 0
        cdef int status
        if jlog_spin_lock(word, self.buffer.owner, SPIN_TURNS):
            return DONE
        began_us = jlog_clock_us(CLOCK_MONOTONIC)
        while True:
            if jlog_sleep_lock(word, self.buffer.owner, slice_us, &found):
                return DONE
            now_us = jlog_clock_us(CLOCK_MONOTONIC)
            if now_us - began_us >= FIRST_SLICE_US and found not in (0, self.buffer.owner):
                if found > JLOG_OWNERS_MAX:
                    call.what = b"a lock word names no owner; close all writers, the next to open alone recovers"
                    return DAMAGED
                status = self.take_over(word, found)
                if status == DONE:
                    if word == &self.buffer.page.append_lock:
                        self.buffer.page.counters.takeovers += 1
                        status = self.repair(call)
                        if status != DONE:
                            self.release(word)
                    return status
                slice_us = min(slice_us * 2, LONGEST_SLICE_US)
            if call.deadline_us >= 0 and now_us >= call.deadline_us:
                return TIMED_OUT
            if now_us - began_us >= SIGNALS_EVERY_US:
                return SIGNALS

    cdef int take_over(self, uint32_t *word, uint32_t dead) noexcept nogil:
        """The word from an owner whose byte nobody holds. The byte is held until the word is ours: it is the proof of
        death, and keeps the slot from being taken meanwhile."""
        cdef bint won = False
        pthread_mutex_lock(&jlog_leaf_mutex)
        if self.lock_file.try_lock(F_WRLCK, OWNERS_BYTE + dead - 1, 1) == 0:
            JLOG_FAILPOINT(b"takeover.proved")
            won = jlog_take_word(word, dead, self.buffer.owner)
            JLOG_FAILPOINT(b"takeover.taken")
            self.lock_file.unlock(OWNERS_BYTE + dead - 1, 1)
        pthread_mutex_unlock(&jlog_leaf_mutex)
        return DONE if won else FAILED

    cdef int repair(self, Call *call) noexcept nogil:
        """Under the append lock, after its owner died. Where this cannot be completed, perhaps for want of something that
        another process has, nobody appends before the next holder of the lock has completed it."""
        cdef int status = self.make_good(call)
        self.buffer.page.unrepaired = status != DONE
        return status

    cdef int make_good(self, Call *call) noexcept nogil:
        """What is derived is computed anew. What the dead owner left half done is undone, or done where it cannot be undone.
        Killed or failed anywhere, it is done again from the beginning."""
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot = jlog_open_slot(page)
        cdef const uint8_t *body = jlog_body(&self.buffer, slot.generation)
        cdef jlog_walk walk
        cdef char name[JLOG_NAME_BYTES]
        cdef int error, status
        if jlog_walk_records(body + JLOG_BASE_BYTES, jlog_word_raw(slot.word), jlog_load64(body), &walk) != 0:
            call.what = b"the open block is no sequence of records"
            return DAMAGED
        if jlog_is_unwritten(page, page.generation):  # noted for a switch that did not come
            page.unwritten = 0
        if page.rolling == page.generation - 1:
            page.sealed_bytes = page.next_sealed_bytes
        jlog_store_release(&page.rolling, 0)
        if page.period_us != 0 and page.period_us != jlog_period_length(page):
            jlog_begin_period(page, jlog_clock_us(CLOCK_REALTIME))  # its option was about to change
        # It may be another segment's, before or behind a roll. To allocate what is allocated already costs nothing.
        page.reserved_end = jlog_least_reserved(slot)
        page.next_sequence = slot.first_sequence + walk.record_count
        page.clamp_us = max(page.clamp_us, walk.clock_max_us)
        page.explicit_count = walk.explicit_count
        page.explicit_max_us = walk.explicit_max_us
        JLOG_FAILPOINT(b"repair.derived")
        status = self.finish_replacing(call)
        if status != DONE:
            return status
        slot = jlog_open_slot(page)
        if page.next_sequence != slot.segment:
            # A roll that was killed may have left a file under the name that the next one needs. Synced even where there
            # is none: another takeover may have been killed between the two, and the file would come back.
            jlog_segment_name(name, page.next_sequence)
            error = jlog_unlink_at(self.directory, name)
            if error != 0 and error != ENOENT:
                return failed(call, error, b"removing the file of a killed roll")
            JLOG_FAILPOINT(b"repair.unlinked")
            error = jlog_sync_directory(self.directory)
            if error != 0:
                page.sync_error = error  # a later sync that succeeds would not tell whether this one's loss was made good
                return failed(call, error, b"syncing the directory without the file of a killed roll")
        return self.complete_direct(call)

    cdef int finish_replacing(self, Call *call) noexcept nogil:
        """Another file may have been about to take the open segment's name. If it has, the switch to it was missing; both
        hold the same state."""
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot = jlog_open_slot(page)
        cdef char name[JLOG_NAME_BYTES]
        cdef uint64_t inode = 0
        cdef int error
        if not page.incarnation & 1:
            return DONE
        jlog_segment_name(name, slot.segment)
        error = jlog_inode_at(self.directory, name, &inode)
        if error != 0:
            return failed(call, error, b"looking which file has the newest segment's name")
        if inode == page.new_inode and slot.offset != page.new_end:
            JLOG_FAILPOINT(b"repair.replaced")
            jlog_switch(page, slot.segment, page.new_end, slot.first_sequence, 0, jlog_block_capacity(page, page.new_end))
            page.reserved_end = page.new_end
        jlog_store_release(&page.incarnation, page.incarnation + 1)
        return DONE

    cdef int complete_direct(self, Call *call) noexcept nogil:
        """A whole direct block that its writer could not publish is published by the switch that was missing: its numbers
        could not be given out again. A torn one never becomes whole and is written over."""
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot = jlog_open_slot(page)
        cdef jlog_block_header header
        cdef int fd, status, error = 0
        cdef uint64_t end
        if page.direct != page.generation or jlog_word_used(slot.word) != 0:
            return DONE
        fd = self.descriptor(slot.segment)
        if fd < 0:
            return failed(call, -fd, b"opening the newest segment")
        status = jlog_check_block(fd, self.precommit.uuid, slot.segment, slot.offset, &header, &error)
        if status == JLOG_BLOCK_UNREADABLE:
            return failed(call, error, b"reading a block whose writer was killed")
        if status == JLOG_BLOCK_VALID and header.first_sequence == slot.first_sequence:
            end = slot.offset + sizeof(header) + header.stored_bytes
            page.clamp_us = max(page.clamp_us, header.base_time_us)
            jlog_switch(page, slot.segment, end, slot.first_sequence + header.record_count, slot.offset,
                        jlog_block_capacity(page, end))
        return DONE

    cdef void release(self, uint32_t *word) noexcept nogil:
        jlog_unlock(word)
        if word == &self.buffer.page.append_lock:
            jlog_wake(self.buffer.page)
