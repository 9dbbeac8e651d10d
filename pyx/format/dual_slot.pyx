"""Dual-slot records: small durable facts, each with a generation and a CRC32C. A file holds two copies of its record, and the
newer valid one counts.

Every write stores both copies. They lie in different pages, so that damage to one leaves the other. `bounds` holds facts about
the whole journal. A position file holds the position of a subscriber or a checkpoint.
"""

import os
from collections import namedtuple
from functools import partial

from libc.errno cimport EAGAIN, EBADF, EBADMSG, ENOENT, EPROTO, ESPIPE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from posix.fcntl cimport F_WRLCK, O_NOCTTY, O_NONBLOCK

from jlog._core.system.file cimport (
    OpenFile, check_error, check_result, close_descriptor, close_file, is_file, jlog_birth_us, jlog_changed_us, jlog_read_at,
    jlog_sync_data, jlog_write_at, open_at)
from jlog._core.format.format cimport (
    JLOG_BOUNDS_MAGIC, JLOG_DUAL_SLOT_STRIDE, JLOG_DUAL_SLOT_UUID_OFFSET, JLOG_FORMAT_VERSION, JLOG_NONE, JLOG_POSITION_MAGIC,
    JLOG_SEGMENT_MAGIC, jlog_bounds, jlog_bounds_valid, jlog_position, jlog_position_valid, jlog_segment_header,
    jlog_structure_crc)
from jlog._core.system.lock cimport BOUNDS_BYTE, Deadline, Mutex
from jlog._core.system.clock cimport CLOCK_REALTIME, jlog_clock_us

from jlog._core.system.lock import NEVER
from jlog.errors import CorruptJournal, JournalClosed, JournalError, UnsupportedFormat
from jlog.system.files import descriptors_closed, make_file, open_error, open_file, read_whole

Bounds = namedtuple("Bounds", "first_sequence mark_segment mark_offset mark_sequence reservation_limit closed")
StoredPosition = namedtuple("StoredPosition", "sequence epoch moved_us")
SIGNATURE_BYTES = max(sizeof(jlog_segment_header), sizeof(jlog_position), sizeof(jlog_bounds))
Signature = namedtuple("Signature", "uuid epoch first_sequence")

# The beginning of every dual-slot record. A segment's header begins so up to the CRC.
cdef struct DualSlotHeader:
    uint8_t magic[8]
    uint32_t version
    uint32_t crc
    uint64_t generation
    uint8_t uuid[16]


cdef bint has_right_crc(const uint8_t *copy, size_t size, const char *magic) noexcept nogil:
    cdef DualSlotHeader *head = <DualSlotHeader *> copy
    return memcmp(head.magic, magic, 8) == 0 and head.crc == jlog_structure_crc(copy, size)


cdef bint makes_sense(const uint8_t *copy, size_t size) noexcept nogil:
    """Returns whether the copy's numbers can be right. It knows this version alone: in a newer one they may mean something
    else."""
    if size == sizeof(jlog_bounds):
        return jlog_bounds_valid(<const jlog_bounds *> copy)
    return jlog_position_valid(<const jlog_position *> copy)


cdef int find_newer_copy(int fd, void *target, size_t size, const char *magic, const uint8_t *uuid) noexcept nogil:
    """Copies the newer valid copy to `target`. Returns 1 or 2 for the copy that it was, 0 if neither is valid, -EPROTO if one
    is of a later version, which `target` then holds, or the -errno of a failed read."""
    cdef uint8_t copy[256]
    cdef DualSlotHeader *head = <DualSlotHeader *> copy
    cdef int found = 0, index
    cdef int64_t got
    for index in range(2):
        got = jlog_read_at(fd, copy, size, index * JLOG_DUAL_SLOT_STRIDE)
        if got < 0:
            return <int> got
        if got != <int64_t> size or not has_right_crc(copy, size, magic):
            continue
        if head.version > JLOG_FORMAT_VERSION:
            memcpy(target, copy, size)
            return -EPROTO
        if memcmp(head.uuid, uuid, 16) != 0 or not makes_sense(copy, size):
            continue
        if not found or head.generation > (<DualSlotHeader *> target).generation:
            memcpy(target, copy, size)
            found = index + 1
    return found


