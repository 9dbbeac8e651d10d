"""What is done under the append lock: put records into the open block, write it out and switch, write a block directly,
roll. Without the interpreter throughout; an error unlocks and is raised by the caller.

Each step is the one of the same name in tools/model.
"""

from cpython.ref cimport PyObject
from libc.errno cimport EEXIST
from libc.stdint cimport INT64_MIN, UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from jlog._core.file cimport (
    jlog_allocate,
    jlog_inode,
    jlog_open_at,
    jlog_rename_new,
    jlog_rename_over,
    jlog_sync_directory,
    jlog_unlink_at,
    jlog_write_at,
    jlog_write_two_at,
)
from jlog._core.format cimport (
    JLOG_CODEC_LZ4,
    JLOG_CODEC_NONE,
    JLOG_KIND_RECORDS,
    JLOG_NAME_BYTES,
    JLOG_NONE,
    JLOG_PACKED_BYTES_MIN,
    JLOG_SHORT_BYTES,
    JLOG_TAG_EXPLICIT,
    jlog_block_header,
    jlog_block_header_crc,
    jlog_block_header_valid,
    jlog_crc32c,
    jlog_crc32c_shift,
    jlog_encode_short,
    jlog_fill_block_header,
    jlog_load32,
    jlog_load64,
    jlog_record_bytes,
    jlog_segment_header,
    jlog_segment_name,
    jlog_short_head,
    jlog_store32,
)
from jlog._core.member cimport (
    ADOPT,
    APPEND,
    COUNT,
    DAMAGED,
    DONE,
    FAILED,
    FLUSH,
    NEEDS_BODY,
    NEEDS_LEASE,
    NEEDS_PACKING,
    NEEDS_PATIENCE,
    NEEDS_ROOM,
    NEEDS_SEGMENT,
    NEEDS_STATE,
    NEEDS_WRITE_OUT,
    OPTIONS,
    SYNC_FAILED,
    TURN,
    Call,
    Member,
    Options,
    Prepared,
)
from jlog._core.page cimport (
    JLOG_BASE_BYTES,
    JLOG_FAILPOINT,
    jlog_begin_period,
    jlog_block_base,
    jlog_block_crc,
    jlog_block_capacity,
    jlog_block_room,
    jlog_body,
    jlog_clamped_now_us,
    jlog_clock_us,
    jlog_is_closing,
    jlog_is_full,
    jlog_may_append,
    jlog_now_us,
    jlog_open_slot,
    jlog_page,
    jlog_pause,
    jlog_period_is_over,
    jlog_publish,
    jlog_slot,
    jlog_store_release,
    jlog_switch,
    jlog_try_lock,
    jlog_unlock,
    jlog_word_crc,
    jlog_word_used,
)
from jlog._core.segment cimport BLOCK_UNREADABLE, BLOCK_VALID, check_block, fill_segment_header


cdef extern from "<fcntl.h>" nogil:
    enum:
        O_RDWR

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef extern from "Python.h" nogil:
    PyObject *tuple_item "PyTuple_GET_ITEM" (PyObject *values, Py_ssize_t index)
    char *bytes_data "PyBytes_AS_STRING" (PyObject *value)
    Py_ssize_t bytes_size "PyBytes_GET_SIZE" (PyObject *value)


cdef enum:
    CLOCK_REALTIME = 0
    SETTLE_TURNS = 4000  # some 100 us: what the write of a block of the default size takes
    STATE_SEGMENT_BYTES_MIN = 4 << 20  # several times what the largest live state takes, however small its keys are


cdef int attempt(Member member, Call *call) noexcept nogil:
    """Takes the lock, does what the call wants or as much as can be done, lets it go."""
    cdef jlog_page *page = member.buffer.page
    cdef int status = member.acquire(&page.append_lock, call)
    if status != DONE:
        return status
    status = step(member, call)
    member.release(&page.append_lock)
    if call.writes_out:
        write_out(member, call)
    return status


cdef int step(Member member, Call *call) noexcept nogil:
    """The lock is held."""
    cdef int status
    if member.buffer.page.sync_error != 0:
        call.error = member.buffer.page.sync_error
        return SYNC_FAILED
    if call.operation == APPEND:
        return put_direct(member, call) if call.direct else put(member, call)
    if call.operation == OPTIONS:
        apply_options(member.buffer.page, call.options)
        return DONE
    if call.operation == COUNT:
        return count_sealed(member.buffer.page, call)
    if call.operation == TURN:
        return turn_period(member, call)
    if call.operation == ADOPT:
        return adopt(member, call)
    if call.operation == FLUSH:
        # The block that was open when the call began: other writers could go on filling the next one for ever.
        if call.flushed_generation == 0:
            call.flushed_generation = member.buffer.page.generation
            member.buffer.page.counters.flushes += 1
        if member.buffer.page.generation == call.flushed_generation:
            return close_block(member, call)
        return settle(member, call) if member.buffer.page.unwritten == call.flushed_generation else DONE
    status = close_block(member, call)
    if status != DONE:
        return status
    return roll(member, call) if has_records(member.buffer.page) else DONE


