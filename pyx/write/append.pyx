"""What is done under the append lock: the call's records go into the open block, or into one of their own; options,
counts and rolls. Without the interpreter throughout; an error unlocks and is raised by the caller.

Each step is the one of the same name in tools/model.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from jlog._core.write.closing cimport close_block, defer_block, is_plain, settle, write_out
from jlog._core.write.direct cimport reserve, write_direct
from jlog._core.format.format cimport (
    JLOG_SHORT_BYTES,
    JLOG_TAG_EXPLICIT,
    jlog_block_header,
    jlog_crc32c,
    jlog_encode_short,
    jlog_load32,
    jlog_record_bytes,
    jlog_short_head,
    jlog_store32,
)
from jlog._core.write.member cimport (
    ADOPT,
    APPEND,
    COUNT,
    DONE,
    FLUSH,
    NEEDS_BODY,
    NEEDS_LEASE,
    NEEDS_ROOM,
    NEEDS_SEGMENT,
    NEEDS_STATE,
    OPTIONS,
    SYNC_FAILED,
    TURN,
    Call,
    Member,
    Options,
)
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES,
    jlog_body,
    jlog_is_unwritten,
    jlog_open_slot,
    jlog_page,
    jlog_slot,
    jlog_word_used,
)
from jlog._core.buffer.publish cimport jlog_block_base, jlog_block_crc, jlog_clamped_now_us, jlog_publish
from jlog._core.buffer.room cimport jlog_begin_period, jlog_block_room, jlog_is_full, jlog_may_append, jlog_period_is_over
from jlog._core.system.atomic cimport jlog_store_release
from jlog._core.system.clock cimport jlog_clock_us, jlog_now_us
from jlog._core.write.roll cimport adopt, has_records, replace, roll, state_is_newer

cdef extern from "Python.h" nogil:
    PyObject *tuple_item "PyTuple_GET_ITEM" (PyObject *values, Py_ssize_t index)
    char *bytes_data "PyBytes_AS_STRING" (PyObject *value)
    Py_ssize_t bytes_size "PyBytes_GET_SIZE" (PyObject *value)


cdef enum:
    CLOCK_REALTIME = 0
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
    if member.buffer.page.unrepaired != 0:
        status = member.repair(call)
        if status != DONE:
            return status
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
        return settle(member, call) if jlog_is_unwritten(member.buffer.page, call.flushed_generation) else DONE
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
        jlog_store_release(&page.rolling, 0)  # first: a takeover would count as the last roll did
        page.sealed_bytes = call.sealed_bytes
    return DONE


# --- Into the open block --------------------------------------------------------------------------------------


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
    # Unsigned, for any base may stand in the body.
    cdef uint64_t delta_us = <uint64_t> now_us - <uint64_t> jlog_block_base(&member.buffer, slot, now_us)
    cdef PyObject *value
    cdef size_t size
    cdef uint64_t i
    cdef uint32_t crc
    if delta_us > UINT32_MAX:
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


# --- Into a block of its own ----------------------------------------------------------------------------------


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
