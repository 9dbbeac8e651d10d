"""Writes records into a file of their own, without the journal, and ingests the file as a segment without copying it.

The file begins with room for the segment's header and the state, and before each body there is room for the block's header.
These parts depend on the journal. They are written and synced once the journal is known, before the append lock is taken. Under
the lock the file gets its name, if no other records came in between.
"""

import errno
import os
import stat
from collections import namedtuple

from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset

from jlog._core.append.operations cimport Operations
from jlog._core.records.encode cimport EncodedRecords, Records, StoredBody
from jlog._core.system.file cimport (
    OpenFile, check_error, check_result, jlog_read_at, jlog_share, jlog_start_writeback, jlog_sync_data, jlog_write_at)
from jlog._core.format.format cimport (
    JLOG_CODEC_LZ4, JLOG_CODEC_NONE, JLOG_KIND_RECORDS, JLOG_LONG_BYTES, JLOG_NONE, jlog_block_header, jlog_crc32c)
from jlog._core.process.operation cimport INGEST, Ingest, Prepared
from jlog._core.process.process cimport WritingProcess
from jlog._core.buffer.page cimport jlog_page, jlog_slot, jlog_word_used
from jlog._core.system.atomic cimport jlog_load_acquire
from jlog._core.system.clock cimport CLOCK_REALTIME, jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.segments.build cimport jlog_block_content, jlog_build_block_header, jlog_earliest_us, jlog_latest_us
from jlog._core.records.rows cimport body_of_arrow

from jlog._core.format.lz4 import decompress
from jlog._core.segments.build import encode_block, encode_state, segment_start
from jlog.errors import JournalError
from jlog.system.files import file_in, name_error, open_file

cdef enum:
    HEAD_BYTES = 64 << 10  # room before the block of the first body
    TRIES = 3  # attempts while other writers append; ingest() then gives up

_CODECS = {"none": JLOG_CODEC_NONE, "lz4": JLOG_CODEC_LZ4}
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP)  # no link can be created: another file system, or no links

Piece = namedtuple(
    "Piece",
    "offset records raw_bytes stored_bytes codec raw_crc stored_crc explicit_count explicit_max_us earliest_absolute_us",
    module=__name__,
    defaults=[INT64_MIN],  # pieces that an earlier version has written do not say it
)


cdef class SegmentBuilder:
    """Writes a new file at `path`. Each add() writes one piece, which becomes a block. Close the builder before the file is
    ingested. If an add() fails to write, the builder has no pieces any more, and the file is of no use.

    compression: "none" or "lz4".
    """

    cdef readonly str path
    cdef readonly list pieces
    cdef readonly uint64_t bytes  # size of the file so far
    cdef OpenFile file
    cdef int codec

    def __init__(self, path, str compression="none"):
        if compression not in _CODECS:
            raise ValueError(f"compression must be one of {', '.join(_CODECS)}, not {compression!r}")
        self.codec = _CODECS[compression]
        self.path = os.fspath(path)
        self.pieces = []
        self.bytes = HEAD_BYTES
        self.file = open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def add(self, data, /) -> None:
        """Adds records, given and checked as for Writer.extend_arrow."""
        cdef Records records
        cdef StoredBody stored
        cdef int error
        cdef uint64_t offset
        cdef jlog_block_header header  # repeats what the Piece says; the block's own header replaces it
        cdef EncodedRecords body = body_of_arrow(data)
        if body.count == 0:
            return
        body.store(self.codec, &records, &stored)
        offset = self.bytes  # from here to the write no other thread runs
        self.bytes = offset + sizeof(jlog_block_header) + stored.bytes
        self.pieces.append(Piece(offset, records.count, records.bytes, stored.bytes, stored.codec, records.crc, stored.crc,
                                 records.explicit_count, records.explicit_max_us, records.earliest_absolute_us))
        memset(&header, 0, sizeof(header))
        header.record_count, header.raw_bytes, header.stored_bytes = records.count, records.bytes, stored.bytes
        header.codec, header.raw_crc, header.stored_crc = stored.codec, records.crc, stored.crc
        with nogil:
            error = jlog_write_at(self.file.fd, <const uint8_t *> &header, sizeof(header), offset)
            if error == 0:
                error = jlog_write_at(self.file.fd, stored.data, stored.bytes, offset + sizeof(header))
        if error != 0:
            self.pieces.clear()
            check_error(error, self.path)

    def start_writeback(self) -> None:
        """Begins to write the file's pages to the disk, so that a later sync has less to wait for."""
        jlog_start_writeback(self.file.fd, self.bytes)

    def sync(self) -> None:
        """Returns when the file's bytes survive a power loss. Its name may still be lost."""
        cdef int error
        with nogil:
            error = jlog_sync_data(self.file.fd)
        check_error(error, self.path)

    def close(self) -> None:
        self.file.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()


