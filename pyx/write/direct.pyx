"""Blocks that do not go through the buffer: records that do not fit into it, or that must be in the segment before they
are published. Under the append lock, without the interpreter."""

from libc.stdint cimport INT64_MIN, int64_t, uint32_t, uint64_t

from jlog._core.write.closing cimport count_block
from jlog._core.system.file cimport jlog_allocate, jlog_write_two_at
from jlog._core.format.format cimport (
    JLOG_KIND_RECORDS,
    jlog_block_header,
    jlog_block_header_crc,
    jlog_fill_block_header,
)
from jlog._core.write.member cimport DONE, Call, Member, failed
from jlog._core.buffer.page cimport jlog_open_slot, jlog_page, jlog_slot
from jlog._core.buffer.publish cimport jlog_clamped_now_us, jlog_switch
from jlog._core.buffer.room cimport jlog_block_capacity
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.segments.walk cimport JLOG_BLOCK_UNREADABLE, JLOG_BLOCK_VALID, jlog_check_block


cdef int reserve(Member member, Call *call, uint64_t end) noexcept nogil:
    """Allocates the open segment at least to `end`, its whole size as a rule: a full disk is met here, before anything
    is published."""
    cdef jlog_page *page = member.buffer.page
    cdef uint64_t reached = 0
    cdef int error, fd
    if end <= page.reserved_end:
        return DONE
    fd = member.descriptor(jlog_open_slot(page).segment)
    if fd < 0:
        return failed(call, -fd, b"opening the newest segment")
    error = jlog_allocate(fd, page.reserved_end, end, max(end, page.segment_bytes), &reached)
    if error != 0:
        return failed(call, error, b"reserving space in the newest segment")
    page.reserved_end = reached
    return DONE


cdef int64_t fill_direct_header(Member member, Call *call, jlog_block_header *header, uint64_t segment,
                                uint64_t offset) noexcept nogil:
    """Returns the time of its records that have the clock's."""
    cdef jlog_page *page = member.buffer.page
    cdef int64_t now_us = jlog_clamped_now_us(&member.buffer)
    jlog_fill_block_header(header, JLOG_KIND_RECORDS, call.has_state, call.count, call.record_bytes, page.next_sequence)
    header.raw_crc = call.records_crc
    header.codec, header.stored_bytes, header.stored_crc = call.codec, <uint32_t> call.stored_bytes, call.stored_crc
    header.base_time_us = now_us
    if call.count != 0:
        header.max_timestamp_us = max(now_us if call.explicit_count < call.count else INT64_MIN, call.explicit_max_us)
    header.clock_us = now_us
    header.durable_end = page.durable_end
    header.header_crc = jlog_block_header_crc(header, page.uuid, segment, offset)
    return now_us


cdef int write_direct(Member member, Call *call, jlog_slot *slot) noexcept nogil:
    cdef jlog_page *page = member.buffer.page
    cdef jlog_block_header header, found
    cdef int64_t now_us
    cdef int error, status, look_error = 0, fd = member.descriptor(slot.segment)
    cdef uint64_t end = slot.offset + sizeof(header) + call.stored_bytes
    if fd < 0:
        return failed(call, -fd, b"opening the newest segment")
    now_us = fill_direct_header(member, call, &header, slot.segment, slot.offset)
    page.direct = page.generation
    if call.has_state:
        page.state = page.generation
    JLOG_FAILPOINT(b"direct.noted")
    error = jlog_write_two_at(fd, &header, sizeof(header), call.stored, call.stored_bytes, slot.offset)
    JLOG_FAILPOINT(b"direct.written")
    if error != 0:
        # Whole at its place it has not failed, since its numbers could not be given out again; torn it never becomes
        # whole. Where nobody can tell, nobody may go on: to publish it later would be an append of what has raised.
        status = jlog_check_block(fd, page.uuid, slot.segment, slot.offset, &found, &look_error)
        if status == JLOG_BLOCK_UNREADABLE:
            page.sync_error = look_error
            return failed(call, error, b"writing a block, which cannot be read back either")
        if status != JLOG_BLOCK_VALID or found.header_crc != header.header_crc:
            page.direct = 0
            return failed(call, error, b"writing a block")
    publish_direct(member, call, slot.segment, end, slot.offset, now_us)
    return DONE


cdef void publish_direct(Member member, Call *call, uint64_t segment, uint64_t end, uint64_t offset,
                         int64_t now_us) noexcept nogil:
    cdef jlog_page *page = member.buffer.page
    call.sequence = page.next_sequence
    page.counters.direct_blocks += max(call.block_count, 1)
    count_block(page, call.count, call.record_bytes, call.stored_bytes)
    call.switched = True
    if call.explicit_count < call.count:
        page.clamp_us = now_us  # before others can know of that time
    jlog_switch(page, segment, end, page.next_sequence + call.count, offset, jlog_block_capacity(page, end))
    call.published_generation, call.published_segment, call.published_end = page.generation, segment, end
    call.published_incarnation = page.incarnation
