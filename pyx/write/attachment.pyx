"""A process's part in a journal that it writes to: opened once, shared by all its Writer objects and threads."""

import os
import re
import threading

from libc.errno cimport EAGAIN
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from jlog._core.write.append cimport apply_options, has_options, step
from jlog._core.write.closing cimport write_out_for
from jlog._core.format.format cimport JLOG_NONE
from jlog._core.system.lock cimport OPEN_BYTE, OWNERS_BYTE, WRITERS_BYTE, Deadline, LockFile, process_token
from jlog._core.write.member cimport CLOSED, CLOSING, FLUSH, OPEN, OPENING, OPTIONS, Call, Options
from jlog._core.buffer.page cimport (
    JLOG_CAPACITY_MAX,
    JLOG_CAPACITY_MIN,
    JLOG_OWNERS_MAX,
    JLOG_PAGE_BYTES,
    JLOG_SYNC_NONE,
    jlog_is_closing,
    jlog_open_slot,
    jlog_page,
    jlog_slot,
    jlog_unwritten_slot,
)
from jlog._core.buffer.room cimport jlog_least_reserved
from jlog._core.system.atomic cimport JLOG_WAITERS, jlog_unlock
from jlog._core.buffer.precommit cimport PAGE_VALID, Precommit
from jlog._core.segments.segment cimport SegmentFile
from jlog._core.write.sync cimport Syncer

from jlog.system import filesystem
from jlog._core.recover.abandoned_buffer import only_processes_died
from jlog._core.format.dual_slot import BoundsFile
from jlog._core.system.lock import NEVER
from jlog._core.recover.recovery import copy_unsynced, recover_after_power_loss
from jlog._core.segments.segment import SEGMENT_HEADER_BYTES, segment_name
from jlog.errors import JournalError, JournalLocked
from jlog.system.files import naming, open_directory, share


cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef extern from "<fcntl.h>" nogil:
    enum:
        F_RDLCK
        F_WRLCK

_UNFINISHED = re.compile(r"next\.([0-9]{1,4})\.")  # calls.pyx gives them these names
_registry = {}  # key of a journal: its Attachment, from before it is opened until it begins to close
_registry_process = 0  # whose that is: not a child's


def attach(str path not None, policy, *, uint64_t capacity=0, Deadline deadline not None=NEVER) -> Attachment:
    """Returns this process's Attachment to the journal at the absolute `path`, which must exist. It is opened if it is the
    first. Each attach() wants a detach(). Only calls for the same journal wait for each other.

    policy: what the core asks of the package above it, for this journal; the Attachment keeps the policy that it was opened
        with.
        read() reads journal.meta. It returns (uuid, epoch, options), with the options as plain numbers: bytes of the buffer,
        bytes of a segment, bytes at which appends are refused (0: no limit), microseconds between syncs, microseconds of a
        rolling period (0: none), codec, sync mode.
        opened_alone(capacity, next_sequence) notes in journal.meta what the first process has found, and returns the epoch.
        change(options) notes changed options in journal.meta, and returns all of them, as numbers.
        after_roll() is called without locks when this process has rolled. It waits for nothing.
        make_room(deadline) is called without locks when the journal is at its limit.
    """
    cdef Attachment mine = None, found
    while True:
        uuid, epoch, _ = policy.read()
        place = os.stat(path)
        key = place.st_dev, place.st_ino
        registry = registry_of_this_process()
        found = registry.get(key)
        if found is None:
            mine = Attachment(path, policy, uuid, epoch)
            mine.key = key
            found = registry.setdefault(key, mine)  # another thread may have been first
        if found is mine:
            mine.enter(capacity, deadline)
            break
        if found.uuid != uuid:
            raise JournalError(f"{path} was removed and made again while this process has a Writer of the old journal open; "
                               "close that one first")
        if found.join(deadline):
            break
    try:
        found.begin(deadline)
    except BaseException:
        found.leave(True, deadline)
        raise
    return found


def detach(Attachment attachment not None, *, bint wait=True, Deadline deadline not None=NEVER) -> None:
    """Gives it back; the last one closes it. The journal's last writer cuts the preallocated end off. `wait`: not for its
    thread, which may want what the caller holds, where the collector calls."""
    attachment.leave(wait, deadline)


cdef dict registry_of_this_process():
    global _registry, _registry_process
    token = process_token()[0]
    if _registry_process != token:
        _registry, _registry_process = {}, token
    return _registry