def read_piece(path, piece not None, EncodedRecords body not None) -> None:
    """Adds the records of a piece to a body. Raises JournalError if the file does not hold them any more, and ValueError for a
    piece of another file."""
    cdef OpenFile file
    cdef uint64_t offset = piece.offset + sizeof(jlog_block_header)
    cdef uint64_t size = piece.stored_bytes
    cdef size_t start = body.size
    cdef uint8_t *to
    cdef int64_t got
    body.take()
    try:
        check_regular(path)
        file = open_file(path)
        try:
            check_piece(file.fd, path, piece)
            to = body.extend(size)
            with nogil:
                got = jlog_read_at(file.fd, to, size, offset)
        finally:
            file.close()
        if <uint64_t> check_result(got, path) != size or jlog_crc32c(0, to, size) != piece.stored_crc:
            raise spoiled(path, piece.offset, "the piece fails its checksum")
        if piece.codec == JLOG_CODEC_LZ4:
            try:
                raw = decompress(to[:size], piece.raw_bytes)
            except ValueError as error:
                raise spoiled(path, piece.offset, str(error)) from None
            body.size = start
            body.append(raw)
        body.count += piece.records
        body.explicit_count += piece.explicit_count
        body.explicit_max_us = max(body.explicit_max_us, <int64_t> piece.explicit_max_us)
        start = body.size
    finally:
        body.size = start
        body.taken = False


cdef int check_regular(path) except -1:
    if not stat.S_ISREG(os.stat(path, follow_symlinks=False).st_mode):
        raise JournalError(f"{path} is not a regular file; give the one that the SegmentBuilder has written")
    return 0


cdef int check_piece(int fd, path, piece) except -1:
    """Raises ValueError if the header that the builder wrote before the piece differs from it. Earlier versions wrote none."""
    cdef jlog_block_header header
    cdef uint64_t offset = piece.offset
    cdef int64_t got
    with nogil:
        got = jlog_read_at(fd, <uint8_t *> &header, sizeof(header), offset)
    if got == sizeof(header) and header.record_count != 0 and tuple(piece[1:7]) != (
            header.record_count, header.raw_bytes, header.stored_bytes, header.codec, header.raw_crc, header.stored_crc):
        raise ValueError(f"{path}: the piece at byte {offset} is not of this file: give the pieces of its own builder")
    return 0


cdef object spoiled(path, offset, reason):
    return JournalError(f"{path}: at byte {offset}: {reason}; write the file anew")