cdef void apply_options(jlog_page *page, const Options *options) noexcept nogil:
    """Also without the lock, where nobody else is there."""
    page.segment_bytes = options.segment_bytes
    page.limit_bytes = options.limit_bytes
    page.sync_interval_us = options.sync_interval_us
    page.codec = options.codec
    page.sync_mode = options.sync_mode
    page.options_generation += 1
    if page.roll_us != options.roll_us:
        page.roll_us = options.roll_us
        if page.period_us != 0:
            jlog_begin_period(page, jlog_clock_us(CLOCK_REALTIME))


cdef bint has_options(const jlog_page *page, const Options *options) noexcept nogil:
    return (page.segment_bytes == options.segment_bytes and page.limit_bytes == options.limit_bytes
            and page.sync_interval_us == options.sync_interval_us and page.roll_us == options.roll_us
            and page.codec == options.codec and page.sync_mode == options.sync_mode)


cdef int count_sealed(jlog_page *page, Call *call) noexcept nogil:
    """What was counted outside the lock holds unless a segment was sealed meanwhile."""
    call.count = jlog_open_slot(page).segment == call.segment
    if call.count:
        page.sealed_bytes = call.sealed_bytes
    return DONE


cdef bint has_records(jlog_page *page) noexcept nogil:
    """Whether a block with records is written in the open segment: a name can stand for one file only."""
    cdef jlog_slot *slot = jlog_open_slot(page)
    return slot.first_sequence != slot.segment


cdef int failed(Call *call, int error, const char *what) noexcept nogil:
    call.error = error
    call.what = what
    return FAILED


# --- Into the open block ---------------------------------------------------------------------------------------


cdef int put(Member member, Call *call) noexcept nogil:
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot
    cdef uint32_t start
    cdef int status
    while True:
        status = turn_period(member, call)
        if status != DONE:
            return status
        slot = jlog_open_slot(page)
        start = jlog_block_room(page, slot, call.record_bytes)
        if start != 0:
            if not jlog_may_append(page, call.count):
                return NEEDS_LEASE
            if encode(member, call, slot, start):
                return DONE
        if jlog_word_used(slot.word) != 0:
            status = defer_block(member, call) if is_plain(page, slot, call) else close_block(member, call)
        elif slot.capacity < JLOG_BASE_BYTES + call.record_bytes:
            if slot.capacity == page.capacity or not has_records(page):
                return put_direct(member, call)
            status = roll(member, call)
        elif jlog_is_full(page, slot.offset):
            return NEEDS_ROOM
        else:
            status = reserve(member, call, slot.offset + sizeof(jlog_block_header) + slot.capacity)
        if status != DONE:
            return status


cdef int turn_period(Member member, Call *call) noexcept nogil:
    """Rolls where the clock has left the period that the open segment's records come from."""
    cdef jlog_page *page = member.buffer.page
    cdef int64_t now_us = jlog_now_us(&member.buffer.clock)
    cdef int status
    if not jlog_period_is_over(page, now_us):
        return DONE
    if page.period_us != 0:
        status = close_block(member, call)
        if status != DONE:
            return status
        if has_records(page):
            status = roll(member, call)
            if status != DONE:
                return status
    jlog_begin_period(page, now_us)
    return DONE


cdef bint encode(Member member, Call *call, jlog_slot *slot, uint32_t start) noexcept nogil:
    """The call's records behind the published end, and publishes them. False where their time is too far from the base
    of a block that has records already."""
    cdef jlog_page *page = member.buffer.page
    cdef uint8_t *records = jlog_body(&member.buffer, slot.generation) + start
    cdef uint8_t *at = records
    cdef int64_t now_us = jlog_clamped_now_us(&member.buffer)
    cdef int64_t delta_us = now_us - jlog_block_base(&member.buffer, slot, now_us)
    cdef PyObject *value
    cdef size_t size
    cdef uint64_t i
    cdef uint32_t crc
    if <uint64_t> delta_us > UINT32_MAX:
        return False
    if call.items != NULL:
        for i in range(call.count):
            value = tuple_item(<PyObject *> call.items, i)
            size = bytes_size(value)
            jlog_encode_short(at, jlog_short_head(<uint32_t> delta_us, size), <const uint8_t *> bytes_data(value), size)
            at += JLOG_SHORT_BYTES + size
    else:
        memcpy(at, call.records, call.record_bytes)
        set_clock_times(at, call.record_bytes, <uint32_t> delta_us)
    crc = jlog_crc32c(jlog_block_crc(&member.buffer, slot), records, call.record_bytes)
    if call.explicit_count < call.count:
        page.clamp_us = now_us
    page.explicit_count += call.explicit_count
    page.explicit_max_us = max(page.explicit_max_us, call.explicit_max_us)
    call.sequence = jlog_publish(&member.buffer, slot, start + <uint32_t> call.record_bytes, crc, call.count)
    return True


