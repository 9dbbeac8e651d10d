"""The file `precommit`: the control page and the two bodies.

Writers map it. Readers read it with pread, so that a truncated file is an error and not a signal. They check the slot against
its CRC and the generation, and the body against the running CRC in the publish word.

A page is trusted if it was created in this boot. Two containers of one kernel may see different boot ids. Both see the locks of
living writers, and no process outlives its boot.
"""

import os

from libc.errno cimport ENODATA, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.mman cimport MAP_FAILED, MAP_SHARED, PROT_READ, PROT_WRITE, mlock, mmap, munmap

from jlog._core.system.file cimport (
    OpenFile, check_error, check_result, close_file, jlog_allocate, jlog_file_bytes, jlog_read_at, jlog_write_at)
from jlog._core.format.format cimport JLOG_NUMBER_MAX, jlog_block_header
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES, JLOG_BOOT_ID_OFFSET, JLOG_CAPACITY_MAX, JLOG_CAPACITY_MIN, JLOG_GENERATION_OFFSET, JLOG_INTENTS_BYTES,
    JLOG_PAGE_BYTES, JLOG_PAGE_LAYOUT, JLOG_PAGE_MAGIC, JLOG_PAGE_READY, JLOG_SNAPSHOT_BYTES, JLOG_UNWRITTEN_OFFSET,
    jlog_body_offset, jlog_is_whole_body, jlog_page, jlog_slot, jlog_slot_valid, jlog_word_used)
from jlog._core.buffer.publish cimport JLOG_CLOCK_AHEAD_US
from jlog._core.system.atomic cimport jlog_pause
from jlog._core.system.failpoint cimport JLOG_FAILPOINT

from jlog._core.system.lock import OWNERS, LockFile
from jlog.errors import CorruptJournal, UnsupportedFormat
from jlog.system.files import directory_of, file_in, name_error, open_file, open_or_create, read_whole


cdef enum:
    TEARS_MAX = 10000  # reads of a page that a rotation may each have torn

cdef uint8_t _boot_id[16]


def _read_boot_id() -> bytes:
    try:
        file = open("/proc/sys/kernel/random/boot_id", encoding="ascii")
        try:
            found = bytes.fromhex(file.read().strip().replace("-", ""))
        finally:
            file.close()
    except (OSError, ValueError):
        found = b""
    # An unknown id is replaced by a random one, which equals no other boot's. The first process to open then recovers as after
    # a power loss.
    return found if len(found) == 16 and any(found) else os.urandom(16)


cdef bytes _boot = _read_boot_id()
memcpy(_boot_id, <const uint8_t *> _boot, 16)


def boot_id() -> bytes:
    """Returns the id of this boot, or 16 random bytes where it is not known."""
    return _boot


