"""One segment file: its header, and its blocks one after the other, or read ahead a few at once."""

import os
import re
from collections import namedtuple

from libc.errno cimport ENXIO
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove, memset

from jlog._core.system.file cimport OpenFile, check_error, check_result, close_file, jlog_file_bytes, jlog_read_at
from jlog._core.format.format cimport (
    JLOG_BLOCK_HAS_STATE, JLOG_BLOCK_MAGIC, JLOG_CODEC_LZ4, JLOG_KIND_STATE, JLOG_NONE, JLOG_NUMBER_MAX, JLOG_SEGMENT_MAGIC,
    JLOG_SEGMENT_VERSION, jlog_block_header, jlog_block_header_valid, jlog_crc32c, jlog_decode_record, jlog_is_state,
    jlog_record, jlog_segment_header, jlog_segment_header_valid, jlog_structure_crc, jlog_walk, jlog_walk_records)
from jlog._core.segments.walk cimport (
    JLOG_BLOCK_BAD_BODY, JLOG_BLOCK_BAD_HEADER, JLOG_BLOCK_NONE, JLOG_BLOCK_VALID, JLOG_LATER, jlog_begin_walk, jlog_block_walk,
    jlog_next_block, jlog_read_block_header)
from jlog._core.system.clock cimport CLOCK_REALTIME, jlog_clock_us

from jlog._core.format.constants import BLOCK_HEADER_BYTES, SEGMENT_HEADER_BYTES
from jlog._core.format.lz4 import decompress
from jlog.errors import CorruptJournal, UnsupportedFormat
from jlog.system.files import file_in, open_segment, read_whole, regular_files

cdef enum:
    WINDOW_BYTES = 264 << 10  # two blocks of the default buffer and a little more


class Block(namedtuple(
    "Block",
    "offset kind codec has_state records stored_bytes raw_bytes first_sequence base_time_us max_timestamp_us clock_us "
    "durable_end raw_crc",
)):
    """The header of a block, and the offset where the block begins."""

    __slots__ = ()

    @property
    def end(self) -> int:
        """The offset after the block."""
        return self.offset + BLOCK_HEADER_BYTES + self.stored_bytes

    @property
    def end_sequence(self) -> int:
        """The sequence that follows the block's last record."""
        return self.first_sequence + self.records


KINDS = {1: "records", 2: "state"}
CODECS = {0: "none", 1: "lz4"}


def segment_name(uint64_t first_sequence) -> str:
    return f"{first_sequence:020d}.seg"


def index_name(uint64_t first_sequence) -> str:
    return f"{first_sequence:020d}.idx"


_NAME = re.compile(r"([0-9]{20})\.(seg|idx)")


def named(str name not None, str kind not None):
    """Returns the first sequence that stands in the name of a segment ("seg") or an index ("idx"); None for any other name."""
    found = _NAME.fullmatch(name)
    if found is None or found[2] != kind or int(found[1]) > JLOG_NUMBER_MAX:
        return None
    return int(found[1])


def list_segments(path) -> list:
    """Returns the first sequences of the segment files in a journal's directory, ascending. Only regular files count: a pipe, a
    directory or a link to nothing is not a segment."""
    found = [sequence for name in regular_files(path) if (sequence := named(name, "seg")) is not None]
    found.sort()
    return found


cdef const char *block_problem(int status) noexcept nogil:
    if status == JLOG_BLOCK_NONE:
        return b"there is no block here"
    if status == JLOG_BLOCK_BAD_HEADER:
        return b"the block's header fails its checksum"
    if status == JLOG_BLOCK_BAD_BODY:
        return b"the block's body fails its checksum"
    return b"the block cannot be read"


cdef later_block(path, uint64_t offset):
    return UnsupportedFormat(f"{path}: the block at offset {offset} has a form that a later version of pyjlog has written: "
                             "upgrade pyjlog")


cdef int check_walk(const jlog_block_walk *walk, path) except -1:
    """Raises the error that has ended the walk, if one has."""
    if walk.error == JLOG_LATER:
        raise later_block(path, walk.offset)
    return check_error(walk.error, path)


