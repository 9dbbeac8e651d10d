"""The attachment of a process to a journal that it writes to: opened once, and shared by all its Writer objects and threads."""

import os
import threading

from libc.errno cimport EAGAIN
from libc.stdint cimport uint64_t
from libc.string cimport memset
from posix.fcntl cimport F_RDLCK, F_WRLCK

from jlog._core.system.file cimport check_error, check_result, process_token
from jlog._core.system.lock cimport OWNERS_BYTE, WRITERS_BYTE, Deadline, when_nothing_is_held
from jlog._core.system.notices cimport warn
from jlog._core.buffer.page cimport JLOG_OWNERS_MAX, jlog_open_slot, jlog_page, jlog_slot
from jlog._core.append.append cimport has_options
from jlog._core.process.process cimport CLOSED, OPEN, OPENING
from jlog._core.write.opening cimport ALONE_AFTER_FAILED_SYNC, BESIDE_OTHERS, as_options, take_part
from jlog._core.process.operation cimport OPTIONS, ChangeOptions, Options

from jlog._core.segments.segment import segment_name
from jlog._core.system.lock import NEVER
from jlog._core.write.maintenance import MaintenanceThread
from jlog._core.append.operations import closed_error, seal
from jlog.errors import JournalClosed, JournalError, JournalLocked, JournalMoved
from jlog.system.files import HeldPath, name_error
from jlog.system.threads import real_lock

cdef dict _registry = {}  # key of a journal: its Attachment, from before it is opened until it begins to close
_registry_process = 0  # token of the process to which the registry belongs; a forked child begins with an empty one


def attach(path not None, policy, *, uint64_t capacity=0, Deadline deadline not None=NEVER) -> Attachment:
    """Returns this process's Attachment to the journal at the absolute `path`, which must exist. The first call opens it. Each
    attach() needs a leave(). Only calls for the same journal wait for each other.

    policy: an object that reads and writes journal.meta for the core.
        read(path) reads journal.meta. It returns (uuid, epoch, options), with the options as plain numbers: bytes of the
        buffer, bytes of a segment, bytes at which appends are refused (0: no limit), microseconds between syncs, microseconds
        of a rolling period (0: none), codec, sync mode.
        opened_alone(path, capacity, next_sequence) stores in journal.meta the facts that the first process has found, and
        returns the epoch.
        change(path, options) stores changed options in journal.meta, and returns all options, as numbers.
    """
    cdef Attachment mine = None, found
    while True:
        try:
            held = HeldPath(path)
        except (FileNotFoundError, NotADirectoryError):
            policy.read(path)  # raises JournalNotFound, and says what is missing
            continue
        uuid, _, _ = policy.read(held)
        registry = registry_of_this_process()
        found = registry.get(held.identity)
        if found is not None and found.is_lost():
            found.unregister()
            found = None
        if found is None:
            mine = Attachment(held, policy, uuid)
            mine.key = held.identity
            found = registry.setdefault(held.identity, mine)  # another thread may have been first
        if found is mine:
            mine.enter(capacity, deadline)
            break
        held.close()
        if found.process.uuid != uuid:
            raise JournalError(f"{path} was removed and created again while this process has a Writer of the old journal open; "
                               "close that one first")
        if found.join(deadline):
            break
    try:
        found.begin(deadline)
    except BaseException:
        found.leave(True, deadline)
        raise
    return found


cdef class Leaving(Deferred):
    """The end of a use by an object that is collected. It is created with that object: at the end there may be no memory. An
    error is logged, because no call has caused it."""

    def __cinit__(self, timeout):
        self.timeout, self.deadline = timeout, Deadline(timeout)

    cdef void begin(self, Attachment attachment) noexcept:
        self.attachment = attachment
        when_nothing_is_held(self)

    cdef void run(self) noexcept:
        cdef Attachment attachment = self.attachment
        self.attachment = None
        try:
            self.deadline.begin(self.timeout)
            attachment.leave(False, self.deadline)
        except Exception as error:  # noqa: BLE001
            warn(attachment.process.path, "closing it", error)


