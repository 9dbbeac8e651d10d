"""The mapped window of a shared subscriber: its file, its lock, and its workers' slots.

Every worker holds the byte of its slot in the subscriber's own file, and shares that file's first byte with the other workers.
So the window's file may go without two workers ever having two windows. The GIL is held while the lock is, and nothing then
allocates a Python object: the garbage collector might call a worker.
"""

import os

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.fcntl cimport F_WRLCK
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mmap, munmap

from jlog._core.format.dual_slot cimport put_dual_slot, read_dual_slot
from jlog._core.format.format cimport JLOG_NONE, JLOG_NUMBER_MAX, JLOG_POSITION_MAGIC, jlog_position
from jlog._core.system.atomic cimport jlog_sleep_lock, jlog_spin_lock, jlog_take_word, jlog_try_lock, jlog_unlock
from jlog._core.system.clock cimport CLOCK_BOOTTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, jlog_clock_us
from jlog._core.system.file cimport OpenFile, check_error, close_file, jlog_file_bytes, jlog_write_zeros
from jlog._core.system.lock cimport Deadline, LockFile

from jlog._core.buffer.precommit import boot_id
from jlog.errors import CorruptJournal, JournalClosed, JournalError, JournalLocked
from jlog.system.files import Directory, open_file, read_whole


cdef enum:
    SPIN_TURNS = 400
    SLICE_US = 1000
    SIGNALS_EVERY_US = 50_000
    LIMIT_MAX = 1 << 24

FOLDER = "work"
NAME_BYTE = 0  # of the subscriber's file: shared by workers, or held by one Reader
OPENING_BYTE = 1  # held by a worker that opens
REJECTING_BYTE = 2  # held by a worker that rejects
SYNCING_BYTE = 3  # held by a worker that writes the durable copy
SLOT_BYTE = 64  # + worker slot


cdef int64_t boot_us() noexcept:
    return jlog_clock_us(CLOCK_BOOTTIME)


def window_path(path not None, str name not None) -> str:
    return os.path.join(path, FOLDER, name + ".window")


cdef uint32_t capacity_for(uint64_t limit) noexcept:
    cdef uint32_t capacity = JLOG_WINDOW_STEP
    while capacity < limit and capacity < LIMIT_MAX:
        capacity *= 2
    return capacity


cdef int check_window_error(int error, path) except -1:
    if error == ENOMEM:
        raise MemoryError
    return check_error(error, path)


cdef list stored_in(bytearray memory, uint32_t count):
    """Returns the records that store_from() has stored there."""
    cdef jlog_stored *found = <jlog_stored *> <char *> memory
    cdef uint32_t i
    return [[found[i].sequence, found[i].key_hash, found[i].attempts, found[i].failures] for i in range(count)]


class Unusable(Exception):
    """The window's file cannot be used, for the reason that it states."""


cdef int read_header(int fd, jlog_window *header, bytes uuid) except -1:
    """Reads the header of a window's file. Raises Unusable unless it is one of this journal, in this very file."""
    cdef bytes found = read_whole(fd, sizeof(header[0]), 0)
    status = os.fstat(fd)
    if len(found) < <Py_ssize_t> sizeof(header[0]):
        raise Unusable("it is cut off")
    memcpy(header, <const uint8_t *> found, sizeof(header[0]))
    if memcmp(header.magic, JLOG_WINDOW_MAGIC, 8) != 0 or header.layout != JLOG_WINDOW_LAYOUT or not header.is_ready:
        raise Unusable("its header is not that of a window")
    if (memcmp(header.uuid, <const uint8_t *> uuid, 16) != 0 or header.device != <uint64_t> status.st_dev
            or header.inode != <uint64_t> status.st_ino):
        raise Unusable("it is a copy")
    return 0


