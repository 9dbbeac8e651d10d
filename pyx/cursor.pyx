"""Reads the records of a journal in order, from its segments and from the open block, in any process.

A block that is behind the open one stands in its segment: it was written before the switch. What is not known to be
closed is read from the buffer, and the generation, looked at again, tells whether it was that block.
"""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENODATA
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

from jlog._core.columns cimport Batch
from jlog._core.file cimport jlog_read_at, jlog_write_at
from jlog._core.format cimport (
    JLOG_CODEC_LZ4,
    JLOG_NONE,
    JLOG_SHORT_BYTES,
    JLOG_SHORT_VALUE_MAX,
    JLOG_TAG_LONG,
    JLOG_TAG_STATE,
    jlog_block_header,
    jlog_block_header_valid,
    jlog_crc32c,
    jlog_decode_record,
    jlog_load32,
    jlog_load64,
    jlog_record,
)
from jlog._core.lock cimport process_token
from jlog._core.page cimport (
    JLOG_BASE_BYTES,
    JLOG_PAGE_BYTES,
    JLOG_WAKE_COUNTER_OFFSET,
    JLOG_WAKE_FLAG_OFFSET,
    jlog_clock_us,
    jlog_futex_wait,
)
from jlog._core.precommit cimport PAGE_VALID, Precommit, Snapshot
from jlog._core.record cimport RecordBatch, make_record
from jlog._core.segment cimport BLOCK_VALID, SegmentFile, block_problem, read_block_header

from jlog._core.copies import BoundsFile
from jlog._core.index import build_index, locate, segment_end
from jlog._core.recovery import scan, stored_body_at
from jlog._core.segment import SEGMENT_HEADER_BYTES, decompress, list_segments, segment_name
from jlog.errors import CorruptJournal, JournalClosed, PositionLost

cdef extern from "<sys/mman.h>" nogil:
    enum:
        PROT_READ
        MAP_SHARED
    void *MAP_FAILED
    void *mmap(void *address, size_t size, int protection, int flags, int fd, int64_t offset)
    int munmap(void *address, size_t size)

cdef extern from * nogil:
    void __builtin_prefetch(const void *address)

cdef enum:
    CLOCK_MONOTONIC = 1
    TEARS_MAX = 10000  # reads beside stores that may tear before it is called damage
    WINDOW_BYTES = 264 << 10  # two blocks of the default buffer, and a little
    PREFETCH_BYTES = 1024  # walking records with a cold cache is bound by memory latency
    SPIN_TURNS = 20  # some 10 us: a busy writer's next record comes sooner than a sleep would end
    SLICE_US = 1_000_000  # a writer may die between publishing and waking
    POLL_MIN_US = 1_000
    POLL_MAX_US = 50_000