cdef int64_t ingest(Operations operations, str path, pieces, dict state, Deadline deadline) except -1:
    """Makes the file the newest segment. Returns its first sequence; NOT_INGESTED if that is impossible, and then changes
    nothing."""
    cdef Ingest ingest
    cdef jlog_page *page = operations.process.buffer.page
    end = end_of(pieces)
    for _ in range(TRIES):
        operations.flush(deadline)
        place = empty_place(page)
        if place is None:
            continue
        generation, segment, offset, sequence = place
        if sequence == segment:  # the open segment has no record, so it has the name that the file needs
            return NOT_INGESTED
        if page.limit_bytes != 0 and page.sealed_bytes + <uint64_t> (offset + end) > page.limit_bytes:
            return NOT_INGESTED
        if not operations.state.read() or operations.state.generation != <uint64_t> generation:
            continue
        memset(&ingest, 0, sizeof(ingest))
        ingest.new.head.kind = INGEST
        ingest.new.state = <void *> state
        operations.state.check(&ingest.new)
        ingest.completed_for = generation
        ingest.last_offset, ingest.end = pieces[-1].offset, end
        sum_up(&ingest, pieces)
        try:
            if not prepare(operations, &ingest, path, pieces, state, (segment, offset, sequence)):
                return NOT_INGESTED
        except OSError as error:
            name_error(error, operations.process.path)
            raise
        operations.run(&ingest.new.head, deadline)
        if ingest.ingested:
            return ingest.new.sequence
    return NOT_INGESTED


cdef int sum_up(Ingest *ingest, pieces) except -1:
    """Fills in the totals of all pieces."""
    ingest.new.block_count = len(pieces)
    ingest.new.records.has_state = True
    ingest.new.records.explicit_max_us = INT64_MIN
    for piece in pieces:
        ingest.new.records.count += <uint64_t> piece.records
        ingest.new.records.bytes += <uint64_t> piece.raw_bytes
        ingest.new.records.explicit_count += <uint64_t> piece.explicit_count
        ingest.new.stored.bytes += <uint64_t> piece.stored_bytes
    return 0


cdef object end_of(pieces):
    """Returns where the last piece ends. Raises ValueError unless these are all pieces of one builder, in their order."""
    end = HEAD_BYTES
    for piece in pieces:
        if not isinstance(piece, Piece):
            raise TypeError(f"pieces must be those of a SegmentBuilder, not contain {piece!r}")
        if piece.offset != end:
            raise ValueError(f"a piece begins at byte {piece.offset}, and the previous one ends at {end}: give all pieces of "
                             "a builder, in their order")
        end += sizeof(jlog_block_header) + piece.stored_bytes
    if end == HEAD_BYTES:
        raise ValueError("there are no pieces: nothing was added to the builder, or it could not be written")
    return end


cdef object empty_place(jlog_page *page):
    """Returns (generation, segment, offset, first sequence) of the open block; None if it is not empty."""
    cdef uint64_t generation = jlog_load_acquire(&page.generation)
    cdef jlog_slot *slot = &page.slots[generation & 1]
    place = generation, slot.segment, slot.offset, slot.first_sequence
    used = jlog_word_used(jlog_load_acquire(&slot.publish_word))
    return place if used == 0 and jlog_load_acquire(&page.generation) == generation else None


cdef bint prepare(Operations operations, Ingest *ingest, str path, pieces, dict state, previous) except -1:
    """Completes the file under a second name, in the journal's directory, where the operation takes it. Returns False if the
    state does not fit into the file, or the file cannot be a segment."""
    cdef WritingProcess process = operations.process
    cdef Prepared *prepared
    cdef OpenFile file
    head = head_of(operations, state, previous)
    if head is None:
        return False
    check_regular(path)
    name = operations.prepared.next_name()
    try:
        os.link(path, name, dst_dir_fd=process.descriptors.directory, follow_symlinks=False)
    except OSError as error:
        if error.errno in _NO_LINK:
            return False
        raise
    try:
        file = open_file(file_in(process.path, name.decode()), os.O_RDWR)
        prepared = <Prepared *> calloc(1, sizeof(Prepared))
        if prepared == NULL:
            raise MemoryError
    except BaseException:
        os.unlink(name, dir_fd=process.descriptors.directory)
        raise
    cdef int fd = file.detach(&prepared.file)
    prepared.fd = fd
    memcpy(prepared.name, <const char *> <bytes> name, len(name) + 1)
    prepared.has_block = True
    prepared.replaces = JLOG_NONE
    prepared.reserved_end = ingest.end
    try:
        JLOG_FAILPOINT(b"ingest.linked")
        if not can_be_segment(fd, path, ingest.end):
            operations.prepared.drop(prepared)
            return False
        for piece in pieces:
            check_piece(fd, path, piece)
        jlog_share(fd, process.descriptors.directory)
        write_headers(process, ingest, fd, path, pieces, head, previous[2])
        JLOG_FAILPOINT(b"ingest.completed")
    except BaseException:
        operations.prepared.drop(prepared)
        raise
    ingest.new.head.rolling.prepared = prepared
    return True


