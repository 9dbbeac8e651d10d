"""The end of a journal: read from its control page, or computed from its files if no process has it open for writing."""

from libc.errno cimport EACCES, EPERM, EROFS
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from jlog._core.format.dual_slot cimport BoundsFile
from jlog._core.format.format cimport JLOG_NONE, jlog_block_header
from jlog._core.buffer.page cimport JLOG_BASE_BYTES, jlog_body_offset, jlog_slot, jlog_word, jlog_word_crc, jlog_word_used
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.system.file cimport check_result
from jlog._core.buffer.precommit cimport PAGE_OF_ANOTHER_BOOT, PAGE_VALID, Precommit, Snapshot

from jlog._core.recover.abandoned_buffer import stored_bodies
from jlog._core.recover.scan import scan
from jlog._core.segments.segment import list_segments, segment_name, walk_body
from jlog.errors import CorruptJournal, JournalClosed
from jlog.system.files import file_in, name_error, stat_file


cdef uint64_t block_bytes(const jlog_slot *slot) noexcept nogil:
    """Returns the bytes that the slot's block will take in its segment, uncompressed."""
    cdef uint32_t used = jlog_word_used(slot.publish_word)
    return sizeof(jlog_block_header) + used - JLOG_BASE_BYTES if used > JLOG_BASE_BYTES else 0