cdef void set_clock_times(uint8_t *at, uint64_t size, uint32_t delta_us) noexcept nogil:
    """Into records that were encoded before the lock was taken, as if at the base time."""
    cdef uint8_t *end = at + size
    while delta_us != 0 and at < end:
        if jlog_load32(at) & JLOG_TAG_EXPLICIT == 0:
            jlog_store32(at + 4, delta_us)
        at += jlog_record_bytes(at, end - at)


# --- Write out and switch --------------------------------------------------------------------------------------


cdef int64_t latest_us(jlog_page *page, uint64_t records) noexcept nogil:
    return page.explicit_max_us if page.explicit_count == records else max(page.clamp_us, page.explicit_max_us)


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
            or jlog_word_used(slot.word) - JLOG_BASE_BYTES < JLOG_PACKED_BYTES_MIN)


cdef void fill_header(Member member, const jlog_slot *slot, jlog_block_header *header) noexcept nogil:
    """Of the open block, as it is uncompressed."""
    cdef jlog_page *page = member.buffer.page
    cdef const uint8_t *body = jlog_body(&member.buffer, slot.generation)
    cdef uint64_t raw_bytes = jlog_word_used(slot.word) - JLOG_BASE_BYTES
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


cdef void switch_behind(jlog_page *page, const jlog_slot *slot, const jlog_block_header *header) noexcept nogil:
    """From the block that was open to the next."""
    cdef uint64_t end = slot.offset + sizeof(header[0]) + header.stored_bytes
    page.counters.blocks += 1
    count_block(page, header.record_count, header.raw_bytes, header.stored_bytes)
    jlog_switch(page, slot.segment, end, page.next_sequence, slot.offset, jlog_block_capacity(page, end))


# --- Switch, and write out afterwards ---------------------------------------------------------------------------


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
        if page.write_lock == 0:  # nobody is at it
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
            or page.closing.stored_bytes != jlog_word_used(slot.word) - JLOG_BASE_BYTES:
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


cdef void count_block(jlog_page *page, uint64_t records, uint64_t raw_bytes, uint64_t stored_bytes) noexcept nogil:
    page.counters.records += records
    page.counters.raw_bytes += raw_bytes
    page.counters.stored_bytes += stored_bytes


cdef int reserve(Member member, Call *call, uint64_t end) noexcept nogil:
    """Allocates the open segment at least to `end`, its whole size as a rule: a full disk is met here, before anything
    is published."""
    cdef jlog_page *page = member.buffer.page
    cdef uint64_t wanted = max(end, page.segment_bytes)
    cdef int error, fd
    if end <= page.reserved_end:
        return DONE
    fd = member.descriptor(jlog_open_slot(page).segment)
    if fd < 0:
        return failed(call, -fd, b"opening the newest segment")
    error = jlog_allocate(fd, page.reserved_end, wanted)
    if error != 0 and wanted > end:
        wanted = end
        error = jlog_allocate(fd, page.reserved_end, wanted)
    if error != 0:
        return failed(call, error, b"reserving space in the newest segment")
    page.reserved_end = wanted
    return DONE


# --- A block of one's own ---------------------------------------------------------------------------------------