cdef class Precommit:
    """Opens the file `precommit`; with `writable=False` for reading only. Raises FileNotFoundError if it is missing."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, directory, bytes uuid not None, *, bint writable=True, bint create=False):
        self.path = file_in(directory, "precommit")
        memcpy(self.uuid, <const uint8_t *> uuid, 16)
        memcpy(self.believed_boot, _boot_id, 16)
        cdef OpenFile opened = (open_or_create(self.path) if create
                                else open_file(self.path, os.O_RDWR if writable else os.O_RDONLY))
        self.fd = opened.detach(&self.file)
        self.check_layout()

    def __dealloc__(self):
        self.close()

    cpdef void close(self) noexcept:
        if self.page != NULL:
            munmap(self.page, self.mapped_bytes)
            self.page = NULL
        close_file(self.fd, &self.file)
        self.fd = -1

    cdef int check_layout(self) except -1:
        """Raises UnsupportedFormat for a page of a newer jlog, which would otherwise look damaged."""
        try:
            head = read_whole(self.fd, 12, 0)
        except OSError as error:
            name_error(error, self.path)
            raise
        if len(head) == 12 and head[:8] == <bytes> JLOG_PAGE_MAGIC:
            layout = int.from_bytes(head[8:], "little")
            if layout > JLOG_PAGE_LAYOUT:
                raise UnsupportedFormat(f"{self.path} has layout {layout}, this jlog knows up to {JLOG_PAGE_LAYOUT}: upgrade "
                                        "pyjlog")
        return 0

    def has_bodies(self) -> bool:
        """Returns whether the file has room for two bodies. If so it never grows before recovery: even with a damaged page its
        bodies may hold records, at the places that the file's size gives them."""
        return jlog_file_bytes(self.fd) >= JLOG_PAGE_BYTES + 2 * JLOG_CAPACITY_MIN

    def grow(self, uint64_t capacity) -> None:
        """Makes room for two bodies of at least this size. The file is written, not only allocated, because the mapping of a
        sparse file faults on a full disk."""
        cdef int64_t size = jlog_file_bytes(self.fd)
        cdef uint64_t reached = 0
        cdef int error
        wanted = JLOG_PAGE_BYTES + 2 * capacity
        if size < <int64_t> wanted:
            zeros = bytes(wanted - size)
            error = jlog_allocate(self.fd, size, wanted, wanted, &reached)
            if error == 0:
                error = jlog_write_at(self.fd, <const uint8_t *> zeros, len(zeros), size)
            check_error(error, self.path)

    def map(self) -> None:
        """Maps the whole file for writing, and locks it into memory if the process's limit allows that."""
        cdef int64_t size = jlog_file_bytes(self.fd)
        if size < JLOG_PAGE_BYTES + 2 * JLOG_CAPACITY_MIN or size > JLOG_PAGE_BYTES + 2 * <int64_t> JLOG_CAPACITY_MAX:
            raise CorruptJournal(self.path, max(size, 0), "the pre-commit buffer is shorter than it states")
        if self.page != NULL:
            munmap(self.page, self.mapped_bytes)
            self.page = NULL
        page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, self.fd, 0)
        if page == MAP_FAILED:
            check_error(errno, self.path)
        self.page = <jlog_page *> page
        self.mapped_bytes = size
        mlock(page, size)

    cdef int identify(self, const jlog_page *page) noexcept nogil:
        """Returns PAGE_VALID if this page was created in this boot, for this journal and in this very file, and is not being
        recovered. Returns PAGE_OF_ANOTHER_BOOT if only its boot id is not known to be of this boot."""
        if memcmp(page.magic, JLOG_PAGE_MAGIC, 8) != 0 or page.layout != JLOG_PAGE_LAYOUT:
            return PAGE_INVALID
        if page.status != JLOG_PAGE_READY or memcmp(page.uuid, self.uuid, 16) != 0:
            return PAGE_INVALID
        if page.device != self.file.device or page.inode != self.file.inode:
            return PAGE_INVALID
        if memcmp(page.boot_id, _boot_id, 16) == 0 or memcmp(page.boot_id, self.believed_boot, 16) == 0:
            return PAGE_VALID
        return PAGE_OF_ANOTHER_BOOT

    def is_written_to(self) -> bool:
        """Returns whether a writing process lives. If so, the page's boot id is trusted from now on, whatever it is."""
        try:
            lock_file = LockFile(file_in(directory_of(self.path), "lock"), writable=False)
        except FileNotFoundError:
            return False  # no lock proves that a writer lives
        try:
            if not lock_file.is_held(*OWNERS):
                return False
        finally:
            lock_file.close()
        self.believe_boot()
        return True

    cdef int believe_boot(self) except -1:
        """Trusts the page's boot id from now on. The caller has seen that a writer holds its writer slot, so the page is of
        this boot."""
        cdef bytes found = read_whole(self.fd, 16, JLOG_BOOT_ID_OFFSET)
        if len(found) == 16:
            memcpy(self.believed_boot, <const uint8_t *> found, 16)
        return 0

    cdef int identify_beside_writers(self) except -1:
        """Returns what identify() says of the mapped page while a writing process is known to hold its writer slot."""
        self.believe_boot()
        return self.identify(self.page)

    cdef void imprint(self) noexcept nogil:
        """Writes the fields that identify() checks into the mapped page, except the status."""
        memcpy(self.page.magic, JLOG_PAGE_MAGIC, 8)
        self.page.layout = JLOG_PAGE_LAYOUT
        memcpy(self.page.uuid, self.uuid, 16)
        memcpy(self.page.boot_id, _boot_id, 16)
        self.page.device = self.file.device
        self.page.inode = self.file.inode
        self.page.capacity = self.room()

    cdef uint64_t room(self) noexcept nogil:
        """Returns how many bytes the file has for each of the two bodies."""
        return max(jlog_file_bytes(self.fd) - <int64_t> JLOG_PAGE_BYTES, 0) // 2

    cdef int snapshot(self, Snapshot *found, const jlog_slot *known) noexcept nogil:
        """Reads the slots of the open and the immutable block as they stood at one moment. Returns what identify() says of the
        page, or -errno. `known` is the open slot as it was found before, or NULL."""
        cdef jlog_page page
        cdef jlog_slot *slot
        cdef jlog_slot *before
        cdef uint64_t generation
        cdef int64_t got
        cdef int status, _turn
        cdef bint again = False
        for _turn in range(TEARS_MAX):
            got = jlog_read_at(self.fd, &page, JLOG_SNAPSHOT_BYTES, 0)
            if got < 0:
                return <int> got
            status = self.identify(&page) if got == <int64_t> JLOG_SNAPSHOT_BYTES else PAGE_INVALID
            if status != PAGE_VALID:
                return status
            JLOG_FAILPOINT(b"page.read")
            generation = page.generation
            slot, before = &page.slots[generation & 1], &page.slots[(generation - 1) & 1]
            # During the read a writer may fill the slot for the block after the next, its publish word first. It has not done
            # so if the generation is unchanged after the read, or if the whole slot is as before. A block is marked unwritten
            # before the next one is open, and its slot stays as long as this intent does: so the intent is read
            # after the generation and the slot.
            if (known == NULL or slot.generation != known.generation or slot.publish_word != known.publish_word
                    or page.unwritten == generation - 1):
                if jlog_read_at(self.fd, &page.unwritten, JLOG_INTENTS_BYTES, JLOG_UNWRITTEN_OFFSET) != JLOG_INTENTS_BYTES:
                    return PAGE_INVALID
                if page.generation != generation:
                    jlog_pause()
                    continue
            found.has_immutable = page.unwritten == generation - 1
            if not is_slot_of(slot, generation, self.uuid) or (found.has_immutable and not is_before(before, slot, self.uuid)):
                if again:
                    return PAGE_INVALID  # a rotation cannot have torn it twice
                again = True
                continue
            found.slot, found.immutable = slot[0], before[0]
            found.capacity = page.capacity if page.capacity <= JLOG_CAPACITY_MAX else self.room()
            found.durable_end = page.durable_end
            found.new_inode = page.new_inode if page.incarnation & 1 and page.new_end <= JLOG_NUMBER_MAX else 0
            found.new_end = page.new_end
            return PAGE_VALID
        return PAGE_INVALID

    cdef uint64_t generation(self) noexcept nogil:
        """Returns the page's present generation; 0 if it cannot be read."""
        cdef uint64_t value = 0
        if jlog_read_at(self.fd, &value, sizeof(value), JLOG_GENERATION_OFFSET) != sizeof(value):
            return 0
        return value

    cdef int read_body(self, const jlog_slot *slot, uint64_t capacity, uint8_t *target, uint32_t start,
                       uint32_t end) noexcept nogil:
        """Reads body[start, end) to target + start. Returns 1 if it is that block's, 0 if the body may have been used for
        another block meanwhile, or -errno: ENODATA if the file is cut off. The caller checks the CRC."""
        cdef uint64_t offset = jlog_body_offset(slot.generation, capacity) + start
        cdef int64_t got = jlog_read_at(self.fd, target + start, end - start, offset)
        if got < 0:
            return <int> got
        if self.generation() - slot.generation > 1:
            return 0
        return 1 if got == end - start else -ENODATA

    cdef bytes stored_body(self, const jlog_slot *slot, uint64_t capacity):
        """Returns the whole body that the slot's publish word vouches for, while no process writes; None if the file does not
        hold it. No checksum covers the page's capacity, so the body is also looked for where the file's size puts it."""
        cdef bytes body
        for apart in (capacity, self.room()):
            offset = jlog_body_offset(slot.generation, apart)
            if offset < JLOG_PAGE_BYTES + 2 * self.room():
                body = read_whole(self.fd, jlog_word_used(slot.publish_word), offset)
                if jlog_is_whole_body(slot, body, len(body)):
                    return body
        return None