cdef bytes body_of(path, uint64_t offset, const jlog_block_header *header, const uint8_t *stored):
    """Returns the records of the block at this offset, decompressed. Raises CorruptJournal unless they are what was stored."""
    cdef bytes raw = stored[:header.stored_bytes]
    if header.codec == JLOG_CODEC_LZ4:
        try:
            raw = decompress(raw, header.raw_bytes)
        except ValueError as error:
            raise CorruptJournal(path, offset, str(error)) from None
    if jlog_crc32c(0, <const uint8_t *> raw, len(raw)) != header.raw_crc:
        raise CorruptJournal(path, offset, "the block's body fails its checksum once decompressed")
    return raw


cdef int fill_segment_header(jlog_segment_header *header, const uint8_t *uuid, uint64_t epoch, uint64_t first_sequence,
                             uint64_t previous_segment, uint64_t previous_end_offset,
                             uint64_t previous_end_sequence, uint64_t replacements) noexcept nogil:
    memset(header, 0, sizeof(header[0]))
    memcpy(header.magic, JLOG_SEGMENT_MAGIC, 8)
    header.version = JLOG_SEGMENT_VERSION
    memcpy(header.uuid, uuid, 16)
    header.epoch = epoch
    header.first_sequence = first_sequence
    header.previous_segment = previous_segment
    header.previous_end_offset = previous_end_offset
    header.previous_end_sequence = previous_end_sequence
    header.created_us = jlog_clock_us(CLOCK_REALTIME)
    header.replacements = replacements
    header.crc = jlog_structure_crc(header, sizeof(header[0]))
    return 0


