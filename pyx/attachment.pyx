"""A process's part in a journal that it writes to: opened once, shared by all its Writer objects and threads."""

import os
import secrets
import threading
from contextlib import contextmanager

from libc.errno cimport EAGAIN
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memset

from jlog._core.append cimport apply_options, has_options, step
from jlog._core.closing cimport write_out_for
from jlog._core.format cimport JLOG_CODEC_LZ4, JLOG_CODEC_NONE, JLOG_NONE
from jlog._core.lock cimport OPEN_BYTE, OWNERS_BYTE, WRITERS_BYTE, LockFile
from jlog._core.member cimport FLUSH, OPTIONS, Call, Options
from jlog._core.page cimport (
    JLOG_CAPACITY_DEFAULT,
    JLOG_CAPACITY_MAX,
    JLOG_CAPACITY_MIN,
    JLOG_DAY_US,
    JLOG_OWNERS_MAX,
    JLOG_PAGE_BYTES,
    JLOG_SYNC_APPEND,
    JLOG_SYNC_INTERVAL,
    JLOG_SYNC_NONE,
    JLOG_WAITERS,
    jlog_is_closing,
    jlog_least_reserved,
    jlog_open_slot,
    jlog_page,
    jlog_slot,
    jlog_unlock,
    jlog_unwritten_slot,
)
from jlog._core.precommit cimport PAGE_VALID, Precommit
from jlog._core.segment cimport SegmentFile
from jlog._core.sync cimport Syncer

from jlog import filesystem
from jlog._core.buffered import only_processes_died
from jlog._core.copies import BoundsFile
from jlog._core.recovery import copy_unsynced, recover_after_power_loss
from jlog._core.segment import SEGMENT_HEADER_BYTES, segment_name
from jlog.errors import JournalError, JournalLocked
from jlog.files import open_directory, share
from jlog.meta import is_a_copy, read_meta, write_meta


cdef extern from "<fcntl.h>" nogil:
    enum:
        F_RDLCK
        F_WRLCK

PERIODS_US = {"never": 0, "minutely": 60_000_000, "hourly": 3_600_000_000, "daily": JLOG_DAY_US, "weekly": 7 * JLOG_DAY_US}
SYNC_MODES = {"none": JLOG_SYNC_NONE, "interval": JLOG_SYNC_INTERVAL, "append": JLOG_SYNC_APPEND}
_registry = {}
_registry_lock = threading.RLock()  # the collector may close a forgotten Writer while it is held
_registry_process = 0


def attach(path, *, capacity=0, timeout=None) -> Attachment:
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
            attachment.open(capacity, timeout)
            _registry[key] = attachment
        attachment.use(1)
    try:
        attachment.begin()
    except BaseException:
        detach(attachment)
        raise
    return attachment


def detach(attachment not None, wait=True) -> None:
    """Gives it back; the last one closes it. The journal's last writer cuts the preallocated end off. `wait`: not for its
    thread, which may want what the caller holds, where the collector calls."""
    # Without the lock, which its thread may want: whoever handles what it logs may have a Writer.
    stopped = attachment.is_last() and attachment.stop_upkeep(wait)
    with _registry_lock:
        if attachment.use(-1) != 0:
            if stopped:
                attachment.start_upkeep()
        else:
            for key, value in list(_registry.items()):
                if value is attachment:
                    del _registry[key]
            attachment.close_unless_pinned()