cdef class Attachment(Syncer):
    """Its life is OPENING, OPEN, CLOSING, CLOSED. While it is OPEN calls may begin, of threads that use it and of the one that
    keeps it up. The last of its users and calls to go makes it CLOSING, and is the only one that closes it: nothing else is
    under way then, and what would begin is refused. A child of a fork has none of it."""

    def __init__(self, str path not None, policy not None, bytes uuid not None, uint64_t epoch):
        self.path = path
        self.policy = policy
        self.uuid = uuid
        self.epoch = epoch
        self.worker = PyThread_get_thread_ident()
        self.closing_deadline = NEVER
        self.opened, self.opening_mutex = threading.Lock(), threading.Lock()
        self.opened.acquire()

    # --- Who uses it --------------------------------------------------------------------------------------------

    cdef enter(self, uint64_t capacity, Deadline deadline):
        """Opens it as its first user. The threads that wait in join() go on afterwards, also where that has failed."""
        try:
            with naming(self.path):
                self.take_part(capacity, deadline)
            self.users += 1
            self.life = OPEN
        except BaseException:
            self.unregister()
            self.life = CLOSED
            self.let_go()
            raise
        finally:
            self.opened.release()

    cdef bint join(self, Deadline deadline) except -1:
        """Adds one user. Waits while another thread opens it. False where the caller has to look it up again: it was opened a
        moment ago, could not be opened, or closes."""
        if self.life == OPEN:
            self.users += 1
            return True
        if self.life == OPENING:
            left = deadline.left()
            if self.worker == PyThread_get_thread_ident() or not self.opened.acquire(timeout=-1 if left is None else left):
                raise JournalLocked(f"{self.path}: another thread of this process was opening it for the whole lock_timeout; "
                                    "it waits for another process, which may be stopped: continue or end that")
            self.opened.release()
        return False

    cdef leave(self, bint wait, Deadline deadline):
        """Takes one user away. The last one stops the upkeep thread, and closes the attachment unless a call is under way."""
        self.users -= 1
        if self.users != 0:
            return
        upkeep, self.upkeep, self.closing_deadline = self.upkeep, None, deadline
        self.pins += 1  # so that it is closed here, and not by the thread that is waited for
        try:
            if upkeep is not None:
                upkeep.stop(wait, deadline)
        finally:
            self.pins -= 1
            if self.pins == 0 and self.users == 0 and self.life == OPEN:
                self.finish(deadline)

    cdef finish(self, Deadline deadline):
        """Closes it. The caller has just seen that nobody uses it, and that no call is under way: no bytecode may run before
        `life` says so, for another thread could join meanwhile."""
        self.life, self.worker = CLOSING, PyThread_get_thread_ident()
        self.unregister()
        try:
            with naming(self.path):
                self.close(deadline)
        finally:
            self.life = CLOSED
            self.let_go()

    cdef void unregister(self):
        if _registry.get(self.key) is self:
            del _registry[self.key]

    # --- Opening ------------------------------------------------------------------------------------------------

    cdef take_part(self, uint64_t capacity, Deadline deadline):
        """Takes a slot. Alone, it makes the journal whole first."""
        cdef Options options
        filesystem.check_local(self.path)
        lock_file = LockFile(os.path.join(self.path, "lock"))
        self.lock_file = lock_file
        self.directory = open_directory(self.path)
        with self.opening(deadline):
            _, self.epoch, numbers = self.policy.read()
            options = as_options(numbers)
            self.bounds_file = BoundsFile(os.path.join(self.path, "bounds"), self.uuid, lock_file)
            alone = not lock_file.is_held(OWNERS_BYTE, JLOG_OWNERS_MAX)
            self.precommit = Precommit(self.path, self.uuid, create=True)
            share(self.precommit.fd, self.directory)
            if alone:
                wanted = max(capacity, options.precommit, JLOG_CAPACITY_MIN)
                wanted = min(wanted, JLOG_CAPACITY_MAX)
                if not self.precommit.has_bodies():
                    self.precommit.grow(wanted)
            self.map_buffer()
            if alone:
                self.recover(&options, deadline)
                self.enlarge(wanted)
            elif self.precommit.identify_beside_writers() != PAGE_VALID:
                raise JournalError(f"{self.precommit.path} is not the page that the journal's writers share; close them "
                                   "all and open it again")
            if alone:
                self.epoch = self.policy.opened_alone(wanted, self.next_sequence)
            self.take_slot()
            self.remove_unfinished(alone)
            self.first = alone

    def opening(self, Deadline deadline not None):
        """A context for what only one thread of one process may do at a time: open, change options, close as the last."""
        return self.lock_file.held(OPEN_BYTE, deadline=deadline, what="was opening, changing or closing it",
                                   mutex=self.opening_mutex)

    def begin(self, Deadline deadline not None=NEVER) -> None:
        """What the first process does then, by calls like any others."""
        if not self.first:
            return
        self.first = False
        if self.mended:
            self.roll(deadline)
        if self.buffer.page.limit_bytes != 0:
            self.count_sealed(deadline)

    cdef recover(self, const Options *options, Deadline deadline):
        """Nobody else is there, and nobody comes while the open lock is held."""
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot
        cdef bint died
        bounds = self.bounds_file.read()
        died = only_processes_died(self.path, self.uuid, self.precommit, bounds)
        if died:
            self.forget_derived(bounds)
            self.finish_dead()
            if page.sync_error != 0:
                slot = jlog_open_slot(page)
                # What the kernel could not write it may have dropped: then it is as after a power loss.
                self.mended = died = copy_unsynced(self.path, self.uuid, bounds, slot.segment, slot.offset)
                self.forget_descriptors(JLOG_NONE)  # of a file that has been replaced
                if died:
                    page.syncs_ended = page.syncs_begun
                    page.sync_error = 0
        if not died:  # a recovery forgets that a sync has failed once nothing depends on it
            recover_after_power_loss(self.path, self.uuid, self.epoch, self.precommit, self.bounds_file,
                                     options.segment_bytes, deadline)
        apply_options(page, options)
        slot = jlog_open_slot(page)
        page.reserved_end = max(os.stat(os.path.join(self.path, segment_name(slot.segment))).st_size,
                                jlog_least_reserved(slot))
        # Synced whatever stands there: who came before may have been killed between writing it and its fdatasync, and a
        # note of a closed end that a power loss brings back would let numbers be given out twice.
        self.lease(0, deadline)

    cdef forget_derived(self, bounds):
        """What generation, slot and word do not say is had from elsewhere: nobody has looked at the page meanwhile, and
        no checksum is over the rest of it."""
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot
        cdef Call call
        memset(&call, 0, sizeof(call))
        page.counters.takeovers += page.append_lock & ~JLOG_WAITERS != 0
        page.append_lock = page.sync_lock = page.write_lock = page.sync_group = page.sync_arrivals = page.sync_served = 0
        self.raise_unless_done(self.finish_replacing(&call), &call)
        slot = jlog_open_slot(page)
        if jlog_is_closing(page):
            page.clamp_us = page.closing.clock_us
        else:
            file = SegmentFile(self.path, slot.segment, self.uuid)
            previous, _ = file.block_at(slot.previous_offset or SEGMENT_HEADER_BYTES)
            page.clamp_us = file.created_us if previous is None else previous.clock_us
        page.lease_limit = page.closed = page.durable_generation = 0
        page.state = page.generation - 1
        # Those that were told how far it is durable must not hear of less: the mark moves behind that.
        if not bounds.mark_sequence <= page.durable_end <= jlog_unwritten_slot(page).first_sequence:
            page.durable_end = bounds.mark_sequence
        page.durable_segment = bounds.mark_segment

    cdef finish_dead(self):
        """What they left half done."""
        cdef Call call
        memset(&call, 0, sizeof(call))
        self.raise_unless_done(self.repair(&call), &call)
        self.raise_unless_done(write_out_for(self, &call), &call)

    cdef map_buffer(self):
        self.precommit.map()
        self.buffer.page = self.precommit.page
        self.buffer.bodies = <uint8_t *> self.precommit.page + JLOG_PAGE_BYTES

    cdef enlarge(self, capacity):
        """The second body lies elsewhere then, so that no block may be in the buffer. The block that is open then keeps the
        smaller capacity, with which it fits wherever its body begins."""
        cdef Call call
        if self.buffer.page.capacity < capacity:
            memset(&call, 0, sizeof(call))
            call.operation = FLUSH
            call.plain = True
            self.raise_unless_done(step(self, &call), &call)
            self.precommit.grow(capacity)
            self.map_buffer()
            self.buffer.page.capacity = self.precommit.room()

    cdef take_slot(self):
        """The byte first: from then on the slot is ours, and with it every word that names it, for nobody else can ever
        take that over."""
        cdef Call call
        cdef jlog_page *page = self.buffer.page
        for slot in range(JLOG_OWNERS_MAX):
            if self.lock_file.try_lock(F_WRLCK, OWNERS_BYTE + slot, 1) == 0:
                self.slot = slot
                break
        else:
            raise JournalLocked(f"{self.path}: {JLOG_OWNERS_MAX} processes write to it already; close one")
        self.buffer.owner = self.slot + 1
        memset(&call, 0, sizeof(call))
        if (page.append_lock & ~JLOG_WAITERS) == self.buffer.owner:
            page.counters.takeovers += 1
            status = self.repair(&call)
            self.release(&page.append_lock)
            self.raise_unless_done(status, &call)
        if (page.sync_lock & ~JLOG_WAITERS) == self.buffer.owner:
            jlog_unlock(&page.sync_lock)
        if (page.write_lock & ~JLOG_WAITERS) == self.buffer.owner:
            jlog_unlock(&page.write_lock)  # whoever needs the block written finds that it is not

    cdef remove_unfinished(self, bint alone):
        """Removes the files that a killed process was making in this slot; in every slot, where no process lives that could
        be at work on one."""
        for name in os.listdir(self.path):
            slot = _UNFINISHED.match(name)
            if slot and (alone or int(slot[1]) == self.slot):
                os.unlink(name, dir_fd=self.directory)

    def take_writers(self, bint exclusive) -> None:
        """A writing process is one of several, or, with any exclusive Writer in it, the only one."""
        cdef int error = self.lock_file.try_lock(F_WRLCK if exclusive or self.exclusive_writers else F_RDLCK, WRITERS_BYTE, 1)
        if error == EAGAIN:
            raise JournalLocked(f"{self.path}: another process writes to it" + (", so that this one cannot be the only one; "
                                "close its writers" if exclusive else " with exclusive=True; wait until it has closed"))
        if error != 0:
            raise OSError(error, os.strerror(error), self.path)
        self.exclusive_writers += exclusive

    def give_writers(self, bint exclusive) -> None:
        """When the last exclusive Writer of the process closes, others may come."""
        self.exclusive_writers -= exclusive
        if exclusive and self.exclusive_writers == 0 and self.may_call():
            self.lock_file.try_lock(F_RDLCK, WRITERS_BYTE, 1)

    def change_options(self, options, Deadline deadline not None=NEVER) -> None:
        """For what is written from now on, by every process. Without a change the page gets what the file says: whoever changed
        that may have been killed on the way to the page."""
        cdef Options wanted
        cdef Call call
        cdef bint changed
        if not options:
            wanted = as_options(self.policy.read()[2])
            if has_options(self.buffer.page, &wanted):
                return
        with self.opening(deadline):  # until both say the same: the page never goes back to older ones
            wanted = as_options(self.policy.change(options))
            changed = not has_options(self.buffer.page, &wanted)
            if changed:
                memset(&call, 0, sizeof(call))
                call.operation = OPTIONS
                call.options = &wanted
                self.run(&call, deadline)
        if changed and wanted.limit_bytes != 0:
            self.count_sealed(deadline)

    # --- Closing ------------------------------------------------------------------------------------------------

    cdef close(self, Deadline deadline):
        """The last of all processes flushes, cuts the preallocated end off and notes where the journal ends. What others
        have open needs no flush: it is published. Where others hold what that takes until the deadline, it is left undone, as
        by a process that was killed: the next to open alone makes up for it."""
        if not self.lock_file.is_open():  # in a child
            return
        try:
            with self.opening(deadline):
                try:
                    if self.buffer.page.sync_error == 0 and not self.lock_file.is_held(OWNERS_BYTE, JLOG_OWNERS_MAX):
                        self.note_end(deadline)
                finally:
                    self.drop(self.spare)
                    self.spare = NULL
                    self.lock_file.unlock(OWNERS_BYTE + self.slot, 1)
        except JournalLocked:
            pass

    cdef let_go(self):
        """Closes everything that it has open, also where its opening has failed halfway. That frees what it has locked."""
        self.drop(self.spare)
        self.spare = NULL
        if self.lock_file is not None:
            self.lock_file.close()
        if self.bounds_file is not None:
            self.bounds_file.close()
        if self.precommit is not None:
            self.precommit.close()
        self.buffer.page = NULL
        self.close_descriptors()

    cdef note_end(self, Deadline deadline):
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot
        if page.sync_mode == JLOG_SYNC_NONE:
            self.flush(deadline)
        else:
            self.sync(deadline)
        slot = jlog_open_slot(page)
        fd = self.descriptor(slot.segment)
        if fd < 0:
            raise OSError(-fd, os.strerror(-fd), os.path.join(self.path, segment_name(slot.segment)))
        os.ftruncate(fd, slot.offset)
        page.reserved_end = slot.offset
        self.bounds_file.update(closed=(slot.segment, slot.offset, slot.first_sequence), deadline=deadline)


cdef Options as_options(numbers) except *:
    """Takes the options from the tuple of numbers that a policy gives."""
    cdef Options found
    (found.precommit, found.segment_bytes, found.limit_bytes, found.sync_interval_us, found.roll_us, found.codec,
     found.sync_mode) = numbers
    return found