cdef class Cursor:
    """A position in a journal, and what is needed to read on from it."""

    def __init__(self, str path not None, bytes uuid not None, *, bint durable_only=False):
        self.path = path
        self.uuid = uuid
        self.durable_only = durable_only
        self.process = process_token()
        self.token = self.process[0]
        self.open_shared()

    def __dealloc__(self):
        if self.wake_page != NULL:
            munmap(self.wake_page, JLOG_PAGE_BYTES)
        free(self.window)
        free(self.body)

    def open_shared(self):
        """The page, for writing where that is allowed: only then can a writer be told to wake this reader."""
        self.precommit = None
        for writable in (True, False):
            try:
                self.precommit = Precommit(self.path, self.uuid, writable=writable)
                self.writable = writable
                break
            except FileNotFoundError:
                break
            except OSError:
                continue
        self.bounds_file = BoundsFile(os.path.join(self.path, "bounds"), self.uuid, None, writable=False)

    def close(self):
        self.token = 0
        self.file = None
        self.precommit = None
        self.at = self.end = NULL

    @property
    def position(self) -> int:
        return self.sequence

    def check_open(self) -> None:
        """JournalClosed where it is closed, or the parent's."""
        if self.token == 0 or self.process[0] != self.token:
            raise JournalClosed(f"{self.path}: this reader is closed, or belongs to the process that this one was forked "
                                "from; open a new one")

    def refresh(self) -> None:
        """Notes the end as it is now."""
        self.begin()

    def can_go_on(self) -> bool:
        """Whether there is a next record before the end as it was noted; CorruptJournal where it is damaged."""
        return self.advance()

    # --- Where the journal ends now -----------------------------------------------------------------------------

    cdef int begin(self) except -1:
        """Notes the end as it is now: how far reading goes until the next begin()."""
        cdef int status = 0
        cdef Snapshot now
        self.check_open()
        if self.precommit is None:
            self.open_shared()
        if self.precommit is not None:
            status = self.precommit.snapshot(&now)
            if status < 0:
                raise OSError(-status, os.strerror(-status), self.precommit.path)
        if status == PAGE_VALID:
            self.live = True
            self.stop = now
            self.stop_sequence = self.stop.durable_end if self.durable_only else JLOG_NONE
        else:
            self.compute_end()
        self.clip()
        return 0

    def compute_end(self):
        """Nobody has the journal open in this boot, and perhaps nobody may write here: the same end that a recovery
        would find, and nothing is changed."""
        cdef bytes body
        segments = list_segments(self.path)
        newest = os.path.join(self.path, segment_name(segments[-1])) if segments else self.path
        looked_at = [(found.st_ino, found.st_size, found.st_mtime_ns) for found in map(os.stat, (
            self.path, newest, self.bounds_file.path))]
        if not self.live and looked_at == self.looked_at:
            return  # as it was computed before: a follower looks again and again
        self.looked_at = looked_at
        end = scan(self.path, self.uuid, self.bounds_file.read())
        memset(&self.stop, 0, sizeof(self.stop))
        self.live = False
        self.stop.slot.segment, self.stop.slot.offset, self.stop.slot.first_sequence = end.segment, end.offset, end.sequence
        self.stop_sequence = JLOG_NONE
        found = None
        if self.precommit is not None and not self.durable_only:
            found = stored_body_at(self.precommit, end.segment, end.offset, end.sequence)
        if found is not None:
            self.make_room(len(found))
            body = found
            memcpy(self.body, PyBytes_AS_STRING(body), len(body))
            self.stop.used = self.verified = len(found)
            self.body_generation = 0

    cdef int make_room(self, size_t size) except -1:
        """For a body of this size; what is held and where reading stands in it are kept."""
        cdef bint inside = self.records != NULL and self.size == 0
        cdef size_t at = self.at - self.body if inside else 0
        cdef void *larger
        if size > self.body_room:
            larger = realloc(self.body, size)
            if larger == NULL:
                raise MemoryError
            self.body = <uint8_t *> larger
            self.body_room = size
            if inside:
                self.records = self.body + JLOG_BASE_BYTES
                self.at = self.body + at
        return 0

    cdef int clip(self) except -1:
        """How far the current block may be handed out."""
        cdef uint64_t raw
        self.end = self.block_end
        if self.file is None or self.records == NULL:
            return 0
        if self.file.segment == self.stop.slot.segment and self.offset == self.stop.slot.offset:
            raw = self.stop.used - JLOG_BASE_BYTES if self.stop.used else 0
            if self.records + raw < self.end:
                self.end = self.records + raw
            if self.end < self.at:
                self.end = self.at
                raise CorruptJournal(self.stop_path(), JLOG_PAGE_BYTES, "the open block is shorter than what was read of it")
        return 0

    def stop_path(self) -> str:
        return self.path if self.precommit is None else self.precommit.path

    @property
    def next_sequence(self) -> int:
        """The end of the journal as it is now, counted from what is published."""
        cdef Cursor other = Cursor.__new__(Cursor)
        other.path, other.uuid, other.durable_only = self.path, self.uuid, self.durable_only
        other.process, other.token = self.process, self.token
        other.precommit, other.writable, other.bounds_file = self.precommit, self.writable, self.bounds_file
        other.seek_end()
        return other.sequence

    # --- Blocks -------------------------------------------------------------------------------------------------

    cdef bint advance(self) except -1:
        """Makes at < end, loading what comes next, without handing it out. False at the end as begin() noted it."""
        cdef uint64_t raw, consumed
        self.check_open()
        while self.at == self.end:
            if self.sequence >= self.stop_sequence:
                return False
            consumed = self.at - self.records if self.records != NULL else 0
            if self.file.segment == self.stop.slot.segment and self.offset == self.stop.slot.offset:
                raw = self.stop.used - JLOG_BASE_BYTES if self.stop.used else 0
                if consumed >= raw:
                    return False
                if not self.load_open():
                    self.load_closed(consumed)
            elif self.records == NULL:
                if self.load_closed(0) == 0:
                    self.next_segment()
            elif self.size == 0:  # the open block when it was read; it stands in the segment now
                self.load_closed(consumed)
            else:
                self.offset += self.size
                self.forget_block()
            self.clip()
        return True

    cdef void forget_block(self) noexcept:
        self.records = self.at = self.end = self.block_end = NULL
        self.size = 0

    cdef bint load_open(self) except -1:
        """What was published in the open block, verified from where it was verified before. False when the block has
        been switched away from: then it stands in the segment."""
        cdef uint32_t start = 0, crc = 0
        cdef size_t consumed = self.at - self.records if self.records != NULL else 0
        cdef int status, _turn
        if self.records != NULL and self.size != 0:
            return False
        if self.live:
            self.make_room(self.stop.used)
            if self.records != NULL and self.body_generation == self.stop.slot.generation:
                start, crc = self.verified, self.verified_crc
            for _turn in range(TEARS_MAX):
                status = self.precommit.read_body(&self.stop, self.body, start)
                if status == -ENODATA:
                    raise CorruptJournal(self.precommit.path, os.fstat(self.precommit.fd).st_size,
                                         "the pre-commit buffer is cut off")
                if status < 0:
                    raise OSError(-status, os.strerror(-status), self.precommit.path)
                if status == 0:
                    return False
                if jlog_crc32c(crc, self.body + start, self.stop.used - start) == self.stop.crc:
                    break
                PyErr_CheckSignals()
            else:
                raise CorruptJournal(self.precommit.path, JLOG_PAGE_BYTES + start, "the open block fails its checksum")
            self.verified, self.verified_crc = self.stop.used, self.stop.crc
            self.body_generation = self.stop.slot.generation
        self.base_time_us = jlog_load64(self.body)
        self.records = self.body + JLOG_BASE_BYTES
        self.at = self.records + consumed
        self.block_end = self.body + self.stop.used
        self.size = 0
        return True

    cdef int load_closed(self, uint64_t consumed) except -1:
        """The block at this place of the segment, reading on behind `consumed` bytes of its records. 0 where none
        stands, which at the end of a sealed segment is no damage."""
        cdef const jlog_block_header *header = self.block_in_window()
        cdef const uint8_t *stored
        cdef bytes raw
        if header == NULL:
            if consumed or self.file.segment == self.stop.slot.segment:
                raise self.damage("no block stands here")
            return 0
        stored = <const uint8_t *> (header + 1)
        if consumed == 0 and header.first_sequence != self.sequence and self.ends_here():
            return 0
        if consumed == 0 and header.first_sequence != self.sequence:
            raise self.damage(f"the block begins with sequence {header.first_sequence} instead of {self.sequence}")
        if jlog_crc32c(0, stored, header.stored_bytes) != header.stored_crc:
            self.window_bytes = 0
            header = self.block_in_window()
            stored = <const uint8_t *> (header + 1)
            if header == NULL or jlog_crc32c(0, stored, header.stored_bytes) != header.stored_crc:
                if consumed == 0 and self.ends_here():
                    return 0  # torn by a writer that was killed, and rolled away from before anybody cut it off
                raise self.damage("the block's body fails its checksum")
        self.records = stored
        if header.codec == JLOG_CODEC_LZ4:
            try:
                raw = decompress(PyBytes_FromStringAndSize(<const char *> stored, header.stored_bytes), header.raw_bytes)
            except ValueError as error:
                self.records = NULL
                raise self.damage(str(error)) from None
            self.raw = raw
            self.records = <const uint8_t *> PyBytes_AS_STRING(raw)
            if jlog_crc32c(0, self.records, header.raw_bytes) != header.raw_crc:
                self.records = NULL
                raise self.damage("the block's body fails its checksum once decompressed")
        if consumed > header.raw_bytes:
            self.records = NULL
            raise self.damage(f"the block holds {header.raw_bytes} bytes of records, {consumed} were read already")
        self.base_time_us = header.base_time_us
        self.at = self.end = self.records + consumed
        self.block_end = self.records + header.raw_bytes
        self.size = sizeof(jlog_block_header) + header.stored_bytes
        return 1

    def damage(self, reason):
        return CorruptJournal(self.file.path, self.offset, reason)

    cdef const jlog_block_header *block_in_window(self) except? NULL:
        """The header at self.offset, its body behind it; NULL where no block stands. Raises where one is damaged."""
        cdef const jlog_block_header *header = NULL
        cdef uint64_t needed = sizeof(jlog_block_header), inside
        cdef int error = 0, status
        cdef bint fresh = False
        cdef jlog_block_header found
        while True:
            inside = self.offset - self.window_offset
            if self.window_segment != self.file.segment or self.offset < self.window_offset \
                    or inside + needed > self.window_bytes:
                self.read_window(needed)
                inside = 0
            header = <const jlog_block_header *> (self.window + inside)
            if self.window_bytes < inside + sizeof(jlog_block_header) \
                    or not jlog_block_header_valid(header, self.file.uuid, self.file.segment, self.offset):
                if fresh:
                    break
                self.window_bytes = 0  # before it is called damage it is read anew
                fresh = True
                needed = sizeof(jlog_block_header)
                continue
            needed = sizeof(jlog_block_header) + header.stored_bytes
            if inside + needed <= self.window_bytes:
                return header
            if self.offset + needed > self.file.file_bytes:
                if self.ends_here():
                    return NULL
                raise self.damage("the file ends within the block")
        status = read_block_header(self.file.fd, self.file.uuid, self.file.segment, self.offset, &found, &error)
        if status == BLOCK_VALID:
            raise self.damage("the block cannot be read as a whole")
        if status < 0 and self.file.segment == self.stop.slot.segment:
            raise self.damage(block_problem(status).decode())
        return NULL

    cdef int read_window(self, uint64_t needed) except -1:
        """Of the segment, from self.offset: bytes behind the open place may change, and are left out."""
        cdef uint64_t size = max(needed, WINDOW_BYTES), kept = 0
        cdef int64_t got
        cdef uint8_t *larger
        if self.file.segment == self.stop.slot.segment and self.offset + size > self.stop.slot.offset:
            size = max(needed, self.stop.slot.offset - self.offset if self.stop.slot.offset > self.offset else 0)
        if self.window_segment == self.file.segment and self.window_offset <= self.offset \
                and self.offset < self.window_offset + self.window_bytes:
            kept = self.window_offset + self.window_bytes - self.offset  # closed blocks never change
        if size > self.window_room:
            larger = <uint8_t *> malloc(size)
            if larger == NULL:
                raise MemoryError
            if kept:
                memcpy(larger, self.window + (self.offset - self.window_offset), kept)
            free(self.window)
            self.window = larger
            self.window_room = size
        elif kept:
            memmove(self.window, self.window + (self.offset - self.window_offset), kept)
        self.window_segment, self.window_offset, self.window_bytes = self.file.segment, self.offset, kept
        if kept < size:
            with nogil:
                got = jlog_read_at(self.file.fd, self.window + kept, size - kept, self.offset + kept)
            if got < 0:
                raise OSError(-got, os.strerror(-got), self.file.path)
            self.window_bytes = kept + got
        return 0

    cdef bint ends_here(self) except -1:
        """Whether the next segment's header says that this one's blocks end at this place."""
        if self.file.segment == self.stop.slot.segment:
            return False
        following = min((s for s in list_segments(self.path) if s > self.file.segment), default=None)
        if following is None:
            return False
        return segment_end(self.path, self.file.segment, following, self.uuid) == (self.offset, self.sequence, True)

    cdef bint next_segment(self) except -1:
        """Goes on in the segment whose header says that it follows here."""
        found = None
        for name in [s for s in list_segments(self.path) if s > self.file.segment and s >= self.sequence]:
            try:
                found = SegmentFile(self.path, name, self.uuid)
            except FileNotFoundError:
                continue  # cleaned in this moment
            break
        if found is None:
            raise self.damage("no block stands here, and no segment follows")
        if (found.previous_segment, found.previous_end_offset, found.previous_end_sequence) != (
                self.file.segment, self.offset, self.sequence):
            self.raise_if_lost()
            raise self.damage(f"no block stands here, and the next segment {found.path} follows another place")
        self.enter(found, SEGMENT_HEADER_BYTES, found.segment)
        return True

    def raise_if_lost(self):
        first = self.first_sequence
        if first > self.sequence:
            raise PositionLost(f"{self.path}: retention has removed the records from {self.sequence} to {first - 1}; seek to "
                               f"{first} to go on", first)

    def enter(self, SegmentFile file, uint64_t offset, uint64_t sequence):
        self.file = file
        self.offset = offset
        self.sequence = sequence
        self.forget_block()

    cdef size_t decode(self, jlog_record *record) except 0:
        cdef size_t size = jlog_decode_record(self.at, self.end - self.at, self.base_time_us, record)
        if size == 0:
            raise self.damage("a record of the block does not fit into it")
        return size

    # --- Seeking ------------------------------------------------------------------------------------------------

    @property
    def first_sequence(self) -> int:
        """Of the first record that is kept."""
        return self.bounds_file.read().first_sequence

    def seek_first(self) -> None:
        """To the first record that is kept."""
        while True:
            try:
                return self.seek(self.first_sequence)
            except (FileNotFoundError, PositionLost):
                continue  # cleaned meanwhile: there is a later first one now

    @property
    def place(self) -> tuple:
        """(segment, offset) of the block that the position lies in."""
        return self.file.segment, self.offset

    @property
    def end_place(self) -> tuple:
        """(segment, offset, first sequence) of the open block, as it is now."""
        self.begin()
        return self.stop.slot.segment, self.stop.slot.offset, self.stop.slot.first_sequence

    @property
    def durable_end(self) -> int:
        """Every record before it survives a power loss, as far as the page tells."""
        self.begin()
        return self.stop.durable_end if self.live else self.stop.slot.first_sequence

    def seek_end(self) -> None:
        """To the end as it is now."""
        while True:
            self.begin()
            try:
                file = self.segment_file(self.stop.slot.segment)
            except FileNotFoundError:
                if self.stop.slot.segment < self.first_sequence:
                    continue  # rolled away from and cleaned since
                raise
            self.enter(file, self.stop.slot.offset, self.stop.slot.first_sequence)
            if self.stop_sequence != JLOG_NONE:
                return self.seek(max(min(self.stop_sequence, self.sequence), self.first_sequence))
            if self.stop.used == 0 or self.load_open():
                break
        self.clip()
        self.skip_to(JLOG_NONE)

    def segment_file(self, segment):
        """To begin reading in: its blocks are checked for themselves, so that a damaged header does not hide them."""
        if self.file is not None and self.file.segment == segment:
            return self.file
        return SegmentFile(self.path, segment, self.uuid, check_header=False)

    cdef int skip_to(self, uint64_t sequence) except -1:
        """Within the loaded block, to this sequence or its end."""
        cdef jlog_record record
        cdef size_t size
        while self.at < self.end and self.sequence < sequence:
            size = self.decode(&record)
            if not (record.tag & JLOG_TAG_LONG and record.tag & JLOG_TAG_STATE):
                self.sequence += 1
            self.at += size
        return 0

    def seek(self, uint64_t sequence) -> None:
        """To this sequence; behind a hole if it lies in one. PositionLost where it has been removed, ValueError where it
        lies behind the end."""
        self.begin()
        first = self.first_sequence
        if sequence < first:
            raise PositionLost(f"{self.path}: the records before {first} have been removed by retention; seek to {first} or "
                               "later", first)
        segments = list_segments(self.path)
        if self.stop.slot.segment in segments:  # a file behind it was left by a roll that died
            segments = segments[:segments.index(self.stop.slot.segment) + 1]
        if not segments:
            raise CorruptJournal(self.path, 0, "there is no segment file; restore one from a backup")
        at = max((s for s in segments if s <= sequence), default=segments[0])
        file = self.segment_file(at)
        if at > sequence:  # the segment is missing: reading raises
            self.enter(file, SEGMENT_HEADER_BYTES, sequence)
            return
        if at == self.stop.slot.segment and sequence >= self.stop.slot.first_sequence:
            self.enter(file, self.stop.slot.offset, self.stop.slot.first_sequence)
        elif at == self.stop.slot.segment:
            first, offset, _ = build_index(self.path, at, self.uuid, self.stop.slot.offset).locate(sequence)
            self.enter(file, offset, first)
        else:
            following = segments[segments.index(at) + 1]
            end_offset, end_sequence, stated = segment_end(self.path, at, following, self.uuid)
            if sequence >= end_sequence:
                if stated:  # in the hole between
                    self.enter(self.segment_file(following), SEGMENT_HEADER_BYTES, following)
                else:  # in what is damaged: reading raises
                    self.enter(file, end_offset, end_sequence)
                return
            first, offset = locate(self.path, at, self.uuid, end_offset, sequence)
            self.enter(file, offset, first)
        while self.sequence < sequence:
            try:
                if not self.advance():
                    end = self.sequence
                    raise ValueError(f"{self.path} ends at sequence {end}; {sequence} lies behind it")
            except CorruptJournal:
                if not self.step_over_damage(sequence):
                    return  # what is damaged holds it: reading raises
                continue
            self.skip_to(sequence)

    cdef bint step_over_damage(self, uint64_t sequence) except -1:
        """To the next whole block of the segment, if that does not lie behind this sequence."""
        cdef uint64_t end = self.stop.slot.offset if self.file.segment == self.stop.slot.segment else self.file.file_bytes
        block = self.file.next_block(self.offset + 1, end)
        while block is not None and block.first_sequence < self.sequence:
            block = self.file.next_block(block.offset + 1, end)
        if block is None or block.first_sequence > sequence:
            return False
        self.enter(self.file, block.offset, block.first_sequence)
        return True

    # --- Waiting ------------------------------------------------------------------------------------------------

    def wait(self, timeout) -> bool:
        """Until there is something to read on: at once when a writer publishes, False after `timeout` seconds (None: for
        ever). Uses no CPU meanwhile; who may not write to the page polls, 50 ms apart at most."""
        cdef int64_t deadline_us = -1, now_us, slice_us = SLICE_US, poll_us = POLL_MIN_US
        cdef uint32_t counter = 0, flag = 1
        cdef int turn = 0
        cdef bint told
        if timeout is not None:
            deadline_us = jlog_clock_us(CLOCK_MONOTONIC) + <int64_t> (timeout * 1e6)
        while True:
            told = False
            if turn >= SPIN_TURNS and self.can_be_woken():
                # The flag before the last look: a record published after it finds the flag.
                jlog_read_at(self.precommit.fd, &counter, sizeof(counter), JLOG_WAKE_COUNTER_OFFSET)
                told = jlog_write_at(self.precommit.fd, &flag, sizeof(flag), JLOG_WAKE_FLAG_OFFSET) == 0
            self.begin()
            if self.advance():
                return True
            now_us = jlog_clock_us(CLOCK_MONOTONIC)
            if deadline_us >= 0 and now_us >= deadline_us:
                return False
            turn += 1
            if turn <= SPIN_TURNS:
                continue
            slice_us = SLICE_US if told else poll_us
            if deadline_us >= 0:
                slice_us = min(slice_us, deadline_us - now_us)
            with nogil:
                jlog_futex_wait(<uint32_t *> (<uint8_t *> self.wake_page + JLOG_WAKE_COUNTER_OFFSET) if told else NULL,
                                counter, slice_us)
            PyErr_CheckSignals()
            poll_us = min(poll_us * 2, POLL_MAX_US)

    cdef bint can_be_woken(self) except -1:
        """Maps the page to wait on it. It is never dereferenced: the kernel looks, and says EFAULT of a truncated file."""
        if not self.live or not self.writable:
            return False
        if self.wake_page == NULL:
            page = mmap(NULL, JLOG_PAGE_BYTES, PROT_READ, MAP_SHARED, self.precommit.fd, 0)
            if page == MAP_FAILED:
                return False
            self.wake_page = page
        return True

    # --- Handing out --------------------------------------------------------------------------------------------

    def read(self, Py_ssize_t max_records, Py_ssize_t max_bytes) -> RecordBatch:
        """What there is now, at least one record if there is any."""
        cdef RecordBatch batch = RecordBatch()
        self.begin()
        self.read_into(batch, max_records, max_bytes, JLOG_NONE)
        return batch

    cdef int read_into(self, Batch batch, Py_ssize_t max_records, Py_ssize_t max_bytes, uint64_t end) except -1:
        """What there was when begin() noted the end, of that what comes before the sequence `end`."""
        cdef jlog_record record
        cdef const uint8_t *start
        cdef uint64_t first
        cdef Py_ssize_t left = min(max_bytes, INT32_MAX), most, count  # more is nothing that a column of Arrow's could hold
        cdef size_t size
        cdef uint64_t began = self.sequence
        while batch.count < max_records and (left > 0 or batch.count == 0):
            try:
                if not self.advance():
                    break
            except Exception:
                if batch.count == 0:
                    raise
                break  # what was read already first: the next call meets it again
            except BaseException:  # Ctrl-C: nothing of this call has been handed out
                if batch.count:
                    self.seek(began)
                raise
            if self.sequence >= end:
                break
            most = min(<uint64_t> (max_records - batch.count), end - self.sequence)
            start, first, count = self.at, self.sequence, 0
            try:
                while self.at < self.end and count < most:
                    size = self.decode(&record)
                    if batch.count + count and <Py_ssize_t> size > left:
                        left = 0
                        break
                    left -= size
                    if not (record.tag & JLOG_TAG_LONG and record.tag & JLOG_TAG_STATE):
                        count += 1
                    self.at += size
                if self.at != start:
                    batch.add(start, self.at - start, self.base_time_us, first, count)
            except Exception:
                self.at = start  # place and sequence move together or not at all
                if batch.count == 0:
                    raise
                break
            except BaseException:
                self.at = start
                if batch.count:
                    self.seek(began)
                raise
            self.sequence = first + count
        return 0


