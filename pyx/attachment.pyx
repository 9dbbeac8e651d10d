"""A process's part in a journal that it writes to: opened once, shared by all its Writer objects and threads."""


import logging
import os
import secrets
import threading


from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EIO
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from jlog._core.append cimport attempt, step
from jlog._core.encode cimport Body
from jlog._core.file cimport jlog_allocate, jlog_start_writeback, jlog_sync_data, jlog_sync_directory
from jlog._core.file cimport jlog_write_at
from jlog._core.format cimport JLOG_LEASE_STRIDE, jlog_block_header
from jlog._core.lock cimport OPEN_BYTE, OWNERS_BYTE, WRITERS_BYTE, LockFile
from jlog._core.member cimport (
    APPEND,
    DAMAGED,
    DONE,
    FLUSH,
    NEEDS_BODY,
    NEEDS_LEASE,
    NEEDS_SEGMENT,
    ROLL,
    SIGNALS,
    SYNC_FAILED,
    TIMED_OUT,
    Call,
    Member,
    Prepared,
)
from jlog._core.page cimport (
    JLOG_CAPACITY_DEFAULT,
    JLOG_CAPACITY_MAX,
    JLOG_CAPACITY_MIN,
    JLOG_OWNERS_MAX,
    JLOG_PAGE_BYTES,
    JLOG_WAITERS,
    jlog_clock_us,
    jlog_load_acquire,
    jlog_open_slot,
    jlog_page,
    jlog_raise_to,
    jlog_slot,
    jlog_spin_lock,
    jlog_unlock,
)
from jlog._core.precommit cimport PAGE_VALID, Precommit
from jlog._core.segment cimport SegmentFile

from jlog import filesystem
from jlog._core.copies import BoundsFile
from jlog._core.index import write_index
from jlog._core.recovery import only_processes_died, recover_after_power_loss, rewrite_unsynced, segment_start
from jlog._core.segment import SEGMENT_HEADER_BYTES, index_name, list_segments, segment_name
from jlog.errors import CorruptJournal, JournalClosed, JournalError, JournalLocked
from jlog.filesystem import share
from jlog.meta import is_a_copy, read_meta, write_meta


cdef extern from "<fcntl.h>" nogil:
    enum:
        F_RDLCK
        F_WRLCK

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    CLOCK_MONOTONIC = 1
    QUICK_TURNS = 200  # what may be spun away with the GIL held
    HOLD_GIL_BYTES = 256 << 10  # writing less into the page cache is over before another thread has the GIL


SYNC_ALONE_AFTER_US = 1_000_000
_registry = {}
_registry_lock = threading.RLock()  # the collector may close a forgotten Writer while it is held
_registry_process = 0
_after_roll = None


def set_after_roll(hook) -> None:
    """Called with the journal's path, without locks, when this process has rolled: retention lies above this layer."""
    global _after_roll
    _after_roll = hook


def attach(path, *, capacity=0) -> Attachment:
    """This process's Attachment to the journal at `path`, which must exist; opened if it is the first. Each attach()
    wants a detach()."""
    global _registry, _registry_lock, _registry_process
    from jlog._core.lock import current_process_token

    if _registry_process != current_process_token():  # in a child: what stands here is the parent's
        _registry, _registry_lock, _registry_process = {}, threading.RLock(), current_process_token()
    path = os.path.abspath(os.fspath(path))
    meta = read_meta(path)
    with _registry_lock:
        found = os.stat(path)
        key = found.st_dev, found.st_ino
        attachment = _registry.get(key)
        if attachment is not None and attachment.uuid != meta.uuid:
            raise JournalError(f"{path} was removed and made again while this process has a Writer of the old journal open; "
                               "close that one first")
        if attachment is None:
            attachment = Attachment(path, meta)
            attachment.open(capacity)
            _registry[key] = attachment
        attachment.use(1)
        return attachment


def detach(attachment not None) -> None:
    """Gives it back; the last one closes it. The journal's last writer cuts the preallocated end off."""
    with _registry_lock:
        if attachment.use(-1) == 0:
            for key, value in list(_registry.items()):
                if value is attachment:
                    del _registry[key]
            attachment.close_unless_pinned()