def look(path not None, bytes uuid not None, str name not None, LockFile locks not None):
    """Returns what the window's header states, as a dict, in a process that is not a worker; None if there is no window of this
    journal and this boot. Needs no right to write. Others may change the window meanwhile."""
    cdef jlog_window header
    cdef uint32_t slot
    try:
        file = open_file(window_path(path, name))
    except (OSError, JournalError):
        return None
    try:
        read_header(file.fd, &header, uuid)
        workers = [{"pid": header.slots[slot].pid, "taken": header.slots[slot].taken} for slot in range(JLOG_WORKERS_MAX)
                   if header.slots[slot].pid and locks.is_held(SLOT_BYTE + slot)]
        if not workers and header.boot_id[:16] != boot_id():
            return None
        return {"oldest": header.oldest, "stored": header.stored, "next": header.next, "used": header.used,
                "delayed": header.delayed, "limit": header.limit, "workers": workers, "takes": header.takes,
                "finishes": header.finishes, "synced": header.synced, "failures": header.failures,
                "rejections": header.rejections, "deaths": header.deaths}
    except Unusable:
        return None
    finally:
        file.close()


def entries(path not None, bytes uuid not None, str name not None) -> list:
    """Returns (sequence, pid or 0, end of the delay or the lease or 0, attempts, failures, deaths) of each unfinished record,
    by sequence, as look() does: others may change the window meanwhile."""
    cdef jlog_window header
    cdef jlog_entry entry
    cdef uint32_t at
    cdef bytes content
    cdef const uint8_t *start
    cdef list rows = []
    try:
        file = open_file(window_path(path, name))
    except (OSError, JournalError):
        return rows
    try:
        read_header(file.fd, &header, uuid)
        if header.boot_id[:16] != boot_id():
            return rows
        content = read_whole(file.fd, <size_t> header.capacity * sizeof(jlog_entry), JLOG_ENTRIES_HEADER_BYTES)
    except Unusable:
        return rows
    finally:
        file.close()
    start = content
    for at in range(<uint32_t> (len(content) // sizeof(jlog_entry))):
        entry = (<const jlog_entry *> start)[at]
        if 0 < entry.number <= header.next:
            pid = header.slots[(entry.owner - 1) & (JLOG_WORKERS_MAX - 1)].pid if entry.owner else 0
            rows.append((entry.number - 1, pid, entry.until_us, entry.attempts, entry.failures, entry.deaths))
    return sorted(rows)


@cython.no_gc_clear  # __dealloc__ needs what it refers to
cdef class Window:
    """The window of subscriber `name`. `locks` is an open file of the subscriber, whose first byte the caller holds. A worker
    that is not closed, and that nobody refers to any more, has left: what it holds is free, without a failure."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, path not None, bytes uuid not None, uint64_t epoch, str name not None, LockFile locks not None,
                 lock_timeout=None):
        self.path = window_path(path, name)
        self.uuid, self.epoch, self.locks, self.lock_timeout = uuid, epoch, locks, lock_timeout

    def __dealloc__(self):
        Window.leave(self)
        self.release()

    cpdef void leave(self) noexcept:
        """Says that this worker ends by itself, if it is open: what it holds has not failed."""
        if self.owner != 0 and self.locks.is_open():
            jlog_slot_note(self.page, self.owner, JLOG_HAS_LEFT)

    cdef int release_dropped(self, uint32_t owner) except -1:
        """Gives back what a living worker has marked as dropped."""
        self.lock()
        jlog_window_release_dropped(self.page, owner)
        self.unlock()
        jlog_window_ring_all(self.page)
        return 0

    def release(self) -> None:
        """Unmaps and closes the file, without any change of it. Only before a worker has it: a thread may sleep on a word of
        the mapping while another one closes the worker, so that a worker's mapping stays as long as the object."""
        if self.page != NULL:
            munmap(self.page, self.mapped_bytes)
            self.page = NULL
        while self.earlier_count > 0:
            self.earlier_count -= 1
            munmap(self.earlier[self.earlier_count], self.earlier_bytes[self.earlier_count])
        self.shut()

    cdef void shut(self) noexcept:
        close_file(self.fd, &self.file)
        self.fd = -1

    # --- The file ------------------------------------------------------------------------------------------------

    def open(self, *, bint alone) -> int:
        """Opens and maps the file. Returns the committed position as it was written last, or 0 if that is not known. Raises
        FileNotFoundError, or Unusable if it is not the file of this journal and this boot. `alone`: no worker lives."""
        cdef jlog_window header
        self.fd = (<OpenFile> open_file(self.path, os.O_RDWR)).detach(&self.file)
        read_header(self.fd, &header, self.uuid)
        status = os.fstat(self.fd)  # after the header: another worker may extend the file meanwhile
        if status.st_nlink != 1:
            raise Unusable("it is a copy")
        if alone and header.boot_id[:16] != boot_id():
            raise Unusable("it is from another boot")
        if (header.capacity < JLOG_WINDOW_STEP or header.capacity & (header.capacity - 1) or header.limit > LIMIT_MAX
                or header.capacity > LIMIT_MAX or header.next > JLOG_NUMBER_MAX
                or <uint64_t> status.st_size < jlog_window_bytes(header.capacity)):
            raise Unusable("its numbers cannot be right")
        check_window_error(self.map(max(header.capacity, capacity_for(header.limit))), self.path)  # it may have been higher
        if alone:
            self.page.lock = self.page.scout = self.page.asleep = 0
            self.page.alarm_us = 0
            self.page.unrepaired = 1
            self.repair_alone("its entries contradict each other")
        return header.stored if header.stored != JLOG_NONE else 0

    def create(self, uint64_t limit, uint64_t first_sequence, *, bint key_order) -> None:
        """Creates the file anew, with every record before this sequence finished. Called while no worker lives."""
        cdef bytes boot
        self.release()
        folder, name = os.path.split(self.path)
        directory = Directory(os.path.dirname(folder), FOLDER, make=True)
        try:
            directory.remove(name)
            self.fd = (<OpenFile> directory.create(name)).detach(&self.file)
        finally:
            directory.close()
        check_error(jlog_write_zeros(self.fd, jlog_window_bytes(JLOG_WINDOW_STEP)), self.path)
        check_window_error(self.map(capacity_for(limit)), self.path)
        status = os.fstat(self.fd)
        boot = boot_id()
        page = self.page
        memcpy(page.magic, JLOG_WINDOW_MAGIC, 8)
        page.layout = JLOG_WINDOW_LAYOUT
        memcpy(page.uuid, <const uint8_t *> self.uuid, 16)
        memcpy(page.boot_id, <const uint8_t *> boot, 16)
        page.device, page.inode = status.st_dev, status.st_ino
        page.limit, page.capacity = limit, JLOG_WINDOW_STEP
        page.key_order = key_order  # restore() needs it: without it no record waits for another one
        page.next = first_sequence
        self.repair_alone("it cannot be created")

    cdef int map(self, uint64_t capacity) noexcept:
        """Maps the file, with room for it to grow. Returns 0 or an errno."""
        cdef size_t mapped_bytes = jlog_window_bytes(capacity)
        page = mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if page == MAP_FAILED:
            return errno
        self.page, self.mapped_bytes = <jlog_window *> page, mapped_bytes
        return 0

    cdef int map_more(self, uint64_t capacity) noexcept:
        """Maps the file anew where its limit was raised since, so that `page` is another one. Returns 0 or an errno."""
        cdef jlog_window *before = self.page
        cdef size_t before_bytes = self.mapped_bytes
        cdef int error
        if jlog_window_bytes(capacity) <= before_bytes:
            return 0
        if self.earlier_count == 15:  # it was doubled more often than the highest limit allows
            return ENOMEM
        error = self.map(capacity)
        if error == 0:
            self.earlier[self.earlier_count], self.earlier_bytes[self.earlier_count] = before, before_bytes
            self.earlier_count += 1
        return error

    def configure(self, uint64_t limit, uint32_t max_attempts, bint key_order, backoff) -> None:
        """Notes the subscriber's options. Workers that live see them at once. With an owner it takes the lock."""
        cdef bint lives = self.owner != 0
        cdef int64_t first_us = <int64_t> (backoff[0] * 1e6), most_us = <int64_t> (backoff[1] * 1e6)
        if lives:
            self.lock()
        page = self.page
        page.limit, page.max_attempts = limit, max_attempts
        if page.key_order and not key_order:
            page.unrepaired = 1  # what waits for an earlier record of its key waits no longer
        page.key_order = key_order
        page.backoff_first_us, page.backoff_most_us = first_us, most_us
        page.revision += 1
        page.is_ready = 1
        if lives:
            self.unlock()
            jlog_window_ring_all(page)  # there may be room now, or a record that waits no longer

    @property
    def revision(self) -> int:
        """It is another one after each change of an option."""
        return self.page.revision

    def read_position(self) -> int:
        """Reads the subscriber's file, in which this process moves the position from now on. Called while no worker lives."""
        cdef jlog_position position
        if not read_dual_slot(self.locks.fd, &position, sizeof(position), JLOG_POSITION_MAGIC, self.uuid, self.locks.path):
            raise CorruptJournal(self.locks.path, 0, "neither copy of the position is valid; every record is kept until you "
                                                     "set it again, with `jlogtool subscriber set`")
        if self.page != NULL:
            self.page.generation = position.generation
            self.page.stored = position.sequence
        return position.sequence

    def restore(self, list unfinished not None, uint64_t next_sequence) -> None:
        """Puts the records of the durable copy into a new window: (sequence, hash of the key, attempts, failures) each. Those
        before the window's first sequence are finished."""
        cdef uint32_t at
        cdef jlog_entry *entry
        cdef uint64_t first = self.page.next
        self.page.next = max(first, next_sequence)
        for sequence, key_hash, attempts, failures in sorted(unfinished):
            if not first <= sequence < self.page.next:
                continue
            while not jlog_window_has_room(self.page):
                if self.page.used >= self.page.limit:
                    self.page.limit = min(self.page.limit * 2, LIMIT_MAX)  # it has become smaller since
                if self.page.free == JLOG_NO_ENTRY:
                    check_window_error(self.grow(), self.path)
            at = jlog_window_pass(self.page, sequence, key_hash)
            entry = jlog_entry_at(self.page, at)
            entry.attempts, entry.failures = attempts, failures
        self.page.unrepaired = 1
        self.repair_alone("its durable copy contradicts itself")

    def drop_before(self, uint64_t sequence, *, bint keep_taken=False) -> None:
        """Finishes all records before this sequence; with `keep_taken` those that no worker has."""
        cdef int error
        self.lock()
        error = jlog_window_drop_before(self.page, sequence, keep_taken)
        if error == 0:
            error = self.move_position(True)
        self.unlock()
        check_window_error(error, self.path)

    # --- Slots -----------------------------------------------------------------------------------------------------

    def register(self) -> None:
        """Takes the byte of a free worker slot. From then on no other process frees what this one has."""
        cdef uint32_t slot
        cdef uint64_t pid = os.getpid()
        for slot in range(JLOG_WORKERS_MAX):
            if self.locks.try_lock(F_WRLCK, SLOT_BYTE + slot, 1) == 0:
                self.owner = slot + 1
                break
        else:
            raise JournalLocked(f"{self.locks.path}: {JLOG_WORKERS_MAX} workers share this subscriber already; close one")
        if jlog_take_word(&self.page.lock, self.owner, self.owner):  # the slot's last worker has died with it
            self.page.unrepaired = 1
            self.unlock()
        self.lock()
        jlog_window_bury(self.page, self.owner, boot_us())
        if self.page.scout == self.owner:
            self.page.scout = 0
        self.page.slots[self.owner - 1].pid = pid
        self.written_finishes = self.page.finishes
        self.unlock()

    def unregister(self) -> None:
        """Gives everything back without an attempt, and frees the slot."""
        cdef int error = 0
        self.leave()  # needs no lock, which another worker may hold for the whole lock_timeout
        self.lock()
        jlog_window_bury(self.page, self.owner, 0)
        if self.page.scout == self.owner:
            self.page.scout = 0
        error = self.move_position(True)
        jlog_unlock(&self.page.lock)
        jlog_window_ring_all(self.page)
        self.locks.unlock(SLOT_BYTE + self.owner - 1, 1)
        self.owner = 0
        check_window_error(error, self.locks.path)

    cdef bint should_look(self, int64_t now_us, int64_t after_us) noexcept:
        """Returns whether no worker has looked for dead ones for so long: a look asks the kernel about every worker."""
        return <uint64_t> (now_us - self.page.looked_us) >= <uint64_t> after_us

    cdef bint bury_the_dead(self, int64_t now_us) except -1:
        """Frees what dead workers have. Returns whether there was anything."""
        cdef uint32_t slot, freed = 0
        if self.burying != 0:
            return False
        self.looked_us = self.page.looked_us = now_us
        for slot in range(JLOG_WORKERS_MAX):
            if self.page.slots[slot].pid == 0 or slot + 1 == self.owner:
                continue
            if self.locks.try_lock(F_WRLCK, SLOT_BYTE + slot, 1) != 0:
                if self.page.slots[slot].left & JLOG_HAS_DROPPED:
                    self.release_dropped(slot + 1)
                    freed += 1
                continue
            self.burying = slot + 1
            try:
                self.lock()
                freed += jlog_window_bury(self.page, slot + 1, now_us)
                if self.page.scout == slot + 1:
                    self.page.scout = 0
                self.unlock()
            finally:
                self.burying = 0
                self.locks.unlock(SLOT_BYTE + slot, 1)
        if freed != 0:
            jlog_window_ring_all(self.page)  # they are for every worker that sleeps
        return freed != 0

    # --- The lock --------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raises JournalClosed if this worker is closed, or belongs to the parent process."""
        self.check()

    cdef int check(self) except -1:
        if self.owner == 0 or not self.locks.is_open():
            raise JournalClosed(f"{self.locks.path}: this worker is closed, or belongs to the process that this one was forked "
                                "from; open a new one")
        return 0

    cdef int lock(self) except -1:
        self.check()
        if not jlog_try_lock(&self.page.lock, self.owner):
            self.lock_slowly()
        if self.page.capacity != self.capacity or not jlog_window_is_sound(self.page):
            self.put_in_order()
        return 0

    cdef bint lock_at_once(self) noexcept:
        """Takes the lock without waiting for it, unless something has to be put in order first. Returns whether it did. For a
        finalizer: it runs at any moment, also while its thread or another one of this worker holds the lock."""
        if self.owner == 0 or not self.locks.is_open() or not jlog_try_lock(&self.page.lock, self.owner):
            return False
        if self.page.capacity == self.capacity and jlog_window_is_sound(self.page):
            return True
        self.unlock()
        return False

    cdef int put_in_order(self) except -1:
        """Looks at the file's size after it has grown, and computes anew what a death or damage has left. Raises JournalError
        or MemoryError, without the lock, if that cannot be done. Called with the lock held."""
        cdef int error = 0
        cdef uint32_t capacity = self.page.capacity
        cdef bint fits = JLOG_WINDOW_STEP <= capacity <= LIMIT_MAX and not capacity & (capacity - 1)
        if fits and capacity != self.capacity:
            fits = jlog_file_bytes(self.fd) >= <int64_t> jlog_window_bytes(capacity)
            if fits:
                error = self.map_more(capacity_for(max(capacity, self.page.limit)))
        if fits and error == 0:
            self.capacity = capacity
            error = 0 if jlog_window_is_sound(self.page) else self.repair()
        if not fits or error != 0:
            self.unlock()
            if error == ENOMEM:  # the next call does it
                raise MemoryError
            raise JournalError(f"{self.path}: what a killed worker, or damage, has left cannot be put in order; close all "
                               "workers, and the next one to open creates this file anew")
        return 0

    cdef void unlock(self) noexcept:
        jlog_unlock(&self.page.lock)

    cdef int lock_slowly(self) except -1:
        cdef int64_t began_us, now_us, signals_us
        cdef uint32_t found = 0, owner = self.owner  # close() in another thread sets it to 0
        cdef bint got
        cdef Deadline deadline
        if jlog_spin_lock(&self.page.lock, owner, SPIN_TURNS):
            return 0
        deadline = Deadline(self.lock_timeout)
        began_us = signals_us = jlog_clock_us(CLOCK_MONOTONIC)
        while True:
            with nogil:
                got = jlog_sleep_lock(&self.page.lock, owner, SLICE_US, &found)
            if self.owner == 0 or not self.locks.is_open():  # closed meanwhile, so that another worker may take it over
                if got and jlog_take_word(&self.page.lock, owner, owner):
                    self.unlock()
                self.check()
            if got:
                return 0
            now_us = jlog_clock_us(CLOCK_MONOTONIC)
            if now_us - began_us >= SLICE_US and found not in (0, owner) and self.take_over(found):
                return 0
            if deadline.left_us(1) == 0:
                raise JournalLocked(f"{self.path}: another worker held its lock for the whole lock_timeout; if that process is "
                                    "stopped, continue or end it")
            if now_us - signals_us >= SIGNALS_EVERY_US:
                PyErr_CheckSignals()
                signals_us = now_us

    cdef int take_over(self, uint32_t dead) noexcept:
        """Takes the lock from a worker whose byte nobody holds, as pyx/process/locks.pyx does. Returns whether it did."""
        cdef bint won
        if dead > JLOG_WORKERS_MAX:  # no worker has stored that
            self.page.unrepaired = 1
            return jlog_take_word(&self.page.lock, dead, self.owner)
        if dead != self.burying and self.locks.try_lock(F_WRLCK, SLOT_BYTE + dead - 1, 1) != 0:
            return False
        won = jlog_take_word(&self.page.lock, dead, self.owner)
        if won:
            self.page.unrepaired = 1
        if dead != self.burying:  # the thread that buries needs the byte until it has done so
            self.locks.unlock(SLOT_BYTE + dead - 1, 1)
        return won

    cdef int repair(self) noexcept:
        """Computes everything that is derived, after a death under the lock. Returns 0 or an errno."""
        cdef int error = jlog_window_rebuild(self.page, NULL)
        if error == 0:
            self.page.generation += 1  # the dead one may have written the position, and not noted that
            self.page.stored = JLOG_NONE
            self.page.oldest = jlog_window_oldest(self.page)
        return error

    cdef int repair_alone(self, why) except -1:
        """Repairs the window while no worker lives. Raises Unusable, with `why`, if its entries contradict each other."""
        cdef int error = self.repair()
        if error == ENOMEM:  # which says nothing about the window
            raise MemoryError
        if error != 0:
            raise Unusable(why)
        return 0

    cdef int grow(self) noexcept:
        """Doubles the room for entries; `page` may be another one then. Returns 0 or an errno."""
        cdef uint32_t capacity = self.page.capacity * 2
        cdef int error = self.map_more(capacity_for(max(capacity, self.page.limit)))
        if error == 0:
            error = jlog_write_zeros(self.fd, jlog_window_bytes(capacity))
        if error == 0:
            self.page.unrepaired = 1
            self.page.capacity = self.capacity = capacity
            error = jlog_window_rebuild(self.page, NULL)
        return error

    cdef int move_position(self, bint at_once) noexcept:
        """Notes the committed position, and writes it to its file: every JLOG_POSITION_STEP records, or `at_once`. The window
        has the exact one, and readers of the file ask it. While an old record holds it, it is written again as records are
        finished, with its time: a subscriber that goes on must not expire. Returns 0 or an errno. Called with the lock held."""
        cdef jlog_position position
        cdef uint64_t oldest = jlog_window_oldest(self.page)
        cdef int error
        cdef uint64_t steps = self.page.finishes - self.written_finishes
        self.page.oldest = oldest
        if oldest != self.page.stored:
            steps = JLOG_POSITION_STEP if self.page.stored == JLOG_NONE else oldest - self.page.stored
        if steps < (1 if at_once else JLOG_POSITION_STEP):
            return 0
        memset(&position, 0, sizeof(position))
        position.generation = self.page.generation
        position.epoch = self.epoch
        position.sequence = oldest
        position.moved_us = jlog_clock_us(CLOCK_REALTIME)
        error = put_dual_slot(self.locks.fd, &position, sizeof(position), JLOG_POSITION_MAGIC,
                              <const uint8_t *> self.uuid, 0)
        if error == 0:
            self.page.generation = position.generation
            self.page.stored = oldest
            self.written_finishes = self.page.finishes
        return error

    # --- What it says ----------------------------------------------------------------------------------------------

    def snapshot(self) -> tuple:
        """Returns `finishes`, the sequence before which all records were passed, and [sequence, hash of the key, attempts,
        failures] of each unfinished one."""
        cdef bytearray memory
        cdef uint64_t finishes, next_sequence
        cdef uint32_t count
        while True:
            memory = bytearray((<size_t> self.page.used + 64) * sizeof(jlog_stored))  # nothing is allocated under the lock
            self.lock()
            if <size_t> self.page.used * sizeof(jlog_stored) <= <size_t> len(memory):
                break
            self.unlock()
        finishes, next_sequence = self.page.finishes, self.page.next
        count = self.store_from(self.page.first, self.page.used, <jlog_stored *> <char *> memory)
        self.unlock()
        return finishes, next_sequence, stored_in(memory, count)

    def changes(self):
        """Returns what snapshot() returns, of the records that were passed since note_synced() was called last; and the
        sequences of those that were unfinished then, and are finished. None if there are so many that snapshot() is better."""
        cdef bytearray memory, numbers = bytearray(JLOG_FINISHED_MAX * sizeof(uint64_t))
        cdef uint64_t finishes, next_sequence, before, i
        cdef uint64_t *finished = <uint64_t *> <char *> numbers
        cdef uint32_t first, passed, count, room = 64
        cdef bint is_most
        while True:
            memory = bytearray(<size_t> room * sizeof(jlog_stored))
            self.lock()
            passed = jlog_window_passed_since(self.page, &first)
            is_most = passed > JLOG_WINDOW_STEP and passed > self.page.used / 2
            if passed <= room and not is_most:
                break
            self.unlock()
            if is_most:
                return None
            room = passed + 64
        finishes, next_sequence, before = self.page.finishes, self.page.next, self.page.logged.next
        count = self.store_from(first, passed, <jlog_stored *> <char *> memory)
        if finishes - self.page.synced <= JLOG_FINISHED_MAX:
            for i in range(self.page.synced, finishes):
                finished[i - self.page.synced] = self.page.logged.numbers[i % JLOG_FINISHED_MAX]
            passed = <uint32_t> (finishes - self.page.synced)
        else:
            finished = NULL
        self.unlock()
        if finished == NULL:
            return None
        return finishes, next_sequence, stored_in(memory, count), [
            finished[i] - 1 for i in range(passed) if finished[i] <= before]

    cdef uint32_t store_from(self, uint32_t at, uint32_t most, jlog_stored *target) noexcept:
        """Stores the unfinished records from this entry on, in order. Returns how many there are. Called with the lock held."""
        cdef uint32_t count = 0
        cdef jlog_entry *entry
        while at != JLOG_NO_ENTRY and count < most:
            entry = jlog_entry_at(self.page, at)
            target[count].sequence = entry.number - 1
            target[count].key_hash = entry.key_hash
            target[count].attempts, target[count].failures = entry.attempts, entry.failures
            count += 1
            at = entry.later
        return count

    @property
    def committed(self) -> int:
        """Sequence of the oldest unfinished record."""
        self.check()
        return self.page.oldest

    @property
    def limit(self) -> int:
        return self.page.limit

    @property
    def finishes(self) -> int:
        """How many records were finished. With the lock or without."""
        self.check()
        return self.page.finishes

    @property
    def synced(self) -> int:
        """`finishes` as the durable copy has it."""
        self.check()
        return self.page.synced

    @property
    def copy(self) -> tuple:
        """The file of the durable copy as the last sync left it: its inode or 0, its bytes without the lines after the copy,
        and all its bytes."""
        self.check()
        return self.page.logged.copy_inode, self.page.logged.copy_bytes, self.page.logged.file_bytes

    def note_synced(self, uint64_t finishes, uint64_t next_sequence, copy not None) -> None:
        """Notes what a sync has written: up to which finish and which record; and the file, as `copy` has it."""
        self.check()
        inode, copy_bytes, file_bytes = copy
        self.page.logged.next = next_sequence
        self.page.logged.copy_inode = inode
        self.page.logged.copy_bytes, self.page.logged.file_bytes = copy_bytes, file_bytes
        self.page.synced = finishes
