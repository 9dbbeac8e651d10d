"""A process's part in a journal that it writes to: opened once, shared by all its Writer objects and threads."""

import logging
import os
import threading

from libc.errno cimport EAGAIN
from libc.stdint cimport uint64_t
from libc.string cimport memset

from jlog._core.system.lock cimport OWNERS_BYTE, WRITERS_BYTE, Deadline, process_token
from jlog._core.buffer.page cimport JLOG_OWNERS_MAX, JLOG_SYNC_NONE, jlog_open_slot, jlog_page, jlog_slot
from jlog._core.write.append cimport has_options
from jlog._core.write.life cimport CLOSED, OPEN, OPENING
from jlog._core.write.opening cimport ALONE_AND_MENDED, BESIDE_OTHERS, as_options, take_part
from jlog._core.write.operation cimport OPTIONS, ChangeOptions, Options
from jlog._core.write.operations cimport seal

from jlog._core.segments.segment import segment_name
from jlog._core.system.lock import NEVER
from jlog._core.write.maintenance import MaintenanceThread
from jlog._core.write.operations import closed_error
from jlog.errors import JournalError, JournalLocked
from jlog.system.files import naming

cdef extern from "<fcntl.h>" nogil:
    enum:
        F_RDLCK
        F_WRLCK

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
        free_space(deadline) is called without locks when the journal is at its limit.
    """
    cdef Attachment mine = None, found
    while True:
        uuid, _, _ = policy.read()
        place = os.stat(path)
        key = place.st_dev, place.st_ino
        registry = registry_of_this_process()
        found = registry.get(key)
        if found is None:
            mine = Attachment(path, policy, uuid)
            mine.key = key
            found = registry.setdefault(key, mine)  # another thread may have been first
        if found is mine:
            mine.enter(capacity, deadline)
            break
        if found.process.uuid != uuid:
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


cdef class Attachment:
    """It has what the process needs to write to the journal, and closes that when its last user and the last call have gone."""

    def __init__(self, str path not None, policy not None, bytes uuid not None):
        self.process = WritingProcess(path, uuid)
        self.life = Life()
        self.operations = Operations(self.process, policy, self.life)
        self.group = GroupCommit(self.operations)
        self.maintenance = Maintenance(self.group)
        self.opened = threading.Lock()
        self.opened.acquire()

    # --- Who uses it --------------------------------------------------------------------------------------------

    cdef enter(self, uint64_t capacity, Deadline deadline):
        """Opens it as its first user. The threads that wait in join() go on afterwards, also if that has failed."""
        try:
            with naming(self.process.path):
                self.found = take_part(self.operations, capacity, deadline)
            self.life.users += 1
            self.life.stage = OPEN
        except BaseException:
            self.unregister()
            self.life.stage = CLOSED
            self.let_go()
            raise
        finally:
            self.opened.release()

    cdef bint join(self, Deadline deadline) except -1:
        """Adds one user. Waits while another thread opens it. False if the caller has to look it up again: it was opened a
        moment ago, could not be opened, or closes."""
        if self.life.stage == OPEN:
            self.life.users += 1
            return True
        if self.life.stage == OPENING:
            left = deadline.left()
            if self.life.opens_or_closes_it() or not self.opened.acquire(timeout=-1 if left is None else left):
                raise JournalLocked(f"{self.process.path}: another thread of this process was opening it for the whole "
                                    "lock_timeout; it waits for another process, which may be stopped: continue or end that")
            self.opened.release()
        return False

    cdef leave(self, bint wait, Deadline deadline):
        """Takes one user away. The last one stops the maintenance, and closes the attachment unless a call is under way."""
        self.life.users -= 1
        if self.life.users != 0:
            return
        thread, self.thread, self.life.closing_deadline = self.thread, None, deadline
        self.life.pins += 1  # so that it is closed here, and not by the thread that is waited for
        try:
            if thread is not None:
                thread.stop(wait, deadline)
        finally:
            self.life.pins -= 1
            if self.life.may_be_closed():
                self.finish(deadline)

    cdef int pin(self) except -1:
        """The mapping and the descriptors stay until unpin(). Raises JournalClosed if it is closed, or about to be."""
        if not self.life.may_call():
            raise closed_error(self.process.path)
        self.life.pins += 1
        return 0

    cdef unpin(self):
        """The last call to end closes what was given back meanwhile; what fails in that is not the call's failure."""
        self.life.pins -= 1
        if self.life.may_be_closed():
            try:
                self.finish(self.life.closing_deadline)
            except Exception as error:  # noqa: BLE001
                logging.getLogger("jlog").warning("%s: closing it: %s", self.process.path, error)

    cdef finish(self, Deadline deadline):
        """Closes it. The caller has just seen that nobody uses it, and that no call is under way: no bytecode may run before
        the life says so, for another thread could join meanwhile."""
        self.life.begin_closing()
        self.unregister()
        try:
            with naming(self.process.path):
                self.close(deadline)
        finally:
            self.life.stage = CLOSED
            self.let_go()

    cdef void unregister(self):
        if _registry.get(self.key) is self:
            del _registry[self.key]

    cdef begin(self, Deadline deadline):
        """Does what the first process does then, by calls like any others."""
        found, self.found = self.found, BESIDE_OTHERS
        if found == BESIDE_OTHERS:
            return
        self.pin()
        try:
            if found == ALONE_AND_MENDED:
                self.operations.roll(deadline)
            if self.process.buffer.page.limit_bytes != 0:
                self.operations.count_sealed(deadline)
        finally:
            self.unpin()

    # --- Calls --------------------------------------------------------------------------------------------------

    cdef int flush(self, Deadline deadline) except -1:
        """Every record appended before is in its segment file when this returns."""
        self.pin()
        try:
            return self.operations.flush(deadline)
        finally:
            self.unpin()

    cdef int roll(self, Deadline deadline) except -1:
        """Closes the open segment, if it has a record, and opens the next."""
        self.pin()
        try:
            return self.operations.roll(deadline)
        finally:
            self.unpin()

    def roll_if_due(self, Deadline deadline not None=NEVER) -> None:
        """Rolls if the period of the open segment's records is over: if nobody appends, nobody else does."""
        self.pin()
        try:
            self.operations.roll_if_due(deadline)
        finally:
            self.unpin()

    cdef int make_durable(self, Deadline deadline) except -1:
        """Every record appended before survives a power loss when this returns."""
        self.pin()
        try:
            return self.group.make_durable(deadline)
        finally:
            self.unpin()

    def sync(self, Deadline deadline not None=NEVER) -> None:
        """Every record appended before survives a power loss when this returns."""
        self.make_durable(deadline)

    def seal(self, uint64_t segment, uint64_t end) -> None:
        """Completes a sealed segment, whose blocks end at `end`: cuts it off, and writes its index."""
        seal(self.process, segment, end)

    # --- From time to time --------------------------------------------------------------------------------------

    cdef int start_maintenance(self) except -1:
        # At the end of the interpreter no thread can be started any more, and nothing is written from time to time.
        if not threading.main_thread().is_alive():
            return 0
        thread = MaintenanceThread(self)
        if self.thread is None:  # no other thread has made one meanwhile
            self.thread = thread
            try:
                thread.start()
            except BaseException:
                self.thread = None
                raise
        return 0

    def maintenance_pause(self):
        """Seconds until maintain() is called next, None once it is closed."""
        return self.maintenance.pause_us() / 1e6 if self.life.may_call() else None

    def maintain(self) -> None:
        """Syncs what is due, and lets go of segments that others have synced or cleaned."""
        if not self.life.may_call():
            return
        self.pin()
        try:
            self.maintenance.maintain()
        finally:
            self.unpin()

    # --- Options ------------------------------------------------------------------------------------------------

    cdef int take_writers(self, bint exclusive) except -1:
        """Makes this writing process one of several, or, with any exclusive Writer in it, the only one."""
        cdef int error = self.process.locks.file.try_lock(F_WRLCK if exclusive or self.exclusive_writers else F_RDLCK,
                                                          WRITERS_BYTE, 1)
        path = self.process.path
        if error == EAGAIN:
            raise JournalLocked(f"{path}: another process writes to it" + (", so that this one cannot be the only one; "
                                "close its writers" if exclusive else " with exclusive=True; wait until it has closed"))
        if error != 0:
            raise OSError(error, os.strerror(error), path)
        self.exclusive_writers += exclusive
        return 0

    cdef int give_writers(self, bint exclusive) except -1:
        """Lets others come, when the last exclusive Writer of the process closes."""
        self.exclusive_writers -= exclusive
        if exclusive and self.exclusive_writers == 0 and self.life.may_call():
            self.process.locks.file.try_lock(F_RDLCK, WRITERS_BYTE, 1)
        return 0

    cdef change_options(self, options, Deadline deadline):
        """Changes the options for what is written from now on, by every process. Without a change the page gets what the file
        says: the process that changed the file may have been killed on the way to the page."""
        cdef jlog_page *page = self.process.buffer.page
        cdef Options wanted
        cdef ChangeOptions change
        cdef bint changed
        policy = self.operations.policy
        if not options:
            wanted = as_options(policy.read()[2])
            if has_options(page, &wanted):
                return
        self.pin()
        try:
            with self.process.opening(deadline):  # until both say the same: the page never goes back to older ones
                wanted = as_options(policy.change(options))
                changed = not has_options(page, &wanted)
                if changed:
                    memset(&change, 0, sizeof(change))
                    change.head.kind = OPTIONS
                    change.options = &wanted
                    self.operations.run(&change.head, deadline)
            if changed and wanted.limit_bytes != 0:
                self.operations.count_sealed(deadline)
        finally:
            self.unpin()

    # --- Closing ------------------------------------------------------------------------------------------------

    cdef close(self, Deadline deadline):
        """The last of all processes flushes, cuts the preallocated end off and notes where the journal ends. What others
        have open needs no flush: it is published. If others hold what that takes until the deadline, it is left undone, as
        by a process that was killed: the next to open alone makes up for it."""
        cdef WritingProcess process = self.process
        if not process.locks.file.is_open():  # in a child
            return
        try:
            with process.opening(deadline):
                try:
                    if process.buffer.page.sync_error == 0 and not process.locks.file.is_held(OWNERS_BYTE, JLOG_OWNERS_MAX):
                        self.write_closed_end(deadline)
                finally:
                    self.operations.prepared.drop_spare()
                    process.locks.file.unlock(OWNERS_BYTE + process.locks.slot, 1)
        except JournalLocked:
            pass

    cdef let_go(self):
        """Closes everything that it has open, also if its opening has failed halfway. That frees what it has locked."""
        self.operations.prepared.drop_spare()
        self.process.close()

    cdef write_closed_end(self, Deadline deadline):
        """Notes in `bounds` where the journal ends."""
        cdef WritingProcess process = self.process
        cdef jlog_page *page = process.buffer.page
        cdef jlog_slot *slot
        if page.sync_mode == JLOG_SYNC_NONE:
            self.operations.flush(deadline)
        else:
            self.group.make_durable(deadline)
        slot = jlog_open_slot(page)
        fd = process.descriptors.of_open(slot.segment)
        if fd < 0:
            raise OSError(-fd, os.strerror(-fd), os.path.join(process.path, segment_name(slot.segment)))
        os.ftruncate(fd, slot.offset)
        page.reserved_end = slot.offset
        process.bounds.update(closed=(slot.segment, slot.offset, slot.first_sequence), deadline=deadline)

    # --- How the journal stands ---------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self.process.path

    @property
    def uuid(self) -> bytes:
        return self.process.uuid

    @property
    def bounds_file(self):
        return self.process.bounds

    @property
    def written_place(self) -> tuple:
        """(segment, offset, first sequence) of the first block that is not in its segment yet."""
        return self.process.written_place()

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the blocks which are not in their segment yet will take there, uncompressed."""
        return self.process.buffered_bytes()

    @property
    def durable_end(self) -> int:
        """End of the records that survive a power loss."""
        return self.process.buffer.page.durable_end