cdef class JournalEnd:
    """The journal's end as note() found it. Needs no write access."""

    def __init__(self, path not None, bytes uuid not None, *, bint durable_only=False):
        self.path = path
        self.uuid = uuid
        self.durable_only = durable_only
        self.open_page()
        self.bounds_file = BoundsFile(file_in(path, "bounds"), uuid, None, writable=False)

    def open_page(self):
        """Opens the pre-commit buffer, for writing if that is allowed: only then can this reader ask writers to wake it."""
        for writable in (True, False):
            try:
                self.precommit = Precommit(self.path, self.uuid, writable=writable)
                self.writable = writable
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if not writable or error.errno not in (EACCES, EPERM, EROFS):
                    raise

    cdef void release(self) noexcept:
        """Lets go of all files and of the directory, for a reader that closes."""
        self.precommit = self.bounds_file = None
        self.path = str(self.path)

    cdef object read_bounds(self):
        if self.bounds_file is None:
            raise JournalClosed(f"{self.path}: this object is closed; open a new one")
        return self.bounds_file.read()

    cdef JournalEnd another(self):
        """Returns a second object of the same journal, which notes the end for itself."""
        cdef JournalEnd other = JournalEnd.__new__(JournalEnd)
        other.path, other.uuid, other.durable_only = self.path, self.uuid, self.durable_only
        other.precommit, other.writable, other.bounds_file = self.precommit, self.writable, self.bounds_file
        return other

    cdef bint can_be_woken(self) noexcept:
        return self.live and self.writable

    cdef const jlog_slot *written(self) noexcept:
        """Returns the slot of the first block that is not in its segment: the immutable block's, or else the open block's."""
        return &self.now.immutable if self.now.has_immutable else &self.now.slot

    cdef uint64_t body_offset(self, const jlog_slot *slot) noexcept:
        """Returns the offset of this slot's body in the file `precommit`."""
        return jlog_body_offset(slot.generation, self.now.capacity)

    cdef uint64_t first_retained(self) except? -1:
        """Sequence of the oldest retained record. Raises CorruptJournal if it is beyond the journal's end."""
        cdef JournalEnd now
        cdef uint64_t first = self.read_bounds().first_sequence
        if first > self.now.slot.first_sequence:
            now = self.another()
            now.note()
            if first > now.now.slot.first_sequence:
                raise CorruptJournal(self.bounds_file.path, 0, f"it states that the records before {first} were removed, but "
                                                               f"the open block begins with {now.now.slot.first_sequence}")
        return first

    @property
    def written_place(self) -> tuple:
        """Segment, offset and first sequence of the first block that is not in its segment."""
        return self.written().segment, self.written().offset, self.written().first_sequence

    @property
    def open_segment(self) -> object:
        """First sequence of the open segment now, read from the control page; None if no process has the journal open for
        writing. What note() has found stays as it is."""
        cdef Snapshot found
        cdef Precommit precommit = self.precommit
        if precommit is None:
            return None
        # A commit asks each time: while no other block is open, neither is another segment.
        if self.seen_generation == 0 or precommit.generation() != self.seen_generation:
            self.seen_generation = 0
            if precommit.snapshot(&found, NULL) != PAGE_VALID:
                return None
            self.seen_generation, self.seen_segment = found.slot.generation, found.slot.segment
        return self.seen_segment

    @property
    def buffered_bytes(self) -> int:
        """Bytes that the blocks outside their segment will take there, uncompressed."""
        return self.now.slot.offset - self.written().offset + block_bytes(&self.now.slot)

    @property
    def page_path(self) -> str:
        """Path of the file that states the end, for messages."""
        return self.path if self.precommit is None else self.precommit.path

    @property
    def state(self) -> tuple:
        """A value that changes whenever a new record can be read."""
        return (self.live, self.now.slot.generation, self.now.slot.segment, self.now.slot.offset, self.now.slot.first_sequence,
                jlog_word_used(self.now.slot.publish_word), jlog_word_crc(self.now.slot.publish_word), self.now.durable_end)

    def refresh(self) -> None:
        """Notes the journal's end as it is now."""
        self.note()

    cdef int note(self) except -1:
        """Notes the journal's end as it is now."""
        cdef Snapshot found
        cdef int status = 0
        gone = None
        while True:
            if self.precommit is None:
                self.open_page()
            if self.precommit is not None:
                status = self.precommit.snapshot(&found, &self.now.slot if self.live else NULL)
                check_result(status, self.precommit.path)
                if status == PAGE_OF_ANOTHER_BOOT and self.precommit.is_written_to():
                    continue
            if status == PAGE_VALID:
                self.live = True
                self.now = found
                if found.new_inode:
                    self.look_at_name()
                self.limit = found.durable_end if self.durable_only else JLOG_NONE
                return 0
            try:
                self.compute()
                return 0
            except FileNotFoundError as error:
                # A segment was listed and is gone: a recovery moves segments away meanwhile, and then creates a page.
                if error.filename == gone:
                    raise
                gone = error.filename

    cdef int look_at_name(self) except -1:
        """Corrects the noted place while the open segment's file is replaced, or if the replacing process has died: it is a
        place in the old file or in the new one."""
        if stat_file(file_in(self.path, segment_name(self.now.slot.segment))).st_ino == self.now.new_inode:
            self.now.slot.offset, self.now.slot.previous_offset = self.now.new_end, 0
        return 0

    def compute(self):
        """Computes the end that a recovery would find, and changes nothing: no process has had the journal open in this boot,
        and this one may have no right to write. Some of the data may be in the page cache alone, so only the durable end that
        the files state counts as durable."""
        segments = list_segments(self.path)
        JLOG_FAILPOINT(b"end.listed")
        newest = file_in(self.path, segment_name(segments[-1]) if segments else ".")
        looked_at = [(found.st_ino, found.st_size, found.st_mtime_ns) for found in map(stat_file, (
            file_in(self.path, "."), newest, file_in(self.path, "bounds")))]
        if not self.live and looked_at == self.looked_at:
            return  # nothing has changed since the last call: a follower calls again and again
        end = scan(self.path, self.uuid, self.read_bounds())
        offset, sequence, bodies = end.offset, end.sequence, []
        if self.precommit is not None:
            try:
                offset, sequence, bodies = stored_bodies(self.precommit, end)
            except OSError as error:
                name_error(error, self.precommit.path)
                raise
        memset(&self.now, 0, sizeof(self.now))
        self.live = False
        self.now.slot.segment, self.now.slot.offset, self.now.slot.first_sequence = end.segment, offset, sequence
        self.now.durable_end = end.durable
        self.now.has_immutable = len(bodies) > 1
        if self.now.has_immutable:
            self.now.immutable = self.now.slot
            self.now.immutable.publish_word = jlog_word(len(bodies[0]), 0)
            self.now.slot.offset += sizeof(jlog_block_header) + len(bodies[0]) - JLOG_BASE_BYTES
            self.now.slot.first_sequence += walk_body(bodies[0][JLOG_BASE_BYTES:], 0)[0]
            self.now.slot.generation = 1
        self.limit = end.durable if self.durable_only else JLOG_NONE
        self.stored_bodies = bodies  # by generation, which is 0 for the first body here
        self.now.slot.publish_word = jlog_word(len(bodies[-1]) if bodies else 0, 0)
        self.looked_at = looked_at