cdef class ValueIterator:
    """The values up to the end as it was when iteration began."""

    cdef Cursor cursor

    def __init__(self, Cursor cursor not None):
        cursor.begin()
        self.cursor = cursor

    def __iter__(self):
        return self

    def __next__(self):
        cdef Cursor cursor = self.cursor
        cdef jlog_record record
        cdef const uint8_t *at
        cdef size_t size
        cdef uint32_t tag
        while True:
            at = cursor.at
            if at == cursor.end:
                if not cursor.advance():
                    raise StopIteration
                at = cursor.at
            __builtin_prefetch(at + PREFETCH_BYTES)
            if <size_t> (cursor.end - at) >= JLOG_SHORT_BYTES:
                tag = jlog_load32(at)
                size = tag & JLOG_SHORT_VALUE_MAX
                if not tag & JLOG_TAG_LONG and JLOG_SHORT_BYTES + size <= <size_t> (cursor.end - at):
                    value = PyBytes_FromStringAndSize(<const char *> at + JLOG_SHORT_BYTES, size)
                    cursor.at = at + JLOG_SHORT_BYTES + size  # once there is the object: without memory nothing is skipped
                    cursor.sequence += 1
                    return value
            size = cursor.decode(&record)
            if record.tag & JLOG_TAG_LONG and record.tag & JLOG_TAG_STATE:
                cursor.at += size
                continue
            value = None if record.value == NULL else PyBytes_FromStringAndSize(
                <const char *> record.value, record.value_bytes)
            cursor.at += size
            cursor.sequence += 1
            return value


cdef class RecordIterator:
    """The records up to the end as it was when iteration began."""

    cdef Cursor cursor

    def __init__(self, Cursor cursor not None):
        cursor.begin()
        self.cursor = cursor

    def __iter__(self):
        return self

    def __next__(self):
        cdef Cursor cursor = self.cursor
        cdef jlog_record record
        cdef size_t size
        while True:
            if cursor.at == cursor.end and not cursor.advance():
                raise StopIteration
            __builtin_prefetch(cursor.at + PREFETCH_BYTES)
            size = cursor.decode(&record)
            if record.tag & JLOG_TAG_LONG and record.tag & JLOG_TAG_STATE:
                cursor.at += size
                continue
            made = make_record(&record, cursor.sequence)
            cursor.at += size  # once there is the object: without memory nothing is skipped
            cursor.sequence += 1
            return made