cdef bint is_before(const jlog_slot *slot, const jlog_slot *following, const uint8_t *uuid) noexcept nogil:
    """Returns whether the slot is whole and its block is the immutable one: the open block follows it directly."""
    cdef uint32_t used = jlog_word_used(slot.publish_word)
    return (is_slot_of(slot, following.generation - 1, uuid) and used > JLOG_BASE_BYTES and slot.segment == following.segment
            and slot.offset + sizeof(jlog_block_header) + used - JLOG_BASE_BYTES == following.offset)


cdef bint is_slot_of(const jlog_slot *slot, uint64_t generation, const uint8_t *uuid) noexcept nogil:
    return slot.generation == generation and jlog_slot_valid(slot, uuid)


def read_counters(path, bytes uuid not None) -> dict:
    """Returns the counters of all processes since the control page was created, by the names in struct jlog_counters. All are 0
    if there is no page of this boot. Needs no write access."""
    cdef jlog_page page
    _read_page(path, uuid, &page)
    return page.counters


CLOCK_AHEAD_US = JLOG_CLOCK_AHEAD_US  # a floor that is further ahead of the clock is told, with this advice:
CLOCK_ADVICE = ("the clock was or is wrong, and later records keep that time; once the clock is right, roll the journal "
                "(`jlogtool roll`): the next segment goes on with the clock's time")


def read_floor_us(path, bytes uuid not None) -> int:
    """Returns the monotonic floor; 0 if there is no page of this boot. Needs no write access."""
    cdef jlog_page page
    _read_page(path, uuid, &page)
    return page.floor_us


cdef int _read_page(path, bytes uuid, jlog_page *page) except -1:
    """Copies the control page. All of it is 0 if there is none of this boot."""
    cdef Precommit precommit
    cdef int64_t got
    cdef int status = PAGE_INVALID
    memset(page, 0, sizeof(page[0]))
    try:
        precommit = Precommit(path, uuid, writable=False)
    except FileNotFoundError:
        return 0
    got = check_result(jlog_read_at(precommit.fd, page, sizeof(page[0]), 0), precommit.path)
    if got == <int64_t> sizeof(page[0]):
        status = precommit.identify(page)
    if status != PAGE_VALID and not (status == PAGE_OF_ANOTHER_BOOT and precommit.is_written_to()):
        memset(page, 0, sizeof(page[0]))
    return 0