cdef class SegmentFile:
    """Reads a segment file. Raises CorruptJournal if the header is damaged, or does not belong to this segment of this
    journal."""

    def __cinit__(self):
        self.fd = -1

    def __init__(self, directory, uint64_t segment, bytes uuid not None, *, bint check_header=True):
        """check_header: False reads a damaged segment too, to find the blocks that are left."""
        cdef jlog_segment_header header
        cdef int64_t got
        self.path = file_in(directory, segment_name(segment))
        self.segment = segment
        memcpy(self.uuid, <const uint8_t *> uuid, 16)
        self.fd = (<OpenFile> open_segment(self.path)).detach(&self.file)
        if not check_header:
            self.previous_segment = JLOG_NONE
            return
        got = check_result(jlog_read_at(self.fd, &header, sizeof(header), 0), self.path)
        if got != sizeof(header) or memcmp(header.magic, JLOG_SEGMENT_MAGIC, 8) != 0:
            raise CorruptJournal(self.path, 0, "the segment's header is missing")
        if header.crc != jlog_structure_crc(&header, sizeof(header)):
            raise CorruptJournal(self.path, 0, "the segment's header fails its checksum")
        if header.version > JLOG_SEGMENT_VERSION:
            raise UnsupportedFormat(f"{self.path} has format version {header.version}, this jlog reads up to "
                                    f"{JLOG_SEGMENT_VERSION}: upgrade pyjlog")
        if memcmp(header.uuid, self.uuid, 16) != 0:
            raise CorruptJournal(self.path, 0, "the segment belongs to another journal")
        if header.first_sequence != segment:
            raise CorruptJournal(self.path, 0, f"the segment begins with sequence {header.first_sequence}, not with "
                                               "the one that names the file")
        if not jlog_segment_header_valid(&header):
            raise CorruptJournal(self.path, 0, "the segment's header states an impossible end of the previous segment")
        self.epoch = header.epoch
        self.previous_segment = header.previous_segment
        self.previous_end_offset = header.previous_end_offset
        self.previous_end_sequence = header.previous_end_sequence
        self.created_us = header.created_us
        self.replacements = header.replacements

    def __dealloc__(self):
        close_file(self.fd, &self.file)
        free(self.walk.body)

    def close(self):
        close_file(self.fd, &self.file)
        self.fd = -1

    def fileno(self) -> int:
        return self.fd

    @property
    def file_bytes(self) -> int:
        return jlog_file_bytes(self.fd)

    cdef int read_block(self, uint64_t offset, bint with_body) except? -100:
        """Reads the block at this offset into self.walk. Returns a JLOG_BLOCK_ status."""
        self.begin_walk(offset, JLOG_NONE, with_body)
        self.next_block_of_walk()
        return self.walk.status

    cdef void begin_walk(self, uint64_t offset, uint64_t end, bint with_body) noexcept:
        jlog_begin_walk(&self.walk, self.fd, self.uuid, self.segment, offset, end, with_body)

    cdef bint next_block_of_walk(self) except -1:
        """Steps to the next block. Returns False if there is none before the end of the walk; self.walk.status says why."""
        cdef bint found
        with nogil:
            found = jlog_next_block(&self.walk)
        check_walk(&self.walk, self.path)
        return found

    cdef object _block(self):
        """Returns the block that was read last, as a Block."""
        cdef jlog_block_header *h = &self.walk.header
        return Block(self.walk.offset, h.kind, h.codec, bool(h.flags & JLOG_BLOCK_HAS_STATE), h.record_count, h.stored_bytes,
                     h.raw_bytes, h.first_sequence, h.base_time_us, h.max_timestamp_us, h.clock_us, h.durable_end, h.raw_crc)

    def block_at(self, uint64_t offset, *, bint with_body=True):
        """Returns (Block, None) if a whole block begins at this offset. Otherwise returns (None, reason); the reason is None
        where no block was ever written."""
        cdef int status = self.read_block(offset, with_body)
        if status == JLOG_BLOCK_VALID:
            return self._block(), None
        return None, None if status == JLOG_BLOCK_NONE else block_problem(status).decode()

    def blocks(self, uint64_t offset=SEGMENT_HEADER_BYTES, *, uint64_t end=JLOG_NONE, bint with_body=False):
        """Yields the blocks from `offset` on, up to `end` or to the first place without a whole block.

        with_body: reads and checks the stored bodies too.
        """
        while True:
            self.begin_walk(offset, end, with_body)
            if not self.next_block_of_walk():
                return
            offset = self.walk.next
            yield self._block()

    def raw_body(self, uint64_t offset) -> bytes:
        """Returns the records of the block at this offset, decompressed and checked. Raises CorruptJournal if the block is not
        whole."""
        cdef int status = self.read_block(offset, True)
        if status != JLOG_BLOCK_VALID:
            raise CorruptJournal(self.path, offset, block_problem(status).decode())
        return body_of(self.path, offset, &self.walk.header, self.walk.body)

    def next_block(self, uint64_t offset, uint64_t end):
        """Returns the first whole block that begins at any byte from `offset` on; None without one. So it finds the block that
        follows damage."""
        cdef uint32_t value = JLOG_BLOCK_MAGIC
        cdef bytes magic = (<const uint8_t *> &value)[:4], window
        cdef uint64_t at = offset
        while at < end:
            at = next_data(self.fd, at)
            if at >= end:
                return None
            window = read_whole(self.fd, min(1 << 20, end - at), at)
            if not window:
                return None
            found = window.find(magic)
            while found >= 0:
                if self.read_block(at + found, True) == JLOG_BLOCK_VALID:
                    return self._block()
                found = window.find(magic, found + 1)
            if len(window) < len(magic):
                return None
            at += len(window) - len(magic) + 1
        return None

    def apply_state(self, block, dict state) -> dict:
        """Returns the state after this block. `state` is the state before it, and is not changed."""
        if block.kind == JLOG_KIND_STATE:
            state = {}
        if block.has_state:
            state = dict(state)
            try:
                change_state(self.raw_body(block.offset), block.base_time_us, state)
            except ValueError as error:
                raise CorruptJournal(self.path, block.offset, str(error)) from None
        return state

    def state_before(self, uint64_t end_offset) -> dict:
        """Returns the state at this offset, from all blocks of the segment before it."""
        return self.state_between(SEGMENT_HEADER_BYTES, end_offset, {})

    def state_between(self, uint64_t offset, uint64_t end_offset, dict state) -> dict:
        """Returns the state after the blocks from `offset` to `end_offset`. `state` is the state before them."""
        while True:
            self.begin_walk(offset, end_offset, False)
            with nogil:
                while jlog_next_block(&self.walk) and not self.walk.header.flags & JLOG_BLOCK_HAS_STATE:
                    pass
            if self.walk.status != JLOG_BLOCK_VALID:
                raise CorruptJournal(self.path, self.walk.offset, block_problem(self.walk.status).decode())
            if self.walk.offset >= end_offset:
                return state
            offset = self.walk.next
            state = self.apply_state(self._block(), state)