cdef class Attachment(Syncer):
    def __init__(self, str path not None, meta not None):
        self.path = path
        self.meta = meta
        self.uuid = meta.uuid
        self.epoch = meta.epoch

    def is_last(self) -> bool:
        """Whether its only user is about to go."""
        return self.users == 1

    def use(self, int change) -> int:
        self.users += change
        return self.users

    # --- Opening ------------------------------------------------------------------------------------------------

    def open(self, uint64_t capacity, timeout=None) -> None:
        """Takes a slot. Alone, it makes the journal whole first."""
        filesystem.check_local(self.path)
        lock_file = LockFile(os.path.join(self.path, "lock"))
        self.lock_file = lock_file
        self.directory = open_directory(self.path)
        with self.opening(timeout):
            self.meta = read_meta(self.path)
            self.bounds_file = BoundsFile(os.path.join(self.path, "bounds"), self.uuid, lock_file)
            alone = not lock_file.is_held(OWNERS_BYTE, JLOG_OWNERS_MAX)
            self.precommit = Precommit(self.path, self.uuid, create=True)
            share(self.precommit.fd, self.directory)
            if alone:
                wanted = max(capacity, self.meta.options.get("precommit", JLOG_CAPACITY_DEFAULT), JLOG_CAPACITY_MIN)
                wanted = min(wanted, JLOG_CAPACITY_MAX)
                if not self.precommit.has_bodies():
                    self.precommit.grow(wanted)
            self.map_buffer()
            if alone:
                self.recover()
                self.enlarge(wanted)
            elif self.precommit.identify_beside_writers() != PAGE_VALID:
                raise JournalError(f"{self.precommit.path} is not the page that the journal's writers share; close them "
                                   "all and open it again")
            if alone:
                self.change_meta(wanted)
            self.take_slot()
            self.attached = True
            self.first = alone

    @contextmanager
    def opening(self, timeout):
        """Holds what one process at a time may: opening, changing options, closing as the last."""
        try:
            held = self.lock_file.held(OPEN_BYTE, timeout=timeout)
            held.__enter__()
        except TimeoutError:
            raise JournalLocked(f"{self.path}: another process was opening, changing or closing it for the whole lock_timeout; "
                                "it may be stopped: continue or end it") from None
        try:
            yield
        finally:
            held.__exit__()

    def begin(self) -> None:
        """What the first process does then, by calls like any others."""
        if not self.first:
            return
        self.first = False
        if self.mended:
            self.roll()
        if self.buffer.page.limit_bytes != 0:
            self.count_sealed()

    cdef change_meta(self, capacity):
        """In one write: a copy is told from its original by the file itself, and any write ends that."""
        copied, grown = is_a_copy(self.path, self.meta), capacity > self.meta.options.get("precommit", 0)
        if copied:  # from here on it goes another way than the journal it was copied from
            self.meta.epochs.append((secrets.randbits(63), self.next_sequence))
        if grown:
            self.meta.options["precommit"] = capacity
        if copied or grown:
            write_meta(self.path, self.meta)
            self.epoch = self.meta.epoch

    cdef recover(self):
        """Nobody else is there, and nobody comes while the open lock is held."""
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot *slot
        cdef Options options = page_options(self.meta.options)
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
                page.syncing = 0
            page.sync_error = 0
        if not died:
            recover_after_power_loss(self.path, self.uuid, self.epoch, self.precommit, self.bounds_file,
                                     self.meta.options["segment_bytes"])
        apply_options(page, &options)
        slot = jlog_open_slot(page)
        page.reserved_end = max(os.stat(os.path.join(self.path, segment_name(slot.segment))).st_size,
                                jlog_least_reserved(slot))
        # Synced whatever stands there: who came before may have been killed between writing it and its fdatasync, and a
        # note of a closed end that a power loss brings back would let numbers be given out twice.
        self.lease(0)

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
        for name in os.listdir(self.path):
            if name.startswith(f"next.{self.slot}."):
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
        if exclusive and self.exclusive_writers == 0 and self.usable():
            self.lock_file.try_lock(F_RDLCK, WRITERS_BYTE, 1)

    def change_options(self, options, timeout=None) -> None:
        """For what is written from now on, by every process."""
        cdef Options changed
        cdef Call call
        if not options:
            return
        with _registry_lock, self.opening(timeout):
            self.meta = read_meta(self.path)
            if any(self.meta.options.get(name) != value for name, value in options.items()):
                self.meta.options.update(options)
                write_meta(self.path, self.meta)
        # Who changed the file before may come to the page later, or was killed on the way to it.
        changed = page_options(self.meta.options)
        while not has_options(self.buffer.page, &changed):
            memset(&call, 0, sizeof(call))
            call.operation = OPTIONS
            call.options = &changed
            self.run(&call, timeout)
            if changed.limit_bytes != 0:
                self.count_sealed()
            changed = page_options(read_meta(self.path).options)

    # --- Closing ------------------------------------------------------------------------------------------------

    def close_unless_pinned(self) -> None:
        if self.pins == 0:
            self.close()

    cdef close(self):
        """The last of all processes flushes, cuts the preallocated end off and notes where the journal ends. What others
        have open needs no flush: it is published."""
        if not self.usable():
            self.attached = False
            return
        try:
            with self.lock_file.held(OPEN_BYTE):
                try:
                    if self.buffer.page.sync_error == 0 and not self.lock_file.is_held(OWNERS_BYTE, JLOG_OWNERS_MAX):
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
        cdef jlog_slot *slot
        self.users += 1  # a call like any other, and it must not close as the last one
        try:
            if page.sync_mode == JLOG_SYNC_NONE:
                self.flush()
            else:
                self.sync()
        finally:
            self.users -= 1
        slot = jlog_open_slot(page)
        fd = self.descriptor(slot.segment)
        if fd < 0:
            raise OSError(-fd, os.strerror(-fd), os.path.join(self.path, segment_name(slot.segment)))
        os.ftruncate(fd, slot.offset)
        page.reserved_end = slot.offset
        self.bounds_file.update(closed=(slot.segment, slot.offset, slot.first_sequence))


cdef Options page_options(options):
    """As the page has them: what journal.meta says, checked when it was written."""
    cdef Options found
    found.segment_bytes = options["segment_bytes"]
    found.limit_bytes = options["retention"].get("limit_bytes") or 0
    found.sync_interval_us = int(options["sync_interval"] * 1e6)
    found.roll_us = PERIODS_US[options["roll"]]
    found.codec = JLOG_CODEC_LZ4 if options["compression"] == "lz4" else JLOG_CODEC_NONE
    found.sync_mode = SYNC_MODES[options["sync"]]
    return found
