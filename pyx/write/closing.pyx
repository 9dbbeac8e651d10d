"""How the open block is closed: it goes to its place in the segment, and the next one is open. Under the append lock, or
after it is let go. Without the interpreter; each step is the one of the same name in tools/model."""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from jlog._core.system.file cimport jlog_open_at, jlog_write_two_at
from jlog._core.format.format cimport (
    JLOG_CODEC_LZ4,
    JLOG_CODEC_NONE,
    JLOG_KIND_RECORDS,
    JLOG_NAME_BYTES,
    JLOG_PACKED_BYTES_MIN,
    jlog_block_header,
    jlog_block_header_crc,
    jlog_block_header_valid,
    jlog_crc32c,
    jlog_crc32c_shift,
    jlog_fill_block_header,
    jlog_load64,
    jlog_segment_name,
)
from jlog._core.write.member cimport (
    DAMAGED,
    DONE,
    NEEDS_PACKING,
    NEEDS_PATIENCE,
    NEEDS_WRITE_OUT,
    Call,
    Member,
    failed,
)
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES,
    jlog_body,
    jlog_is_closing,
    jlog_open_slot,
    jlog_page,
    jlog_slot,
    jlog_word_crc,
    jlog_word_raw,
    jlog_word_used,
)
from jlog._core.buffer.publish cimport jlog_clamped_now_us, jlog_switch
from jlog._core.buffer.room cimport jlog_block_capacity
from jlog._core.system.atomic cimport jlog_load32_acquire, jlog_pause, jlog_store_release, jlog_try_lock, jlog_unlock
from jlog._core.system.failpoint cimport JLOG_FAILPOINT

cdef extern from "<fcntl.h>" nogil:
    enum:
        O_RDWR

cdef extern from "<unistd.h>" nogil:
    int close(int fd)


cdef enum:
    SETTLE_TURNS = 4000  # some 100 us: what the write of a block of the default size takes


cdef int close_block(Member member, Call *call) noexcept nogil:
    """The open block goes to its place in the segment, and the next one is open. Nothing to do when it is empty. To be
    compressed it is first closed, and written by whoever comes back with it."""
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef const uint8_t *stored = jlog_body(&member.buffer, slot.generation) + JLOG_BASE_BYTES
    cdef jlog_block_header header
    cdef int error, fd, status = settle(member, call)
    if status != DONE or jlog_word_used(slot.word) == 0:
        return status
    if call.packed.generation != page.generation and not is_plain(page, slot, call):
        if page.closed == page.generation and call.closed_generation != page.generation:
            return NEEDS_PATIENCE
        page.closed = call.closed_generation = page.generation
        JLOG_FAILPOINT(b"close.noted")
        return NEEDS_PACKING
    fd = member.descriptor(slot.segment)
    if fd < 0:
        return failed(call, -fd, b"opening the newest segment")
    fill_header(member, slot, &header)
    if call.packed.generation == page.generation and call.packed.data != NULL:
        header.codec = JLOG_CODEC_LZ4
        stored, header.stored_bytes, header.stored_crc = call.packed.data, call.packed.size, call.packed.crc
        header.header_crc = jlog_block_header_crc(&header, page.uuid, slot.segment, slot.offset)
    JLOG_FAILPOINT(b"close.before_write")
    error = jlog_write_two_at(fd, &header, sizeof(header), stored, header.stored_bytes, slot.offset)
    if error != 0:
        return failed(call, error, b"writing a block")  # it stays open, and is written again
    JLOG_FAILPOINT(b"close.written")
    switch_behind(page, slot, &header)
    call.switched = True
    return DONE


cdef bint is_plain(jlog_page *page, const jlog_slot *slot, const Call *call) noexcept nogil:
    """Whether the open block goes into its segment uncompressed: where it was tried, because it does not become smaller."""
    if call.packed.generation == page.generation:
        return call.packed.data == NULL
    return (page.codec == JLOG_CODEC_NONE or call.plain
            or jlog_word_raw(slot.word) < JLOG_PACKED_BYTES_MIN)


cdef void fill_header(Member member, const jlog_slot *slot, jlog_block_header *header) noexcept nogil:
    """Of the open block, as it is uncompressed."""
    cdef jlog_page *page = member.buffer.page
    cdef const uint8_t *body = jlog_body(&member.buffer, slot.generation)
    cdef uint64_t raw_bytes = jlog_word_raw(slot.word)
    cdef uint64_t records = page.next_sequence - slot.first_sequence
    jlog_fill_block_header(header, JLOG_KIND_RECORDS, False, records, raw_bytes, slot.first_sequence)
    # The running CRC covers the base time, the block's does not: crc(a + b) = shift(crc(a), len(b)) ^ crc(b).
    header.raw_crc = header.stored_crc = jlog_word_crc(slot.word) ^ jlog_crc32c_shift(
        jlog_crc32c(0, body, JLOG_BASE_BYTES), raw_bytes)
    header.base_time_us = jlog_load64(body)
    header.max_timestamp_us = latest_us(page, records)
    header.clock_us = jlog_clamped_now_us(&member.buffer)
    header.durable_end = page.durable_end
    header.header_crc = jlog_block_header_crc(header, page.uuid, slot.segment, slot.offset)