cdef class ReadAhead:
    """Holds the bytes of a segment that were read last. Each reader needs its own, because read() releases the GIL."""

    def __cinit__(self, size_t least=WINDOW_BYTES):
        self.least = least

    def __dealloc__(self):
        free(self.data)

    cdef void forget(self) noexcept:
        """Drops the bytes, so that the next block is read anew."""
        self.size = 0

    cdef const jlog_block_header *block(self, SegmentFile file, uint64_t offset, uint64_t open_offset,
                                        const char **problem) except? NULL:
        """Returns the header of the block at this offset, with the stored body after it. Returns NULL if no whole block stands
        there, and the reason in `problem`; the reason is NULL where no block was ever written. `open_offset`: where the open
        block begins; JLOG_NONE in a sealed segment."""
        cdef const jlog_block_header *header
        cdef uint64_t needed = sizeof(jlog_block_header), inside
        cdef int error = 0, status
        cdef bint fresh = False
        cdef jlog_block_header found
        problem[0] = NULL
        while True:
            inside = offset - self.offset
            if not self.holds(file, offset, needed):
                self.read(file, offset, open_offset, needed)
                inside = 0
            header = <const jlog_block_header *> (self.data + inside)
            if self.size < inside + sizeof(jlog_block_header) \
                    or not jlog_block_header_valid(header, file.uuid, file.segment, offset):
                if fresh:
                    break
                self.forget()  # it is read anew before it counts as damage
                fresh = True
                needed = sizeof(jlog_block_header)
                continue
            needed = sizeof(jlog_block_header) + header.stored_bytes
            if inside + needed <= self.size:
                return header
            if offset + needed > file.file_bytes:
                problem[0] = b"the file ends within the block"
                return NULL
        status = jlog_read_block_header(file.fd, file.uuid, file.segment, offset, &found, &error)
        if error == JLOG_LATER:
            raise later_block(file.path, offset)
        if status == JLOG_BLOCK_VALID:
            problem[0] = b"the block cannot be read as a whole"
        elif status < 0 and open_offset != JLOG_NONE:
            problem[0] = block_problem(status)
        return NULL

    cdef bint header(self, SegmentFile file, uint64_t offset, uint64_t open_offset, bint ahead,
                     jlog_block_header *found) except -1:
        """Copies the header of the block at this offset, without its body, and says whether it is whole. `ahead`: reads more
        than the header at once, as blocks are small here."""
        cdef const uint8_t *uuid = file.uuid
        cdef uint64_t inside
        cdef int error = 0, status
        if ahead and not self.holds(file, offset, sizeof(jlog_block_header)):
            self.read(file, offset, open_offset, sizeof(jlog_block_header))
        if self.holds(file, offset, sizeof(jlog_block_header)):
            inside = offset - self.offset
            memcpy(found, self.data + inside, sizeof(jlog_block_header))
            return jlog_block_header_valid(found, uuid, file.segment, offset)
        with nogil:
            status = jlog_read_block_header(file.fd, uuid, file.segment, offset, found, &error)
        return status == JLOG_BLOCK_VALID

    cdef bint holds(self, SegmentFile file, uint64_t offset, uint64_t size) noexcept:
        return self.segment == file.segment and self.offset <= offset and offset - self.offset + size <= self.size

    cdef int read(self, SegmentFile file, uint64_t offset, uint64_t open_offset, uint64_t needed) except -1:
        """Reads from this offset on. The bytes at the open block's place may still change, and are left out."""
        cdef uint64_t size = max(needed, self.least), kept = 0, room
        cdef int64_t got
        cdef uint8_t *larger
        if offset + size > open_offset:
            size = max(needed, open_offset - offset if open_offset > offset else 0)
        if self.segment == file.segment and self.offset <= offset < self.offset + self.size:
            kept = self.offset + self.size - offset  # closed blocks never change
        if size > self.room:
            room = max(size, 2 * self.room)  # not new memory for each block that is a little larger: it costs page faults
            larger = <uint8_t *> malloc(room)
            if larger == NULL:
                raise MemoryError
            if kept:
                memcpy(larger, self.data + (offset - self.offset), kept)
            free(self.data)
            self.data = larger
            self.room = room
        elif kept:
            memmove(self.data, self.data + (offset - self.offset), kept)
        self.segment, self.offset, self.size = file.segment, offset, kept
        if kept < size:
            with nogil:
                got = jlog_read_at(file.fd, self.data + kept, size - kept, offset + kept)
            self.size = kept + check_result(got, file.path)
        return 0