cdef class Attached:
    """A context in which this process writes to a journal, as attach() says. It ends with the context; or with this object, if
    a signal's handler raises before the context is entered."""

    cdef Attachment attachment
    cdef Deadline deadline
    cdef Leaving leaving

    def __init__(self, path not None, policy, Deadline deadline not None=NEVER):
        self.deadline = deadline
        self.leaving = Leaving(deadline.left())
        self.attachment = attach(path, policy, deadline=deadline)

    def __enter__(self) -> Attachment:
        return self.attachment

    def __exit__(self, kind, error, trace):
        attachment, self.attachment = self.attachment, None
        (<Attachment> attachment).leave(True, self.deadline)

    def __del__(self):
        attachment, self.attachment = self.attachment, None
        if attachment is not None and attachment.process.locks.file.is_open():
            self.leaving.begin(attachment)


cdef dict registry_of_this_process():
    global _registry, _registry_process
    token = process_token()[0]
    if _registry_process != token:
        _registry, _registry_process = {}, token
    return _registry


cdef class Attachment:
    """Holds all files and locks that the process needs to write to the journal. It closes them when its last user and the last
    call have gone."""

    def __init__(self, path not None, policy not None, bytes uuid not None):
        self.process = WritingProcess(path, uuid)
        self.life = Life()
        self.operations = Operations(self.process, policy, self.life)
        self.group = GroupCommit(self.operations)
        self.maintenance = Maintenance(self.group)
        self.opened = real_lock()
        self.opened.acquire()

    # --- Users --------------------------------------------------------------------------------------------------

    cdef enter(self, uint64_t capacity, Deadline deadline):
        """Opens it as its first user. The threads that wait in join() go on afterwards, also if that has failed."""
        try:
            self.found = take_part(self.operations, capacity, deadline)
            self.life.users += 1
            self.life.stage = OPEN
        except BaseException as error:
            self.unregister()  # first, and without an allocation: else nobody in this process could open the journal again
            self.life.stage = CLOSED
            self.let_go()
            if isinstance(error, OSError):
                name_error(error, self.process.path)
            raise
        finally:
            self.opened.release()

    cdef bint is_lost(self):
        """Returns whether its journal is not at its path any more: then it is opened anew, beside the old objects."""
        try:
            if self.life.stage == OPEN:
                self.process.check()
            return False
        except (JournalMoved, JournalClosed):
            return True

    cdef bint join(self, Deadline deadline) except -1:
        """Adds one user. Waits while another thread opens the attachment. Returns False if the caller has to look it up again,
        because it was opened a moment ago, could not be opened, or is closing."""
        if self.life.stage == OPEN:
            self.life.users += 1
            return True
        if self.life.stage == OPENING:
            left = deadline.left()
            if self.life.opens_or_closes_it() or not self.opened.acquire(timeout=-1 if left is None else left):
                raise JournalLocked(f"{self.process.path}: another thread of this process was opening it for the whole "
                                    "lock_timeout, and waits for another process; if that one is stopped, continue or end it")
            self.opened.release()
        return False

    cdef leave(self, bint wait, Deadline deadline):
        """Ends one use. The last user stops the maintenance thread, and closes the attachment unless a call is under way. Then
        the journal's last writer cuts off the preallocated end. `wait`: whether to wait for the thread. The garbage collector
        must not wait, since the thread may need a lock that the interrupted code holds."""
        self.life.users -= 1
        if self.life.users != 0:
            return
        self.life.closing_deadline = deadline
        self.life.pins += 1  # so that this thread closes it, and not the maintenance thread, for which it waits
        try:
            if self.thread is not None:
                self.thread.stop(wait, deadline)
        finally:
            self.life.pins -= 1
            if self.life.may_be_closed():
                self.finish(deadline)

    cdef int pin(self) except -1:
        """Begins a call: the mapping and the descriptors stay until unpin(). Raises JournalClosed if the attachment is closed,
        or is about to be."""
        if not self.life.may_call():
            raise closed_error(self.process.path)
        self.process.refuse_lost()
        self.life.pins += 1
        return 0

    cdef unpin(self):
        """Ends a call. If the last user has gone meanwhile, the last call closes the attachment. An error in that is only
        logged, because it is not the call's own."""
        self.life.pins -= 1
        if self.life.may_be_closed():
            try:
                self.finish(self.life.closing_deadline)
            except Exception as error:  # noqa: BLE001
                warn(self.process.path, "closing it", error)

    cdef finish(self, Deadline deadline):
        """Closes the attachment. The caller has just seen that it has no user and no call. No bytecode may run before
        begin_closing(), because another thread could join meanwhile."""
        self.life.begin_closing()
        self.unregister()
        try:
            self.close(deadline)
        except OSError as error:
            name_error(error, self.process.path)
            if self.process.lost is None:  # else its files may be gone, and the user knows
                raise
        finally:
            self.life.stage = CLOSED
            self.let_go()

    cdef void unregister(self):
        if _registry.get(self.key) is self:
            del _registry[self.key]

    cdef begin(self, Deadline deadline):
        """Does the rest of the first process's work, in ordinary calls."""
        found, self.found = self.found, BESIDE_OTHERS
        if found == BESIDE_OTHERS:
            return
        self.pin()
        try:
            if found == ALONE_AFTER_FAILED_SYNC:
                self.operations.roll(deadline)
            if self.process.buffer.page.limit_bytes != 0:
                self.operations.count_sealed(deadline)
        finally:
            self.unpin()

    # --- Calls --------------------------------------------------------------------------------------------------

    cdef int flush(self, Deadline deadline) except -1:
        """Returns when every record that was appended before is in its segment file."""
        self.pin()
        try:
            return self.operations.flush(deadline)
        finally:
            self.unpin()

    cdef int roll(self, Deadline deadline) except -1:
        """Seals the open segment and opens the next one. Does nothing if the open segment has no record yet."""
        self.pin()
        try:
            try:
                return self.operations.roll(deadline)
            finally:
                self.process.check()
        finally:
            self.unpin()

    def roll_if_due(self, Deadline deadline not None=NEVER) -> bool:
        """Rolls if the period of the open segment's records is over, and returns whether it was. Appends roll too, but only
        when they come."""
        self.pin()
        try:
            return self.operations.roll_if_due(deadline)
        finally:
            self.unpin()

    cdef int make_durable(self, Deadline deadline) except -1:
        """Returns when every record that was appended before survives a power loss."""
        self.pin()
        try:
            return self.group.make_durable(deadline)
        finally:
            self.unpin()

    def sync(self, Deadline deadline not None=NEVER) -> None:
        """Returns when every record that was appended before survives a power loss, in the journal that the path leads to."""
        self.pin()
        try:
            try:
                self.group.make_durable(deadline)
            finally:
                self.process.check()
        finally:
            self.unpin()

    def check(self) -> None:
        """Raises JournalMoved if the path does not lead to this journal any more."""
        self.process.check()

    def seal(self, uint64_t segment, uint64_t end) -> None:
        """Completes a sealed segment, whose blocks end at `end`: cuts off its preallocated end, and writes its index."""
        seal(self.process, segment, end)

    # --- Maintenance --------------------------------------------------------------------------------------------

    cdef int start_maintenance(self) except -1:
        # At the end of the interpreter no thread can be started any more, and no maintenance is needed.
        if not threading.main_thread().is_alive():
            return 0
        before = self.thread
        if before is not None and before.goes_on:
            return 0
        thread = MaintenanceThread(self, before)
        if self.thread is before:  # no other thread has created one meanwhile
            self.thread = thread
            try:
                thread.start()
            except BaseException:
                self.thread = before
                raise
        return 0

    def maintenance_pause(self):
        """Returns the seconds until maintain() is to be called next; None once the attachment is closed."""
        return self.maintenance.pause_us() / 1e6 if self.life.may_call() and self.process.lost is None else None

    def maintain(self) -> None:
        """Syncs if a sync is due, and closes the descriptors of segments that other processes have synced or cleaned."""
        if not self.life.may_call():
            return
        self.pin()
        try:
            self.process.check()
            self.maintenance.maintain()
        finally:
            self.unpin()

    # --- Options ------------------------------------------------------------------------------------------------

    cdef int take_writers(self, bint exclusive, care) except -1:
        """Makes this writing process one of several, or the only one if it has an exclusive Writer.

        care: an object with two methods, which appends call without locks. after_roll() is called when this process has rolled,
        and must not wait. free_space(deadline) is called when the journal is at its limit.
        """
        cdef int error = self.process.locks.file.try_lock(F_WRLCK if exclusive or self.exclusive_writers else F_RDLCK,
                                                          WRITERS_BYTE, 1)
        path = self.process.path
        if error == EAGAIN:
            who = self.process.locks.file.holders(WRITERS_BYTE)
            raise JournalLocked(f"{path}: another process{who} writes to it" + (", so exclusive=True is not possible; close "
                                "its writers" if exclusive else " with exclusive=True; wait until it has closed"))
        check_error(error, path)
        self.exclusive_writers += exclusive
        if self.operations.care is None:
            self.operations.care = care
        return 0

    cdef int give_writers(self, bint exclusive) except -1:
        """Lets other processes write once the last exclusive Writer of this process closes."""
        self.exclusive_writers -= exclusive
        if exclusive and self.exclusive_writers == 0 and self.life.may_call():
            self.process.locks.file.try_lock(F_RDLCK, WRITERS_BYTE, 1)
        return 0

    cdef change_options(self, options, Deadline deadline):
        """Changes the options for all later writes of every process. Without `options` the page gets the options of the file,
        because a process that changed the file may have been killed before it changed the page."""
        cdef jlog_page *page = self.process.buffer.page
        cdef Options wanted
        cdef ChangeOptions change
        cdef bint changed
        policy = self.operations.policy
        if not options:
            wanted = as_options(policy.read(self.process.path)[2])
            if has_options(page, &wanted):
                return
        self.pin()
        try:
            held = self.process.opening(deadline)
            held.take()  # until file and page agree, so that the page never goes back to older options
            try:
                wanted = as_options(policy.change(self.process.path, options))
                changed = not has_options(page, &wanted)
                if changed:
                    memset(&change, 0, sizeof(change))
                    change.head.kind = OPTIONS
                    change.options = &wanted
                    self.operations.run(&change.head, deadline)
            finally:
                held.give()
            if changed and wanted.limit_bytes != 0:
                self.operations.count_sealed(deadline)
        finally:
            self.unpin()

    # --- Closing ------------------------------------------------------------------------------------------------

    cdef close(self, Deadline deadline):
        """Closes the journal for this process. The last of all processes also flushes, cuts off the preallocated end and notes
        the closed end. Other processes need no flush, because their records are published. If the locks are not free before the
        deadline, this is left undone, as if the process had been killed: the next process to open the journal alone completes
        it."""
        cdef WritingProcess process = self.process
        if not process.locks.file.is_open() or process.replaced:  # in a child, or without files of its own
            return
        try:
            held = process.opening(deadline)
            held.take()
            try:
                try:
                    if process.buffer.page.sync_error == 0 and not process.locks.file.is_held(OWNERS_BYTE, JLOG_OWNERS_MAX):
                        self.write_closed_end(deadline)
                finally:
                    self.operations.prepared.drop_spare()
                    process.directory_lock.close()
                    process.locks.file.unlock(OWNERS_BYTE + process.locks.slot, 1)
            finally:
                held.give()
        except JournalLocked:
            pass

    cdef let_go(self):
        """Closes all files, also if the opening has failed halfway. This frees all locks."""
        self.thread = None  # it refers to this attachment
        self.operations.prepared.drop_spare()
        self.process.close()

    cdef write_closed_end(self, Deadline deadline):
        """Makes all records durable, cuts off the preallocated end, and notes the closed end in `bounds`.

        Every sync mode syncs here, as Kafka's clean shutdown does: the synced mark then stands at the closed end, so that
        damage before it is never taken for the torn end of a power loss, not in a copy and not after a reboot."""
        cdef WritingProcess process = self.process
        cdef jlog_page *page = process.buffer.page
        cdef jlog_slot *slot
        self.group.make_durable(deadline)
        slot = jlog_open_slot(page)
        fd = process.descriptors.of_open(slot.segment)
        check_result(fd, os.path.join(process.path, segment_name(slot.segment)))
        os.ftruncate(fd, slot.offset)
        page.reserved_end = slot.offset
        process.bounds.update(closed=(slot.segment, slot.offset, slot.first_sequence), durable=True, deadline=deadline)

    # --- State of the journal -----------------------------------------------------------------------------------

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
        """Bytes that the blocks of the buffer will take in their segment, uncompressed."""
        return self.process.buffered_bytes()

    @property
    def durable_end(self) -> int:
        """End of the records that survive a power loss."""
        return self.process.buffer.page.durable_end