cdef bint can_be_segment(int fd, str path, uint64_t end) except -1:
    """Returns False if the file
    - has names besides `path` and ours: it may be a segment already, or is about to become one;
    - belongs to another user: others that write to the journal could not write to it;
    - is longer than its pieces: it was a segment once.
    Raises JournalError if it is shorter."""
    found = os.fstat(fd)
    try:
        named = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    if found.st_nlink != 2 or not os.path.samestat(found, named) or found.st_uid != os.geteuid():
        return False
    if <uint64_t> found.st_size < end:
        raise spoiled(path, found.st_size, f"it was truncated: it had {end} bytes")
    return <uint64_t> found.st_size == end


cdef bytes head_of(Operations operations, dict state, previous):
    """Returns the bytes before the first piece: the segment's start, and a block that changes the state. A deletion of a key
    that does not exist pads this block to HEAD_BYTES. Returns None if there is not room enough."""
    cdef WritingProcess process = operations.process
    cdef jlog_page *page = process.buffer.page
    sequence, floor_us = previous[2], page.floor_us
    start = segment_start(process.uuid, process.epoch, sequence, previous, operations.state.values,
                          durable_end=page.durable_end, floor_us=floor_us)
    changes = encode_state(state)
    cdef int64_t room = HEAD_BYTES - <int64_t> (len(start) + sizeof(jlog_block_header) + len(changes) + JLOG_LONG_BYTES)
    if room < 0 or bytes(room) in operations.state.values or bytes(room) in state:
        return None
    return start + encode_block(process.uuid, sequence, len(start), changes + encode_state({bytes(room): None}),
                                max(jlog_clock_us(CLOCK_REALTIME), floor_us), sequence,
                                durable_end=page.durable_end, floor_us=floor_us)


cdef int write_headers(WritingProcess process, Ingest *ingest, int fd, str path, pieces, bytes head,
                       uint64_t sequence) except -1:
    """Writes `head` and the header of each piece's block, and syncs the file. The first record gets `sequence`."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_block_content content
    cdef jlog_block_header header
    cdef int64_t now_us = max(jlog_clock_us(CLOCK_REALTIME), page.floor_us)
    cdef uint64_t segment = sequence, offset
    cdef int error = jlog_write_at(fd, <const uint8_t *> head, len(head), 0)
    ingest.clock_us = now_us
    for piece in pieces:
        if error != 0:
            break
        offset = piece.offset
        content.kind, content.codec, content.has_state = JLOG_KIND_RECORDS, piece.codec, False
        content.record_count = piece.records
        content.first_sequence = sequence
        content.raw_bytes, content.raw_crc = piece.raw_bytes, piece.raw_crc
        content.stored_bytes, content.stored_crc = piece.stored_bytes, piece.stored_crc
        content.base_time_us = now_us
        content.max_timestamp_us = jlog_latest_us(piece.records, piece.explicit_count, piece.explicit_max_us, now_us)
        content.earliest_us = jlog_earliest_us(piece.records, piece.explicit_count, piece.earliest_absolute_us, now_us)
        jlog_build_block_header(&header, &content, now_us, page.durable_end, page.uuid, segment, offset)
        error = jlog_write_at(fd, &header, sizeof(header), offset)
        sequence += header.record_count
    if error == 0:
        with nogil:
            error = jlog_sync_data(fd)
    return check_error(error, path)