cdef int put_direct(Member member, Call *call) noexcept nogil:
    """Records that do not fit into the buffer, or that must be in the segment before they are published."""
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot
    cdef uint64_t bytes_needed
    cdef int status
    if call.stored == NULL:
        return NEEDS_BODY
    bytes_needed = sizeof(jlog_block_header) + call.stored_bytes
    while True:
        # A switch of its own for the open block: a takeover knows one place only.
        status = close_block(member, call)
        if status != DONE:
            return status
        if not jlog_may_append(page, call.count):
            return NEEDS_LEASE
        if call.has_state and state_is_newer(page, call.state_generation):
            return NEEDS_STATE
        slot = jlog_open_slot(page)
        if page.limit_bytes != 0 and page.sealed_bytes + slot.offset + bytes_needed > page.limit_bytes:
            return NEEDS_ROOM
        if has_records(page) and bytes_needed > page.segment_bytes // 4:
            call.wants_block = True
            if call.prepared == NULL or not call.prepared.has_block:
                return NEEDS_SEGMENT
            return roll(member, call)
        if call.count == 0 and is_full_of_state(page, slot, bytes_needed):
            status = replace(member, call)
            if status != DONE:
                return status
            continue
        call.wants_block = False  # segment_bytes may have grown since the records were written to a file
        status = turn_period(member, call)
        if status != DONE:
            return status
        slot = jlog_open_slot(page)
        if has_records(page) and slot.offset + bytes_needed > page.segment_bytes:
            status = roll(member, call)
            if status != DONE:
                return status
            continue
        status = reserve(member, call, slot.offset + bytes_needed)
        return write_direct(member, call, slot) if status == DONE else status


cdef bint is_full_of_state(jlog_page *page, jlog_slot *slot, uint64_t bytes_needed) noexcept nogil:
    """Where there is no record a roll would find the name taken: it is the open one's."""
    return not has_records(page) and slot.offset + bytes_needed > max(page.segment_bytes, STATE_SEGMENT_BYTES_MIN)


cdef bint state_is_newer(jlog_page *page, uint64_t generation) noexcept nogil:
    """Whether a block with state came since this generation was open. (A note of that generation itself, while it is
    open, is that of a block that was never published.)"""
    return generation <= page.state and generation < page.generation


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
    cdef uint8_t *body = NULL
    cdef size_t room = 0
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
        # whole. Where nobody can tell, nobody may go on.
        status = check_block(fd, page.uuid, slot.segment, slot.offset, &found, &body, &room, &look_error)
        free(body)
        if status == BLOCK_UNREADABLE:
            page.sync_error = look_error
            return failed(call, error, b"writing a block, which cannot be read back either")
        if status != BLOCK_VALID or found.header_crc != header.header_crc:
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
    jlog_switch(page, segment, end, page.next_sequence + call.count, offset, jlog_block_capacity(page, end))
    call.published_generation, call.published_segment, call.published_end = page.generation, segment, end
    call.published_incarnation = page.incarnation
    if call.explicit_count < call.count:
        page.clamp_us = now_us


# --- Roll -------------------------------------------------------------------------------------------------------


cdef int roll(Member member, Call *call) noexcept nogil:
    """The prepared file becomes the open segment. The open block is empty, and the segment before has records."""
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef Prepared *prepared = call.prepared
    cdef uint64_t first = slot.first_sequence, end = prepared.start_bytes if prepared != NULL else 0, offset = 0
    cdef int64_t now_us = 0
    cdef int error, status = settle(member, call)
    if status != DONE:
        return status
    call.wants_name = False
    if prepared == NULL or prepared.has_block != call.wants_block or prepared.replaces != JLOG_NONE:
        return NEEDS_SEGMENT
    if state_is_newer(page, prepared.state_generation):  # it would be lost to the next segment
        return NEEDS_SEGMENT
    complete_start(prepared, page, slot, jlog_clamped_now_us(&member.buffer))
    if prepared.has_block:
        offset = end
        now_us = write_block_header(member, call, prepared, first, offset, &error)
        end = offset + sizeof(jlog_block_header) + call.stored_bytes
    else:
        error = 0
    if error == 0:
        error = jlog_write_at(prepared.fd, prepared.start, prepared.start_bytes, 0)
    if error != 0:
        prepared.spoiled = True
        return failed(call, error, b"writing the next segment's header")
    return open_prepared(member, call, offset, end, now_us)


cdef int adopt(Member member, Call *call) noexcept nogil:
    """The prepared file, a whole segment with its records and synced, becomes the open one: if nothing came since the
    generation that it was completed for."""
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef int status = settle(member, call)
    if status != DONE or page.generation != call.completed_for or jlog_word_used(slot.word) != 0:
        return status
    if not jlog_may_append(page, call.count):
        return NEEDS_LEASE
    return open_prepared(member, call, call.last_offset, call.end, call.clock_us)