def next_data(int fd, uint64_t offset) -> int:
    """Returns the first offset from this one on that is not in a hole of the file; the file's size if there is none. A hole has
    no blocks, and skipping it saves time: a damaged file may have a huge one."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError as error:
        return max(offset, <uint64_t> jlog_file_bytes(fd)) if error.errno == ENXIO else offset


def end_of_content(int fd, start, end) -> int:
    """Returns where the zeros begin that fill the rest of the bytes from `start` to `end`; `start` if there are only zeros."""
    found, at = [], next_data(fd, start)
    while at < end:
        try:
            hole = min(os.lseek(fd, at, os.SEEK_HOLE), end)
        except OSError:
            hole = end
        found.append((at, hole))
        at = next_data(fd, hole)
    for first, last in reversed(found):
        while last > first:
            begin = max(first, last - (1 << 20))
            piece = read_whole(fd, last - begin, begin).rstrip(b"\0")
            if piece:
                return begin + len(piece)
            last = begin
    return start


def change_state(bytes raw not None, int64_t base_time_us, dict state) -> None:
    """Applies the state records of a body to `state`."""
    cdef jlog_record record
    cdef const uint8_t *at = raw
    cdef size_t left = len(raw), size
    while left:
        size = jlog_decode_record(at, left, base_time_us, &record)
        if size == 0:
            raise ValueError("a record of the block does not fit into it")
        if jlog_is_state(&record):
            key = record.key[:record.key_bytes]
            if record.value == NULL:
                state.pop(key, None)
            else:
                state[key] = record.value[:record.value_bytes]
        at += size
        left -= size


def walk_body(bytes raw not None, int64_t base_time_us):
    """Returns (records, latest clock time, latest explicit time, last time, explicit records) of a body. Raises ValueError if
    the bytes are not a body."""
    cdef jlog_walk walk
    if jlog_walk_records(raw, len(raw), base_time_us, &walk) != 0:
        raise ValueError("a record of the block does not fit into it")
    return walk.record_count, walk.clock_max_us, walk.explicit_max_us, walk.last_timestamp_us, walk.explicit_count


def first_time(bytes raw not None, int64_t base_time_us) -> int:
    """Returns the timestamp of a body's first record. Raises ValueError if the body has no record."""
    cdef jlog_record record
    cdef const uint8_t *at = raw
    cdef size_t left = len(raw), size
    while left:
        size = jlog_decode_record(at, left, base_time_us, &record)
        if size == 0:
            break
        if not jlog_is_state(&record):
            return record.timestamp_us
        at += size
        left -= size
    raise ValueError("the block has no record")


def first_block_offset(SegmentFile file not None) -> int:
    """Returns the offset where the segment's first block with records begins, or will begin: after the state block."""
    if file.read_block(SEGMENT_HEADER_BYTES, True) != JLOG_BLOCK_VALID:
        raise CorruptJournal(file.path, SEGMENT_HEADER_BYTES, "the block with the state is missing")
    return file.walk.next