cdef int64_t latest_us(jlog_page *page, uint64_t records) noexcept nogil:
    return page.explicit_max_us if page.explicit_count == records else max(page.clamp_us, page.explicit_max_us)


cdef void switch_behind(jlog_page *page, const jlog_slot *slot, const jlog_block_header *header) noexcept nogil:
    """From the block that was open to the next."""
    cdef uint64_t end = slot.offset + sizeof(header[0]) + header.stored_bytes
    page.counters.blocks += 1
    count_block(page, header.record_count, header.raw_bytes, header.stored_bytes)
    jlog_switch(page, slot.segment, end, page.next_sequence, slot.offset, jlog_block_capacity(page, end))


cdef void count_block(jlog_page *page, uint64_t records, uint64_t raw_bytes, uint64_t stored_bytes) noexcept nogil:
    page.counters.records += records
    page.counters.raw_bytes += raw_bytes
    page.counters.stored_bytes += stored_bytes


# --- Switch, and write out afterwards -------------------------------------------------------------------------


cdef int defer_block(Member member, Call *call) noexcept nogil:
    """The open block is closed, and the next one is open. It goes to its place in the segment once the append lock is let
    go, so that others can fill the next one meanwhile: write_out."""
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef int status = settle(member, call)
    if status != DONE:
        return status
    call.write_fd = member.descriptor(slot.segment)
    if call.write_fd < 0:
        return failed(call, -call.write_fd, b"opening the newest segment")
    if not jlog_try_lock(&page.write_lock, member.buffer.owner):
        return NEEDS_WRITE_OUT
    fill_header(member, slot, &page.closing)
    jlog_store_release(&page.unwritten, page.generation)
    JLOG_FAILPOINT(b"close.deferred")
    call.writes_out = True
    switch_behind(page, slot, &page.closing)
    call.switched = True
    return DONE


cdef int settle(Member member, Call *call) noexcept nogil:
    """There is no closing block: what this call has closed is written now. For another one's the append lock is let go,
    after a moment, since most of that time has passed already."""
    cdef jlog_page *page = member.buffer.page
    cdef int error, _turn
    if call.writes_out:
        error = write_out(member, call)
        return DONE if error == 0 else failed(call, error, b"writing a block")
    for _turn in range(SETTLE_TURNS):
        if not jlog_is_closing(page):
            return DONE
        if jlog_load32_acquire(&page.write_lock) == 0:  # nobody is at it
            break
        jlog_pause()
    return NEEDS_WRITE_OUT


cdef int write_out(Member member, Call *call) noexcept nogil:
    """The closing block to its place, by who has the write lock, which is let go. Returns errno: then it stays the closing
    one, and whoever needs it written tries again."""
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot = &page.slots[page.unwritten & 1]
    cdef const uint8_t *body = jlog_body(&member.buffer, page.unwritten)
    cdef int error
    call.writes_out = False
    JLOG_FAILPOINT(b"close.before_write")
    error = jlog_write_two_at(call.write_fd, &page.closing, sizeof(page.closing), body + JLOG_BASE_BYTES,
                              page.closing.stored_bytes, slot.offset)
    JLOG_FAILPOINT(b"close.written")
    if error == 0:
        jlog_store_release(&page.unwritten, 0)
    jlog_unlock(&page.write_lock)
    return error


cdef int write_out_for(Member member, Call *call) noexcept nogil:
    """The same, by whoever needs it written: its writer has failed, or died. The write lock is held."""
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot
    cdef char name[JLOG_NAME_BYTES]
    cdef int error
    if not jlog_is_closing(page):
        jlog_unlock(&page.write_lock)
        return DONE
    slot = &page.slots[page.unwritten & 1]
    if not jlog_block_header_valid(&page.closing, page.uuid, slot.segment, slot.offset) \
            or page.closing.stored_bytes != jlog_word_raw(slot.word):
        jlog_unlock(&page.write_lock)
        call.what = b"the closing block is not what its header says; close all writers, the next to open alone recovers"
        return DAMAGED
    jlog_segment_name(name, slot.segment)
    call.write_fd = jlog_open_at(member.directory, name, O_RDWR, 0)
    if call.write_fd < 0:
        jlog_unlock(&page.write_lock)
        return failed(call, -call.write_fd, b"opening the newest segment")
    error = write_out(member, call)
    close(call.write_fd)
    return DONE if error == 0 else failed(call, error, b"writing a block")
