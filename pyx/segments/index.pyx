"""The sparse index of a segment: it finds the block with a sequence or a time. The index is derived from the blocks' headers,
so a missing or wrong one is built anew."""

from bisect import bisect_right

from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from jlog._core.format.format cimport (
    JLOG_FORMAT_VERSION, JLOG_INDEX_EVERY_BYTES, JLOG_INDEX_MAGIC, JLOG_KIND_RECORDS, jlog_block_earliest_us,
    jlog_index_entries, jlog_index_entry, jlog_index_header, jlog_segment_header, jlog_structure_crc)
from jlog._core.segments.segment cimport SegmentFile, check_walk
from jlog._core.segments.walk cimport JLOG_BLOCK_VALID, jlog_block_walk, jlog_next_block

from jlog._core.segments.segment import index_name, segment_name
from jlog.errors import JournalError, UnsupportedFormat
from jlog.system.files import file_in, make_file, read_small, stat_file, write_whole

NO_TIME = INT64_MIN


cdef class SparseIndex:
    """A list of entries (first sequence, offset, latest timestamp before this offset), each for a block. The last entry stands
    for the end of the segment. `earliest` says of each entry that no record of the segment from there on is earlier; None where
    that is not known."""

    cdef readonly list entries
    cdef readonly object earliest

    def __init__(self, list entries not None, list earliest=None):
        self.entries, self.earliest = entries, earliest

    @property
    def end(self) -> tuple:
        """The entry of the end: (sequence, offset, latest timestamp of the segment)."""
        return self.entries[-1]

    def locate(self, uint64_t sequence) -> tuple:
        """Returns the last entry whose block begins at or before this sequence."""
        at = bisect_right(self.entries, (sequence, 1 << 64, 0)) - 1
        return self.entries[max(0, min(at, len(self.entries) - 2))]

    def locate_time(self, int64_t timestamp_us):
        """Returns the last entry before which every record is earlier than this time; None if the whole segment is earlier."""
        if self.entries[-1][2] < timestamp_us:
            return None
        found = self.entries[0]
        for entry in self.entries[:-1]:
            if entry[2] >= timestamp_us:
                break
            found = entry
        return found

    def locate_after(self, int64_t timestamp_us) -> tuple:
        """Returns the first entry from which on every record is known to be later than this time, at the latest the end's."""
        at = len(self.entries) - 1 if self.earliest is None else bisect_right(self.earliest, timestamp_us)
        return self.entries[min(at, len(self.entries) - 1)]


cdef struct Entry:
    jlog_index_entry begin
    int64_t earliest_us  # of the blocks from there to the next entry


def build_index(directory, uint64_t segment, bytes uuid not None, uint64_t end_offset) -> SparseIndex:
    """Builds an index from the headers of the blocks before `end_offset`, or before the first place without a block."""
    cdef SegmentFile file = SegmentFile(directory, segment, uuid, check_header=False)
    cdef Entry *entries = NULL
    cdef size_t count = 0, room = 0, i
    cdef uint64_t sequence = segment, last = 0
    cdef int64_t latest_us = INT64_MIN, earliest_us
    cdef jlog_block_walk *walk = &file.walk
    cdef bint grown = True
    try:
        file.begin_walk(sizeof(jlog_segment_header), end_offset, False)
        with nogil:
            while grown and jlog_next_block(walk) and walk.header.first_sequence == sequence:
                if walk.header.kind == JLOG_KIND_RECORDS and (count == 0 or walk.offset - last >= JLOG_INDEX_EVERY_BYTES):
                    grown = append_entry(&entries, &count, &room, sequence, walk.offset, latest_us)
                    last = walk.offset
                sequence += walk.header.record_count
                if walk.header.record_count:
                    latest_us = max(latest_us, walk.header.max_timestamp_us)
                    if grown:
                        earliest_us = jlog_block_earliest_us(&walk.header)
                        entries[count - 1].earliest_us = min(entries[count - 1].earliest_us, earliest_us)
            grown = grown and append_entry(&entries, &count, &room, sequence, walk.offset, latest_us)
        check_walk(walk, file.path)
        if not grown:
            raise MemoryError
        for i in range(count - 1, 0, -1):
            entries[i - 1].earliest_us = min(entries[i - 1].earliest_us, entries[i].earliest_us)
        found = [(entries[i].begin.first_sequence, entries[i].begin.offset, entries[i].begin.max_timestamp_us)
                 for i in range(count)]
        earliest = [entries[i].earliest_us for i in range(count)]
    finally:
        free(entries)
    if len(found) == 1:  # no block with records: the entry then stands for the state block
        found.insert(0, (segment, sizeof(jlog_segment_header), INT64_MIN))
        earliest.insert(0, INT64_MAX)
    return SparseIndex(found, earliest)


cdef bint append_entry(Entry **entries, size_t *count, size_t *room, uint64_t sequence, uint64_t offset,
                       int64_t latest_us) noexcept nogil:
    cdef void *larger
    if count[0] == room[0]:
        larger = realloc(entries[0], (room[0] * 2 + 64) * sizeof(Entry))
        if larger == NULL:
            return False
        entries[0] = <Entry *> larger
        room[0] = room[0] * 2 + 64
    entries[0][count[0]].begin.first_sequence = sequence
    entries[0][count[0]].begin.offset = offset
    entries[0][count[0]].begin.max_timestamp_us = latest_us
    entries[0][count[0]].earliest_us = INT64_MAX
    count[0] += 1
    return True


