"""Writes direct blocks, which bypass the buffer: their records do not fit into it, or must be in the segment before they are
published. All of it runs under the append lock, without the interpreter."""

from libc.stdint cimport int64_t, uint64_t

from jlog._core.append.write_back cimport count_block
from jlog._core.system.file cimport jlog_allocate, jlog_write_two_at
from jlog._core.format.format cimport JLOG_KIND_RECORDS, jlog_block_header
from jlog._core.records.encode cimport Records
from jlog._core.process.operation cimport DONE, NewRecords, Operation, failed
from jlog._core.process.process cimport WritingProcess
from jlog._core.buffer.page cimport jlog_open_slot, jlog_page, jlog_slot
from jlog._core.buffer.publish cimport jlog_now_or_floor_us, jlog_rotate
from jlog._core.buffer.room cimport jlog_block_capacity
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.segments.build cimport jlog_block_content, jlog_build_block_header, jlog_earliest_us, jlog_latest_us
from jlog._core.segments.walk cimport JLOG_BLOCK_UNREADABLE, JLOG_BLOCK_VALID, jlog_check_block


cdef int reserve(WritingProcess process, Operation *operation, uint64_t end) noexcept nogil:
    """Allocates the open segment at least up to `end`, and as a rule up to its whole size. So a full disk is met here, before
    any record is published."""
    cdef jlog_page *page = process.buffer.page
    cdef uint64_t reached = 0
    cdef int error, fd
    if end <= page.reserved_end:
        return DONE
    fd = process.descriptors.of_open(jlog_open_slot(page).segment)
    if fd < 0:
        return failed(operation, -fd, b"opening the newest segment")
    error = jlog_allocate(fd, page.reserved_end, end, max(end, page.segment_bytes), &reached)
    if error != 0:
        return failed(operation, error, b"reserving space in the newest segment")
    page.reserved_end = reached
    return DONE


cdef int64_t build_direct_header(WritingProcess process, NewRecords *new, jlog_block_header *header, uint64_t segment,
                                 uint64_t offset) noexcept nogil:
    """Builds the header. Returns its base time, which is the timestamp of every record that the caller gave none."""
    cdef const Records *records = &new.records
    cdef jlog_page *page = process.buffer.page
    cdef jlog_block_content content
    cdef int64_t now_us = jlog_now_or_floor_us(&process.buffer)
    content.kind, content.codec, content.has_state = JLOG_KIND_RECORDS, new.stored.codec, records.has_state
    content.record_count = records.count
    content.first_sequence = page.next_sequence
    content.raw_bytes, content.raw_crc = records.bytes, records.crc
    content.stored_bytes, content.stored_crc = new.stored.bytes, new.stored.crc
    content.base_time_us = now_us
    content.max_timestamp_us = jlog_latest_us(records.count, records.explicit_count, records.explicit_max_us, now_us)
    content.earliest_us = jlog_earliest_us(records.count, records.explicit_count, records.earliest_absolute_us, now_us)
    jlog_build_block_header(header, &content, now_us, page.durable_end, page.uuid, segment, offset)
    return now_us


cdef int write_direct(WritingProcess process, NewRecords *new, jlog_slot *slot) noexcept nogil:
    cdef jlog_page *page = process.buffer.page
    cdef jlog_block_header header, found
    cdef int64_t now_us
    cdef int error, status, look_error = 0, fd = process.descriptors.of_open(slot.segment)
    cdef uint64_t end = slot.offset + sizeof(header) + new.stored.bytes
    if fd < 0:
        return failed(&new.head, -fd, b"opening the newest segment")
    now_us = build_direct_header(process, new, &header, slot.segment, slot.offset)
    page.direct = page.generation
    if new.records.has_state:
        page.state = page.generation
    JLOG_FAILPOINT(b"direct.intent")
    error = jlog_write_two_at(fd, &header, sizeof(header), new.stored.data, new.stored.bytes, slot.offset)
    JLOG_FAILPOINT(b"direct.written")
    if error != 0:
        # If the whole block is there, the append has succeeded in spite of the error, since its numbers could not be given
        # out again. If it is torn, it never becomes whole, and the append has failed. If it cannot be read, all writers
        # stop: otherwise a takeover might publish records whose append has raised.
        status = jlog_check_block(fd, page.uuid, slot.segment, slot.offset, &found, &look_error)
        if status == JLOG_BLOCK_UNREADABLE:
            page.sync_error = look_error
            return failed(&new.head, error, b"writing a block, which cannot be read back either")
        if status != JLOG_BLOCK_VALID or found.header_crc != header.header_crc:
            page.direct = 0
            return failed(&new.head, error, b"writing a block")
    publish_direct(process, new, slot.segment, end, slot.offset, now_us)
    return DONE


cdef void publish_direct(WritingProcess process, NewRecords *new, uint64_t segment, uint64_t end, uint64_t offset,
                         int64_t now_us) noexcept nogil:
    cdef jlog_page *page = process.buffer.page
    new.sequence = page.next_sequence
    page.counters.direct_blocks += max(new.block_count, 1)
    count_block(page, new.records.count, new.records.bytes, new.stored.bytes)
    new.head.rotated = True
    if new.records.explicit_count < new.records.count:
        page.floor_us = now_us  # before others can read records with this time
    jlog_rotate(page, segment, end, page.next_sequence + new.records.count, offset, jlog_block_capacity(page, end))
    new.published.generation, new.published.segment, new.published.end = page.generation, segment, end
    new.published.incarnation = page.incarnation