cdef int open_prepared(Member member, Call *call, uint64_t offset, uint64_t end, int64_t now_us) noexcept nogil:
    """The prepared file, completed, gets its name and is the open segment. Its blocks end at `end`, the last one of the
    call's records begins at `offset`."""
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef Prepared *prepared = call.prepared
    cdef uint64_t first = slot.first_sequence
    cdef char name[JLOG_NAME_BYTES]
    cdef int64_t began_us
    cdef int error
    JLOG_FAILPOINT(b"roll.completed")
    jlog_segment_name(name, first)
    error = jlog_rename_new(member.directory, prepared.name, name)
    if error == EEXIST:
        # Left by a roll whose every trace should be gone: it can hold nothing that was published.
        error = jlog_unlink_at(member.directory, name)
        if error == 0:
            error = jlog_sync_directory(member.directory)
        if error == 0:
            error = jlog_rename_new(member.directory, prepared.name, name)
    if error != 0:
        prepared.spoiled = True
        return failed(call, error, b"giving the next segment its name")
    error = JLOG_FAILPOINT(b"roll.renamed")
    if error != 0:
        # It must not come back after a power loss under numbers given out again.
        if jlog_unlink_at(member.directory, name) != 0 or jlog_sync_directory(member.directory) != 0:
            page.sync_error = error
        close(prepared.fd)
        prepared.fd = -1
        return failed(call, error, b"rolling")
    call.sealed_segment = slot.segment
    call.sealed_end = slot.offset
    call.rolled = True
    page.reserved_end = prepared.reserved_end
    page.sealed_bytes += slot.offset
    page.period_us = 0
    page.counters.rolls += 1
    if prepared.has_block:
        if call.has_state:
            page.state = page.generation
        # Adopted records may have been completed in the period before: whoever appends next rolls.
        began_us = jlog_now_us(&member.buffer.clock)
        jlog_begin_period(page, min(began_us, call.clock_us) if call.operation == ADOPT else began_us)
        publish_direct(member, call, first, end, offset, now_us)
    else:
        jlog_switch(page, first, end, first, 0, jlog_block_capacity(page, end))
        call.switched = True
    member.adopt_descriptor(first, prepared.fd, prepared.opened)
    prepared.fd = -1
    call.adopted = call.operation == ADOPT
    return DONE


cdef int replace(Member member, Call *call) noexcept nogil:
    """The prepared file, which holds the state as it is, takes the name of the open segment, which holds nothing else. It
    is complete and synced: after a power loss either of the two may have the name."""
    cdef jlog_page *page = member.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef Prepared *prepared = call.prepared
    cdef uint64_t segment = slot.segment
    cdef char name[JLOG_NAME_BYTES]
    cdef int error
    call.wants_name = True
    if prepared == NULL or prepared.replaces != segment or state_is_newer(page, prepared.state_generation):
        return NEEDS_SEGMENT
    page.new_inode, page.new_end = jlog_inode(prepared.fd), prepared.start_bytes
    jlog_store_release(&page.incarnation, page.incarnation + 1)
    JLOG_FAILPOINT(b"replace.noted")
    jlog_segment_name(name, segment)
    error = jlog_rename_over(member.directory, prepared.name, name)
    if error != 0:
        jlog_store_release(&page.incarnation, page.incarnation + 1)
        prepared.spoiled = True
        return failed(call, error, b"giving the next file the open segment's name")
    JLOG_FAILPOINT(b"replace.renamed")
    page.reserved_end = prepared.reserved_end
    jlog_switch(page, segment, prepared.start_bytes, slot.first_sequence, 0,
                jlog_block_capacity(page, prepared.start_bytes))
    JLOG_FAILPOINT(b"replace.switched")
    jlog_store_release(&page.incarnation, page.incarnation + 1)
    call.switched = True
    call.wants_name = False
    member.adopt_descriptor(segment, prepared.fd, prepared.opened)
    prepared.fd = -1
    return DONE


cdef void complete_start(Prepared *prepared, jlog_page *page, jlog_slot *slot, int64_t now_us) noexcept nogil:
    """What could not be known before the lock: where the segment begins, and behind what."""
    cdef jlog_segment_header *header = <jlog_segment_header *> prepared.start
    cdef jlog_block_header *state = <jlog_block_header *> (prepared.start + sizeof(jlog_segment_header))
    fill_segment_header(header, page.uuid, header.epoch, slot.first_sequence, slot.segment, slot.offset,
                        slot.first_sequence, 0)
    state.first_sequence = slot.first_sequence
    state.clock_us = now_us
    state.durable_end = page.durable_end
    state.header_crc = jlog_block_header_crc(state, page.uuid, slot.first_sequence, sizeof(jlog_segment_header))


cdef int64_t write_block_header(Member member, Call *call, Prepared *prepared, uint64_t segment, uint64_t offset,
                                int *error) noexcept nogil:
    cdef jlog_block_header header
    cdef int64_t now_us = fill_direct_header(member, call, &header, segment, offset)
    error[0] = jlog_write_at(prepared.fd, &header, sizeof(header), offset)
    return now_us