cdef int read_dual_slot(int fd, void *target, size_t size, const char *magic, const uint8_t *uuid, path) except -1:
    """Copies the newer valid copy to `target`. Returns 1 or 2 for the copy that it was, 0 if neither is valid. Raises
    UnsupportedFormat for a later version."""
    cdef int found = find_newer_copy(fd, target, size, magic, uuid)
    if found == -EPROTO:
        raise later_version(path, (<DualSlotHeader *> target).version)
    return <int> check_result(found, path)


cdef later_version(path, uint32_t version):
    return UnsupportedFormat(f"{path} has format version {version}, this jlog reads up to {JLOG_FORMAT_VERSION}: upgrade "
                             "pyjlog")


def both_copies(int fd, bytes uuid not None, *, bint bounds=False) -> list:
    """Returns the bytes of each copy of a position, or of `bounds`; None for a copy that is not valid."""
    cdef size_t size = sizeof(jlog_bounds) if bounds else sizeof(jlog_position)
    cdef const char *magic = JLOG_BOUNDS_MAGIC if bounds else JLOG_POSITION_MAGIC
    found = []
    for offset in (0, JLOG_DUAL_SLOT_STRIDE):
        copy = read_whole(fd, size, offset)
        valid = (<size_t> len(copy) == size and has_right_crc(copy, size, magic)
                 and copy[JLOG_DUAL_SLOT_UUID_OFFSET:][:16] == uuid and makes_sense(copy, size))
        found.append(copy if valid else None)
    return found


cdef void complete_head(void *source, size_t size, const char *magic, const uint8_t *uuid) noexcept nogil:
    """Completes the head of `source` for the next generation."""
    cdef DualSlotHeader *head = <DualSlotHeader *> source
    memcpy(head.magic, magic, 8)
    memcpy(head.uuid, uuid, 16)
    head.version = JLOG_FORMAT_VERSION
    head.generation += 1
    head.crc = jlog_structure_crc(source, size)


cdef int put_dual_slot(int fd, void *source, size_t size, const char *magic, const uint8_t *uuid, int found) noexcept nogil:
    """Completes the head of `source`, and writes both copies. Returns 0 or errno. A power loss leaves each of them old or new.
    The copy that was found is written last: it still counts if the other one is cut short."""
    cdef int error = 0, turn
    complete_head(source, size, magic, uuid)
    for turn in range(2):
        if error == 0:
            error = jlog_write_at(fd, source, size, ((found + turn) & 1) * JLOG_DUAL_SLOT_STRIDE)
    return error


cdef int write_dual_slot(int fd, void *source, size_t size, const char *magic, const uint8_t *uuid, path,
                         int found) except -1:
    check_sense(source, size, path)
    return check_error(put_dual_slot(fd, source, size, magic, uuid, found), path)


cdef int check_sense(const void *source, size_t size, path) except -1:
    if not makes_sense(<const uint8_t *> source, size):
        raise JournalError(f"{path}: the journal's sequences are used up, or another program has damaged the numbers that the "
                           "journal's writers share; `jlogtool verify` shows which")
    return 0