def index_content(SparseIndex index not None, uint64_t segment, bytes uuid not None) -> bytes:
    """Returns the content of the index's file."""
    cdef jlog_index_header header
    cdef jlog_index_entry entry
    cdef int64_t earliest_us
    cdef bytes content
    entries = []
    for first_sequence, offset, latest_us in index.entries:
        entry.first_sequence, entry.offset, entry.max_timestamp_us = first_sequence, offset, latest_us
        entries.append((<uint8_t *> &entry)[:sizeof(entry)])
    for earliest_us in index.earliest or ():
        entries.append((<uint8_t *> &earliest_us)[:sizeof(earliest_us)])
    memset(&header, 0, sizeof(header))
    memcpy(header.magic, JLOG_INDEX_MAGIC, 8)
    header.version = JLOG_FORMAT_VERSION
    memcpy(header.uuid, <const uint8_t *> uuid, 16)
    header.segment = segment
    header.entry_count = len(index.entries)
    content = (<uint8_t *> &header)[:sizeof(header)] + b"".join(entries)
    header.crc = jlog_structure_crc(<const uint8_t *> content, len(content))
    return (<uint8_t *> &header)[:sizeof(header)] + content[sizeof(header):]


def write_index(directory, uint64_t segment, bytes uuid not None, uint64_t end_offset, temporary_name,
                check=None) -> SparseIndex:
    """Builds the index of a sealed segment and writes its file. The file gets its name once it is complete, and after `check`,
    which may raise."""
    index = build_index(directory, segment, uuid, end_offset)
    content = index_content(index, segment, uuid)

    def write(fd):
        write_whole(fd, content, 0)
        if check is not None:
            check()

    make_file(file_in(directory, index_name(segment)), write, temporary_name, sync=False)
    return index


def index_bytes_max(uint64_t segment_bytes) -> int:
    """Returns the size that no index of a segment of this size exceeds: an entry for each 64 KiB, the first one, and that of
    the end, and an earliest time for each."""
    cdef uint64_t entries = segment_bytes // JLOG_INDEX_EVERY_BYTES + 2
    return sizeof(jlog_index_header) + entries * (sizeof(jlog_index_entry) + sizeof(int64_t))


def read_index(directory, uint64_t segment, bytes uuid not None):
    """Returns the index that the file holds; None if the file is missing, damaged or another journal's. Raises
    UnsupportedFormat for a later version."""
    try:
        most = index_bytes_max(stat_file(file_in(directory, segment_name(segment))).st_size)
        content = read_small(file_in(directory, index_name(segment)), most)
    except (OSError, JournalError):
        return None
    return parse_index(content, segment, uuid)


def parse_index(bytes content not None, uint64_t segment, bytes uuid not None):
    """Returns the index that is the content of a file; None if it is damaged or another segment's. Raises UnsupportedFormat for
    a later version."""
    cdef jlog_index_header *header
    cdef jlog_index_entry *entries
    cdef const int64_t *earliest
    cdef bint stated
    cdef uint64_t count, i
    if len(content) < <Py_ssize_t> sizeof(jlog_index_header):
        return None
    header = <jlog_index_header *> <const uint8_t *> content
    if memcmp(header.magic, JLOG_INDEX_MAGIC, 8) != 0:
        return None
    if header.crc != jlog_structure_crc(header, len(content)):
        return None
    if header.version > JLOG_FORMAT_VERSION:
        raise UnsupportedFormat(f"{index_name(segment)} has format version {header.version}, this jlog reads up to "
                                f"{JLOG_FORMAT_VERSION}: upgrade pyjlog")
    count = jlog_index_entries(<const uint8_t *> content, len(content), uuid, segment)
    if count == 0:
        return None
    entries = <jlog_index_entry *> (header + 1)
    earliest = <const int64_t *> (entries + count)
    stated = <const uint8_t *> earliest < <const uint8_t *> content + len(content)
    return SparseIndex([(entries[i].first_sequence, entries[i].offset, entries[i].max_timestamp_us)
                        for i in range(count)], [earliest[i] for i in range(count)] if stated else None)


def load_index(directory, uint64_t segment, bytes uuid not None, uint64_t end_offset) -> SparseIndex:
    """Returns the index of a sealed segment: from its file if that agrees with the segment's end, otherwise built anew. It is
    not written, because a reader may have no right to write."""
    index = read_index(directory, segment, uuid)
    if index is not None and index.end[1] == end_offset:
        return index
    return build_index(directory, segment, uuid, end_offset)


def locate(directory, uint64_t segment, bytes uuid not None, uint64_t end_offset, uint64_t sequence) -> tuple:
    """Returns (first sequence, offset) of a block at or before this sequence. An entry of a file is checked against its
    block."""
    first, offset, _ = load_index(directory, segment, uuid, end_offset).locate(sequence)
    if not points_at_block(directory, segment, uuid, first, offset):
        first, offset, _ = build_index(directory, segment, uuid, end_offset).locate(sequence)
    return first, offset


def points_at_block(directory, uint64_t segment, bytes uuid not None, uint64_t first, uint64_t offset) -> bool:
    cdef SegmentFile file = SegmentFile(directory, segment, uuid, check_header=False)
    return file.read_block(offset, False) == JLOG_BLOCK_VALID and file.walk.header.first_sequence == first


def segment_end(directory, uint64_t segment, uint64_t following, bytes uuid not None) -> tuple:
    """Returns (offset, sequence, True): the end of a sealed segment, as the next one's header states it. If that header is
    damaged, cannot be read, or states another segment before it, which is missing, returns the end of the segment's own blocks,
    and False. Raises FileNotFoundError if the next segment was removed."""
    try:
        header = SegmentFile(directory, following, uuid)
        if header.previous_segment == segment:
            return header.previous_end_offset, header.previous_end_sequence, True
    except FileNotFoundError:
        raise
    except (JournalError, OSError):
        pass
    sequence, offset, _ = build_index(directory, segment, uuid, (1 << 63)).end
    return offset, sequence, False