cdef class Attachment(Member):
    def __init__(self, str path not None, meta not None):
        self.path = path
        self.meta = meta
        self.uuid = meta.uuid
        self.epoch = meta.epoch

    def __dealloc__(self):
        cdef int i
        self.drop(self.spare)
        if self.open_fd >= 0:
            close(self.open_fd)
        for i in range(self.retained_count):
            close(self.retained[i])
        if self.directory >= 0:
            close(self.directory)

    def use(self, int change) -> int:
        self.users += change
        return self.users

    # --- Opening ------------------------------------------------------------------------------------------------

    def open(self, uint64_t capacity) -> None:
        """Takes a slot. Alone, it makes the journal whole first."""
        filesystem.check_local(self.path)
        lock_file = LockFile(os.path.join(self.path, "lock"))
        self.lock_file = lock_file
        self.directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with lock_file.held(OPEN_BYTE):
            self.meta = read_meta(self.path)
            self.bounds_file = BoundsFile(os.path.join(self.path, "bounds"), self.uuid, lock_file)
            alone = not lock_file.is_held(OWNERS_BYTE, JLOG_OWNERS_MAX)
            self.precommit = Precommit(self.path, self.uuid, create=True)
            share(self.precommit.path, self.path)
            if alone:
                wanted = max(capacity, self.meta.options.get("precommit", JLOG_CAPACITY_DEFAULT), JLOG_CAPACITY_MIN)
                self.precommit.grow(min(wanted, JLOG_CAPACITY_MAX))
                if wanted > self.meta.options.get("precommit", 0):
                    self.meta.options["precommit"] = wanted
                    write_meta(self.path, self.meta)
            self.precommit.map()
            self.buffer.page = self.precommit.page
            self.buffer.body = <uint8_t *> self.precommit.page + JLOG_PAGE_BYTES
            if alone:
                self.recover()
            elif self.precommit.identify(self.buffer.page) != PAGE_VALID:
                raise JournalError(f"{self.precommit.path} is not the page that the journal's writers share; close them "
                                   "all and open it again")
            if alone and is_a_copy(self.path, self.meta):
                # From here on it goes another way than the journal it was copied from.
                self.meta.epochs.append((secrets.randbits(63), self.next_sequence))
                write_meta(self.path, self.meta)
                self.epoch = self.meta.epoch
            self.take_slot()
            self.attached = True

    cdef recover(self):
        """Nobody else is there, and nobody comes while the open lock is held."""
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot
        cdef Call call
        bounds = self.bounds_file.read()
        segment_bytes = self.meta.options["segment_bytes"]
        if only_processes_died(self.path, self.uuid, self.precommit, bounds):
            memset(&call, 0, sizeof(call))
            page.append_lock = page.sync_lock = 0
            page.capacity = self.precommit.mapped_bytes - JLOG_PAGE_BYTES
            page.segment_bytes = segment_bytes
            self.raise_unless_done(self.repair(&call), &call)
            if page.sync_error != 0:
                rewrite_unsynced(self.path, self.uuid, bounds)
                page.sync_error = 0
        else:
            recover_after_power_loss(self.path, self.uuid, self.epoch, self.precommit, self.bounds_file, segment_bytes)
        slot = jlog_open_slot(page)
        page.reserved_end = os.stat(os.path.join(self.path, segment_name(slot.segment))).st_size
        # Synced whatever stands there: who came before may have been killed between writing it and its fdatasync, and a
        # note of a closed end that a power loss brings back would let numbers be given out twice.
        self.lease(0)

    def lease(self, uint64_t count) -> None:
        """Makes more numbers usable: durably in `bounds` before the page says so."""
        limit = self.buffer.page.next_sequence + count + JLOG_LEASE_STRIDE
        self.bounds_file.update(lease_limit=limit, closed=None, durable=True)
        # To what this fdatasync has made durable, not to what another process may have written since.
        jlog_raise_to(&self.buffer.page.lease_limit, limit)

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
            status = self.repair(&call)
            if status != DONE:
                page.sync_error = call.error or EIO  # nobody may append behind what could not be looked at
            self.release(&page.append_lock)
            self.raise_unless_done(status, &call)
        if (page.sync_lock & ~JLOG_WAITERS) == self.buffer.owner:
            jlog_unlock(&page.sync_lock)
        for name in os.listdir(self.path):
            if name.startswith(f"next.{self.slot}."):
                os.unlink(os.path.join(self.path, name))

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
        if exclusive and self.exclusive_writers == 0 and self.usable():
            self.lock_file.try_lock(F_RDLCK, WRITERS_BYTE, 1)

    def change_options(self, options) -> None:
        """For what is written from now on, by every process."""
        cdef jlog_page *page = self.buffer.page
        if not options:
            return
        with _registry_lock, self.lock_file.held(OPEN_BYTE):
            self.meta = read_meta(self.path)
            if all(self.meta.options.get(name) == value for name, value in options.items()):
                return
            self.meta.options.update(options)
            write_meta(self.path, self.meta)
            page.segment_bytes = self.meta.options["segment_bytes"]
            page.options_generation += 1

    # --- Closing ------------------------------------------------------------------------------------------------

    def close_unless_pinned(self) -> None:
        if self.pins == 0:
            self.close()

    cdef close(self):
        """Flushes; the last of all processes cuts the preallocated end off and notes where the journal ends."""
        if not self.usable():
            self.attached = False
            return
        try:
            with self.lock_file.held(OPEN_BYTE):
                last = not self.lock_file.is_held(OWNERS_BYTE, JLOG_OWNERS_MAX)
                try:
                    if self.buffer.page.sync_error == 0:
                        self.users += 1  # flush() is a call like any other, and must not close as the last one
                        self.flush()
                        self.users -= 1
                        if last:
                            self.note_end()
                finally:
                    self.drop(self.spare)
                    self.spare = NULL
                    self.attached = False
                    self.lock_file.unlock(OWNERS_BYTE + self.slot, 1)
        finally:
            self.attached = False
            self.lock_file.close()
            self.bounds_file.close()
            self.precommit.close()
            self.buffer.page = NULL

    cdef note_end(self):
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot = jlog_open_slot(page)
        fd = self.descriptor(slot.segment)
        if fd < 0:
            raise OSError(-fd, os.strerror(-fd), os.path.join(self.path, segment_name(slot.segment)))
        os.ftruncate(fd, slot.offset)
        page.reserved_end = slot.offset
        self.bounds_file.update(closed=(slot.segment, slot.offset, slot.first_sequence))

    # --- Calls that need the append lock ------------------------------------------------------------------------

    cdef uint64_t run(self, Call *call, timeout) except? 0xFFFFFFFFFFFFFFFF:
        """Carries the call through. Returns its first sequence, for an append. Raises with nothing of it published."""
        cdef jlog_page *page
        cdef int status
        cdef Body body = None
        if not self.usable():
            raise closed_error(self.path)
        page = self.buffer.page
        call.deadline_us = -1
        if timeout is not None:
            call.deadline_us = jlog_clock_us(CLOCK_MONOTONIC) + <int64_t> (timeout * 1e6)
        self.pins += 1
        try:
            while True:
                if call.prepared == NULL and self.spare != NULL:
                    call.prepared, self.spare = self.spare, NULL
                if call.record_bytes <= HOLD_GIL_BYTES and jlog_spin_lock(&page.append_lock, self.buffer.owner, QUICK_TURNS):
                    status = step(self, call)
                    self.release(&page.append_lock)
                else:
                    page.counters.waits += 1
                    with nogil:
                        status = attempt(self, call)
                if status == DONE:
                    break
                if status == SIGNALS:
                    PyErr_CheckSignals()
                elif status == NEEDS_SEGMENT:
                    self.prepare(call)
                elif status == NEEDS_LEASE:
                    self.lease(call.count)
                elif status == NEEDS_BODY:
                    body = Body.of_values(<object> call.items)
                    body.describe(call)
                    call.direct = True
                else:
                    self.raise_unless_done(status, call)
            return call.sequence
        finally:
            try:
                self.tidy_up(call)
            finally:
                self.unpin()

    cdef int tidy_up(self, Call *call) except -1:
        """What a call leaves to do outside the lock. Its records are published: no failure here may be taken for theirs."""
        cdef jlog_page *page = self.buffer.page
        self.keep_or_drop(call)
        try:
            if call.rolled:
                self.seal(call.sealed_segment, call.sealed_end)
                if _after_roll is not None:
                    _after_roll(self.path)
            if call.switched and page.lease_limit < page.next_sequence + JLOG_LEASE_STRIDE // 2:
                self.lease(0)
        except Exception as error:  # noqa: BLE001
            # Another process does it, or the next roll, or the append that cannot do without a lease: then it raises.
            logging.getLogger("jlog").warning("%s: left for later: %s", self.path, error)
        return 0

    cdef unpin(self):
        """The mapping stays while any call is under way; the last one closes what was given back meanwhile."""
        self.pins -= 1
        if self.pins == 0 and self.users == 0 and self.attached:
            self.close()

    cdef int raise_unless_done(self, int status, Call *call) except -1:
        what = call.what.decode() if call.what != NULL else ""
        if status == DONE:
            return 0
        if status == TIMED_OUT:
            raise JournalLocked(f"{self.path}: another process held the append lock for the whole lock_timeout; it may be "
                                "stopped: continue or end it")
        if status == DAMAGED:
            raise CorruptJournal(self.precommit.path, 0, what)
        if status == SYNC_FAILED:
            raise OSError(call.error, f"{os.strerror(call.error)}: an fdatasync of the journal failed, so that nobody "
                                      "appends any more; close all its writers and open it again", self.path)
        raise OSError(call.error, f"{os.strerror(call.error)}, {what}; nothing of this call is readable, and it can be made "
                                  "again", self.path)

    def flush(self, timeout=None) -> None:
        """Every record appended before is in its segment file when this returns."""
        cdef Call call
        memset(&call, 0, sizeof(call))
        call.operation = FLUSH
        self.buffer.page.counters.flushes += 1
        self.run(&call, timeout)

    def roll(self, timeout=None) -> None:
        """Closes the open segment, if it has a record, and opens the next."""
        cdef Call call
        memset(&call, 0, sizeof(call))
        call.operation = ROLL
        self.run(&call, timeout)

    # --- Segments -----------------------------------------------------------------------------------------------

    cdef prepare(self, Call *call):
        """The next segment in a file of one's own: allocated, and all but what only the lock can tell is filled in."""
        cdef Prepared *prepared
        cdef uint64_t needed
        cdef int error = 0
        cdef bytes name, start
        if call.prepared != NULL:
            self.drop(call.prepared)
            call.prepared = NULL
        generation = self.read_state()
        start = segment_start(self.uuid, self.epoch, 0, None, self.state)
        self.prepared_count += 1
        name = f"next.{self.slot}.{self.prepared_count}".encode()
        prepared = <Prepared *> calloc(1, sizeof(Prepared))
        if prepared == NULL:
            raise MemoryError
        prepared.fd = -1
        try:
            prepared.fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=self.directory)
            memcpy(prepared.name, <const char *> name, len(name) + 1)
            share(os.path.join(self.path, name.decode()), self.path)
            prepared.start = <uint8_t *> malloc(len(start))
            if prepared.start == NULL:
                raise MemoryError
            memcpy(prepared.start, <const uint8_t *> start, len(start))
            prepared.start_bytes = len(start)
            prepared.state_generation = generation
            needed = prepared.start_bytes
            if call.operation == APPEND:
                needed += sizeof(jlog_block_header) + call.record_bytes
            prepared.reserved_end = max(needed, self.buffer.page.segment_bytes)
            with nogil:
                error = jlog_allocate(prepared.fd, 0, prepared.reserved_end)
                if error != 0 and prepared.reserved_end > needed:  # the rule is a whole segment; this much must be
                    prepared.reserved_end = needed
                    error = jlog_allocate(prepared.fd, 0, needed)
                if error == 0 and call.wants_block:
                    error = jlog_write_at(prepared.fd, call.records, call.record_bytes,
                                          prepared.start_bytes + sizeof(jlog_block_header))
            prepared.has_block = call.wants_block
            if error != 0:
                raise OSError(error, f"{os.strerror(error)}, preparing the next segment; nothing of this call is readable, "
                                     "and it can be made again", self.path)
        except BaseException:
            self.drop(prepared)
            raise
        call.prepared = prepared

    cdef int keep_or_drop(self, Call *call) except -1:
        """A file that was prepared and not needed serves the next roll, unless it holds this call's records."""
        if call.prepared == NULL:
            return 0
        if self.spare == NULL and call.prepared.fd >= 0 and self.usable() and not (
                call.prepared.has_block or call.prepared.spoiled):
            self.spare = call.prepared
        else:
            self.drop(call.prepared)
        call.prepared = NULL
        return 0

    cdef void drop(self, Prepared *prepared) noexcept:
        if prepared == NULL:
            return
        if prepared.fd >= 0:
            close(prepared.fd)
            if self.lock_file is not None and self.lock_file.is_open():
                try:
                    os.unlink(prepared.name, dir_fd=self.directory)
                except OSError:
                    pass  # whoever takes the slot next removes it
        free(prepared.start)
        free(prepared)

    def read_state(self) -> int:
        """Makes self.state the live state as of a generation, which is returned: of every block before that one."""
        cdef jlog_page *page = self.buffer.page
        while True:
            generation = jlog_load_acquire(&page.generation)
            if self.state is not None and page.state < self.state_generation:
                self.state_generation = generation
                return generation
            segment, offset, _ = self.open_place
            if jlog_load_acquire(&page.generation) != generation:
                continue
            state, start = {}, SEGMENT_HEADER_BYTES
            if self.state is not None and self.state_end[0] == segment:
                state, start = self.state, self.state_end[1]  # only what came since
            self.state = SegmentFile(self.path, segment, self.uuid).state_between(start, offset, state)
            self.state_end = segment, offset
            self.state_generation = generation
            return generation

    def seal(self, uint64_t segment, uint64_t end) -> None:
        """What is left to do for a segment that was rolled away from, outside the lock; whoever finds it undone can do
        without: the index is derived, and the next segment's header says where this one ends."""
        path = os.path.join(self.path, segment_name(segment))
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # cleaned already
        try:
            os.ftruncate(fd, end)
            jlog_start_writeback(fd, end)
        finally:
            os.close(fd)
        write_index(self.path, segment, self.uuid, end, f"next.{self.slot}.{segment}.idx")
        share(os.path.join(self.path, index_name(segment)), self.path)

    # --- Sync ---------------------------------------------------------------------------------------------------

    def sync(self, timeout=None) -> int:
        """Every record appended before survives a power loss when this returns. Returns the durable end."""
        if not self.usable():
            raise closed_error(self.path)
        self.pins += 1
        try:
            return self.sync_pinned(timeout)
        finally:
            self.unpin()

    cdef object sync_pinned(self, timeout):
        """Flush, then one fdatasync for all who wait: the first to have the sync word does it."""
        cdef Call call
        cdef jlog_page *page = self.buffer.page
        cdef int64_t began_us
        cdef int status
        cdef bint alone = False
        self.flush(timeout)
        wanted = jlog_open_slot(page).first_sequence
        memset(&call, 0, sizeof(call))
        began_us = jlog_clock_us(CLOCK_MONOTONIC)
        while True:
            if jlog_load_acquire(&page.durable_end) >= wanted:
                return page.durable_end
            call.deadline_us = began_us + SYNC_ALONE_AFTER_US
            with nogil:
                status = self.acquire(&page.sync_lock, &call)
            if status == SIGNALS:
                PyErr_CheckSignals()
                continue
            if status == TIMED_OUT:
                alone = True  # its holder may be stopped
            elif status != DONE:
                self.raise_unless_done(status, &call)
            try:
                return self.sync_now()
            finally:
                if not alone:
                    self.release(&page.sync_lock)

    cdef object sync_now(self):
        """The end is read before the fdatasync, and lies before the open block."""
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot
        cdef int error = 0, fd
        while True:
            generation = jlog_load_acquire(&page.generation)
            slot = &page.slots[generation & 1]
            segment, offset, end = slot.segment, slot.offset, slot.first_sequence
            if jlog_load_acquire(&page.generation) == generation:
                break
        if page.sync_error != 0:
            error = page.sync_error
        for name in [s for s in list_segments(self.path) if page.durable_segment <= s <= segment] if error == 0 else ():
            try:
                fd = os.open(os.path.join(self.path, segment_name(name)), os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # cleaned: nobody needs it
            with nogil:
                error = jlog_sync_data(fd)
            os.close(fd)
            if error != 0:
                break
        if error == 0 and segment != page.durable_segment:
            with nogil:
                error = jlog_sync_directory(self.directory)
        if error != 0:
            # Before anybody is told: what the kernel failed to write it may have dropped, and no later sync would know.
            page.sync_error = error
            raise OSError(error, f"{os.strerror(error)}: fdatasync failed; what was not durable before may be lost in a "
                                 "power loss; close all writers and open the journal again", self.path)
        page.counters.syncs += 1
        jlog_raise_to(&page.durable_segment, segment)
        jlog_raise_to(&page.durable_end, end)
        self.bounds_file.update(mark=(segment, offset, end))
        return end

    @property
    def durable_end(self) -> int:
        return self.buffer.page.durable_end

    @property
    def next_sequence(self) -> int:
        return self.buffer.page.next_sequence

    @property
    def capacity(self) -> int:
        return self.buffer.page.capacity

    @property
    def counters(self) -> dict:
        return self.buffer.page.counters

    @property
    def open_place(self) -> tuple:
        """(segment, offset, first sequence) of the open block."""
        cdef jlog_page *page = self.buffer.page
        while True:
            generation = jlog_load_acquire(&page.generation)
            slot = &page.slots[generation & 1]
            place = slot.segment, slot.offset, slot.first_sequence
            if jlog_load_acquire(&page.generation) == generation:
                return place


def closed_error(path):
    return JournalClosed(f"{path}: this object is closed, or belongs to the process that this one was forked from; open a "
                         "new one")