cdef class BoundsFile:
    """The file `bounds`: the sequence of the oldest retained record, the synced mark, the reservation and the closed end."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, path not None, bytes uuid not None, LockFile lock_file, *, bint writable=True):
        self.path = path
        self.lock_file = lock_file
        self.mutex = Mutex(str(path))
        memcpy(self.uuid, <const uint8_t *> uuid, 16)
        self.fd = (<OpenFile> open_file(path, os.O_RDWR if writable else os.O_RDONLY)).detach(&self.file)

    def __dealloc__(self):
        close_file(self.fd, &self.file)

    @staticmethod
    def create(path not None, bytes uuid not None, uint64_t reservation_limit, closed, *, uint64_t first_sequence=0,
               mark=(0, 0, 0), temporary=None, bint sync=True):
        """Creates and syncs the bounds of a new journal, in place of any that are there. Their entry in the directory is not
        synced yet. `temporary`: a name in the same directory, which the file has until it is whole. `sync`: False syncs
        nothing."""
        cdef jlog_bounds bounds
        memset(&bounds, 0, sizeof(bounds))
        bounds.reservation_limit = reservation_limit
        bounds.first_sequence = first_sequence
        bounds.mark_segment, bounds.mark_offset, bounds.mark_sequence = mark
        bounds.closed_segment, bounds.closed_offset, bounds.closed_sequence = closed
        make_file(path, partial(write_new_bounds, (<uint8_t *> &bounds)[:sizeof(bounds)], uuid, path), temporary, sync=sync)

    def close(self):
        close_file(self.fd, &self.file)
        self.fd, self.path = -1, str(self.path)  # no descriptor of the directory stays open for it

    cdef int check_own(self) except -1:
        if not is_file(self.fd, &self.file):
            raise descriptors_closed(self.path)
        return 0

    cdef int read_into(self, jlog_bounds *bounds) except -1:
        return read_dual_slot(self.fd, bounds, sizeof(bounds[0]), JLOG_BOUNDS_MAGIC, self.uuid, self.path)

    def read(self):
        """Reads the file. Raises CorruptJournal if neither copy is valid: then only `repair` goes on."""
        cdef jlog_bounds bounds
        if not self.read_into(&bounds):
            raise CorruptJournal(self.path, 0, "neither copy is valid, so that numbers might be given out twice; "
                                               "`jlogtool repair` goes on under a new epoch")
        closed = None
        if bounds.closed_sequence != JLOG_NONE:
            closed = (bounds.closed_segment, bounds.closed_offset, bounds.closed_sequence)
        return Bounds(bounds.first_sequence, bounds.mark_segment, bounds.mark_offset, bounds.mark_sequence,
                      bounds.reservation_limit, closed)

    def update(self, *, first_sequence=0, mark=None, reservation_limit=0, closed=..., bint durable=False,
               Deadline deadline not None=NEVER):
        """Advances each number that is given; a lower one changes nothing. Sets `closed`; None removes it. Returns the result.
        Raises JournalLocked, and changes nothing, if another process writes the file until the deadline.

        durable: the change survives a power loss once this has returned; otherwise it may be lost.
        """
        cdef jlog_bounds bounds
        cdef int error, found
        held = self.lock_file.held(BOUNDS_BYTE, deadline=deadline, what=f"was writing {self.path}", mutex=self.mutex)
        held.take()
        try:
            self.check_own()
            found = self.read_into(&bounds)
            if not found:
                self.read()
            bounds.first_sequence = max(bounds.first_sequence, first_sequence)
            bounds.reservation_limit = max(bounds.reservation_limit, reservation_limit)
            if mark is not None:
                move_mark_forward(&bounds, mark[0], mark[1], mark[2])
            if closed is None:
                bounds.closed_segment = bounds.closed_offset = bounds.closed_sequence = JLOG_NONE
            elif closed is not ...:
                bounds.closed_segment, bounds.closed_offset, bounds.closed_sequence = closed
            write_dual_slot(self.fd, &bounds, sizeof(bounds), JLOG_BOUNDS_MAGIC, self.uuid, self.path, found)
        finally:
            held.give()
        if durable:
            with nogil:
                error = jlog_sync_data(self.fd)
            check_error(error, self.path)
        return self.read()

    cdef int advance_synced_mark(self, const SyncedMark *mark) noexcept nogil:
        """Advances the mark after a sync, while the caller has the mutex. Unlike update(mark=…) it makes few system calls, and
        does nothing while another process writes the file, since the next sync advances the mark too. Returns 0 or errno;
        EBADMSG if no copy is valid."""
        cdef jlog_bounds bounds
        cdef int found, error = self.lock_file.try_lock(F_WRLCK, BOUNDS_BYTE, 1)
        if error == 0 and not is_file(self.fd, &self.file):
            self.lock_file.unlock(BOUNDS_BYTE, 1)
            return EBADF
        if error != 0:
            return 0 if error == EAGAIN else error
        found = find_newer_copy(self.fd, &bounds, sizeof(bounds), JLOG_BOUNDS_MAGIC, self.uuid)
        if found > 0:
            move_mark_forward(&bounds, mark.segment, mark.offset, mark.sequence)
            error = put_dual_slot(self.fd, &bounds, sizeof(bounds), JLOG_BOUNDS_MAGIC, self.uuid, found)
        else:
            error = EBADMSG if found == 0 else -found
        self.lock_file.unlock(BOUNDS_BYTE, 1)
        return error


def write_new_bounds(bytes image not None, bytes uuid not None, path not None, int fd) -> None:
    """Writes these bounds into a new file."""
    cdef jlog_bounds bounds
    memcpy(&bounds, <const uint8_t *> image, sizeof(bounds))
    write_dual_slot(fd, &bounds, sizeof(bounds), JLOG_BOUNDS_MAGIC, uuid, path, 0)


cdef void move_mark_forward(jlog_bounds *bounds, uint64_t segment, uint64_t offset, uint64_t sequence) noexcept nogil:
    """Moves the mark forward, never back. Of two marks with one sequence that in the later segment counts, because retention
    may have removed the earlier one."""
    if sequence > bounds.mark_sequence or (sequence == bounds.mark_sequence and segment >= bounds.mark_segment):
        bounds.mark_segment, bounds.mark_offset, bounds.mark_sequence = segment, offset, sequence


def birth_us(int fd) -> int:
    """Returns when the file was created, in microseconds since 1970; 0 if the file system does not keep that."""
    return jlog_birth_us(fd)


cdef int descriptor_of(file, path) except -1:
    """Returns the descriptor of a LockFile, or `file` itself if it is one. The former is valid until the GIL is released, since
    another thread may close the LockFile."""
    if not isinstance(file, LockFile):
        return file
    if not (<LockFile> file).is_open():
        raise JournalClosed(f"{path}: the reader that had it open is closed; open a new one")
    (<LockFile> file).check_own()
    return (<LockFile> file).fd


def change_us(file, path not None) -> int:
    """Returns when the file's content was changed last, in microseconds since 1970, as the kernel's coarse clock tells it; -1
    where the file has no name any more."""
    return jlog_changed_us(descriptor_of(file, path))


cdef class HeldPosition:
    """The position of a subscriber whose name is held. Nobody else writes its file then, so that a write reads nothing first,
    and is one system call for both copies. The kernel cuts it short between two pages at most: one copy is always whole."""

    def __init__(self, LockFile file not None, bytes uuid not None, uint64_t epoch, path not None):
        memset(self.image, 0, sizeof(self.image))
        self.file, self.path = file, path
        read_valid_position(descriptor_of(file, path), &self.position, uuid, path)
        memcpy(self.position.uuid, <const uint8_t *> uuid, 16)
        self.position.epoch = epoch

    def write(self, uint64_t sequence) -> None:
        """Moves the position. It survives the death of the process at once, and a power loss once the file is synced."""
        cdef int fd = descriptor_of(self.file, self.path)
        self.position.sequence = sequence
        self.position.moved_us = jlog_clock_us(CLOCK_REALTIME)
        check_sense(&self.position, sizeof(self.position), self.path)
        complete_head(&self.position, sizeof(self.position), JLOG_POSITION_MAGIC, self.position.uuid)
        memcpy(self.image, &self.position, sizeof(self.position))
        memcpy(&self.image[JLOG_DUAL_SLOT_STRIDE], &self.position, sizeof(self.position))
        check_error(jlog_write_at(fd, self.image, sizeof(self.image), 0), self.path)


def read_position(file, bytes uuid not None, path not None):
    """Returns the position that the file holds. Raises CorruptJournal if both copies are damaged; the position then holds every
    record back."""
    cdef jlog_position position
    read_valid_position(descriptor_of(file, path), &position, uuid, path)
    return StoredPosition(position.sequence, position.epoch, position.moved_us)


cdef int read_valid_position(int fd, jlog_position *position, bytes uuid, path) except -1:
    if not read_dual_slot(fd, position, sizeof(position[0]), JLOG_POSITION_MAGIC, uuid, path):
        raise CorruptJournal(path, 0, "neither copy of the position is valid; every record is kept until you set it again, "
                                      "with `jlogtool subscriber set` or `jlogtool checkpoint set`")
    return 0


def read_positions(int directory, path not None, list names not None, bytes uuid not None) -> list:
    """Reads the position files with these names in an open directory. Returns each name with its StoredPosition, or with None
    where the file cannot be read as one, and leaves out those that are missing. The GIL is free during the system calls, since
    there may be thousands."""
    cdef jlog_position position
    cdef const uint8_t *journal = uuid
    cdef const char *name
    cdef int got
    found = []
    for text in names:
        encoded = os.fsencode(text)
        name = encoded
        with nogil:
            got = find_position(directory, name, &position, journal)
        if got == -ENOENT:
            continue
        if got == -EPROTO:
            raise later_version(os.path.join(path, text), position.version)
        if got < 0 and got != -ESPIPE:
            error = open_error(-got, os.path.join(path, text))
            if not isinstance(error, CorruptJournal):
                raise error
        found.append((text, StoredPosition(position.sequence, position.epoch, position.moved_us) if got > 0 else None))
    return found


cdef int find_position(int directory, const char *name, jlog_position *position, const uint8_t *uuid) noexcept nogil:
    """Returns what find_newer_copy() says of this file."""
    cdef int found, fd = open_at(directory, name, O_NONBLOCK | O_NOCTTY, 0)
    if fd < 0:
        return fd
    found = find_newer_copy(fd, position, sizeof(position[0]), JLOG_POSITION_MAGIC, uuid)
    close_descriptor(fd)
    return found


def write_position(file, bytes uuid not None, uint64_t epoch, uint64_t sequence, path not None):
    """Moves the position. It survives the death of the process at once, and a power loss once the file is synced."""
    cdef jlog_position position
    cdef int fd = descriptor_of(file, path)
    cdef int found = read_dual_slot(fd, &position, sizeof(position), JLOG_POSITION_MAGIC, uuid, path)
    if not found:
        memset(&position, 0, sizeof(position))
    position.epoch = epoch
    position.sequence = sequence
    position.moved_us = jlog_clock_us(CLOCK_REALTIME)
    write_dual_slot(fd, &position, sizeof(position), JLOG_POSITION_MAGIC, uuid, path, found)


def whose(bytes image not None):
    """Returns the Signature of a file that begins with these bytes, which says to what journal the file belongs. Returns None
    if they are damaged, or are the beginning of neither a segment, nor a position, nor `bounds`. A field that the file does not
    state is None."""
    cdef const uint8_t *at = image
    cdef size_t left = len(image)
    cdef jlog_segment_header *segment = <jlog_segment_header *> at
    cdef jlog_position *position = <jlog_position *> at
    cdef jlog_bounds *bounds = <jlog_bounds *> at
    if left >= sizeof(jlog_segment_header) and has_right_crc(at, sizeof(jlog_segment_header), JLOG_SEGMENT_MAGIC):
        return Signature(segment.uuid[:16], segment.epoch, segment.first_sequence)
    if left >= sizeof(jlog_position) and has_right_crc(at, sizeof(jlog_position), JLOG_POSITION_MAGIC):
        return Signature(position.uuid[:16], position.epoch, None)
    if left >= sizeof(jlog_bounds) and has_right_crc(at, sizeof(jlog_bounds), JLOG_BOUNDS_MAGIC):
        return Signature(bounds.uuid[:16], None, None)
    return None
