"""Makes one attempt at an operation under the append lock: it appends records to the open block or as a direct block, changes
options, counts, or rolls.

All of it runs without the interpreter. After an error the lock is released, and the caller raises. The steps are those of
tools/model.
"""

from cpython.ref cimport PyObject
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from jlog._core.append.write_back cimport close_block, defer_block, drain, is_plain, write_back
from jlog._core.append.direct_block cimport reserve, write_direct
from jlog._core.format.format cimport (
    JLOG_SHORT_BYTES, JLOG_TAG_EXPLICIT, jlog_block_header, jlog_crc32c, jlog_decode_record, jlog_is_state, jlog_encode_short,
    jlog_load32, jlog_record, jlog_record_bytes, jlog_record_id, jlog_short_head, jlog_store32)
from jlog._core.records.encode cimport Records
from jlog._core.process.operation cimport (
    INGEST, APPEND, COUNT, DONE, FLUSH, NEEDS_BODY, NEEDS_IDS, NEEDS_RESERVATION, NEEDS_SPACE, NEEDS_SEGMENT, NEEDS_STATE,
    OPTIONS, SYNC_FAILED, TURN, Ingest, Append, ChangeOptions, Count, Flush, NewRecords, Operation, Options, Rolling)
from jlog._core.process.process cimport WritingProcess
from jlog._core.process.takeover cimport complete_takeover, take_append_lock
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES, jlog_body, jlog_is_unwritten, jlog_open_slot, jlog_page, jlog_slot, jlog_word_raw, jlog_word_used)
from jlog._core.buffer.publish cimport jlog_block_base, jlog_block_crc, jlog_now_or_floor_us, jlog_publish
from jlog._core.buffer.room cimport jlog_begin_period, jlog_block_room, jlog_is_full, jlog_may_append, jlog_period_is_over
from jlog._core.system.atomic cimport jlog_store_release
from jlog._core.system.clock cimport CLOCK_REALTIME, jlog_clock_us, jlog_now_us
from jlog._core.append.roll cimport ingest, has_records, replace, roll, state_is_newer

cdef extern from "Python.h" nogil:
    PyObject *tuple_item "PyTuple_GET_ITEM" (PyObject *values, Py_ssize_t index)
    char *bytes_data "PyBytes_AS_STRING" (PyObject *value)
    Py_ssize_t bytes_size "PyBytes_GET_SIZE" (PyObject *value)


cdef enum:
    STATE_SEGMENT_BYTES_MIN = 4 << 20  # several times the size of the largest live state, even one with many small keys


cdef int attempt(WritingProcess process, Operation *operation) noexcept nogil:
    """Takes the append lock, does as much of the operation as it can, and releases the lock."""
    cdef int status = take_append_lock(process, operation)
    return step_and_release(process, operation) if status == DONE else status


cdef int step_and_release(WritingProcess process, Operation *operation) noexcept nogil:
    """Does what step() does, then releases the append lock, and writes back the block that the operation has closed."""
    cdef int status = step(process, operation)
    process.locks.release(&process.buffer.page.append_lock)
    if operation.closing.writes_back:
        write_back(process, operation)
    return status


cdef int step(WritingProcess process, Operation *operation) noexcept nogil:
    """Does as much of the operation as it can. The caller holds the append lock."""
    cdef Append *append
    cdef int status
    if process.buffer.page.sync_error != 0:
        operation.error = process.buffer.page.sync_error
        return SYNC_FAILED
    if process.buffer.page.unrepaired != 0:
        status = complete_takeover(process, operation)
        if status != DONE:
            return status
    if operation.kind == APPEND:
        append = <Append *> operation
        if append.id != NULL and not is_new_id(process, append):
            return NEEDS_IDS
        return put_direct(process, append) if append.direct else put(process, append)
    if operation.kind == OPTIONS:
        apply_options(process.buffer.page, (<ChangeOptions *> operation).options)
        return DONE
    if operation.kind == COUNT:
        return count_sealed(process.buffer.page, <Count *> operation)
    if operation.kind == TURN:
        return turn_period(process, operation)
    if operation.kind == INGEST:
        return ingest(process, <Ingest *> operation)
    if operation.kind == FLUSH:
        return flush(process, <Flush *> operation)
    status = close_block(process, operation)
    if status != DONE:
        return status
    return roll(process, operation) if has_records(process.buffer.page) else DONE


cdef int flush(WritingProcess process, Flush *flush) noexcept nogil:
    """Writes back the block that was open when the call began. It does not wait for later blocks, because other writers could
    go on filling them for ever."""
    cdef jlog_page *page = process.buffer.page
    if flush.generation == 0:
        flush.generation = page.generation
        page.counters.flushes += 1
    if page.generation == flush.generation:
        return close_block(process, &flush.head)
    return drain(process, &flush.head) if jlog_is_unwritten(page, flush.generation) else DONE


cdef void apply_options(jlog_page *page, const Options *options) noexcept nogil:
    """Stores the options in the page. The caller holds the append lock, or no other process writes."""
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


cdef int count_sealed(jlog_page *page, Count *count) noexcept nogil:
    """Takes the size that was counted outside the lock, unless a segment was sealed meanwhile."""
    count.taken = jlog_open_slot(page).segment == count.segment
    if count.taken:
        jlog_store_release(&page.rolling, 0)  # first, because a takeover would restore the size that the last roll stored
        page.sealed_bytes = count.sealed_bytes
    return DONE


# --- Once ----------------------------------------------------------------------------------------------------


cdef bint is_new_id(WritingProcess process, Append *append) noexcept nogil:
    """Returns whether no record from `known_end` on has the operation's id. Returns False too if some of them are not in the
    open block, which alone can be searched under the lock."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot
    cdef jlog_record record
    cdef const uint8_t *at
    cdef const uint8_t *id
    cdef uint64_t sequence
    cdef size_t left, size
    cdef uint32_t id_bytes = 0
    if page.next_sequence == append.known_end:
        return True
    slot = jlog_open_slot(page)
    sequence = slot.first_sequence
    if append.known_end < sequence:
        return False
    at = jlog_body(&process.buffer, slot.generation) + JLOG_BASE_BYTES
    left = jlog_word_raw(slot.publish_word)
    while left != 0:
        size = jlog_decode_record(at, left, 0, &record)
        if size == 0:
            return False
        if not jlog_is_state(&record):
            if sequence >= append.known_end:
                id = jlog_record_id(&record, &id_bytes)
                if id != NULL and id_bytes == append.id_bytes and memcmp(id, append.id, id_bytes) == 0:
                    return False
            sequence += 1
        at += size
        left -= size
    append.known_end = sequence  # the next attempt searches only what is appended from now on
    return True


# --- Into the open block --------------------------------------------------------------------------------------


cdef int put(WritingProcess process, Append *append) noexcept nogil:
    cdef jlog_page *page = process.buffer.page
    cdef Operation *operation = &append.new.head
    cdef jlog_slot *slot
    cdef uint32_t start
    cdef int status
    while True:
        status = turn_period(process, operation)
        if status != DONE:
            return status
        slot = jlog_open_slot(page)
        start = jlog_block_room(page, slot, append.new.records.bytes)
        if start != 0:
            if not jlog_may_append(page, append.new.records.count):
                return NEEDS_RESERVATION
            if encode(process, append, slot, start):
                return DONE
        if jlog_word_used(slot.publish_word) != 0:
            status = defer_block(process, operation) if is_plain(page, slot, operation) else close_block(process, operation)
        elif slot.capacity < JLOG_BASE_BYTES + append.new.records.bytes:
            if slot.capacity == page.capacity or not has_records(page):
                return put_direct(process, append)
            status = roll(process, operation)
        elif jlog_is_full(page, slot.offset):
            return NEEDS_SPACE
        else:
            status = reserve(process, operation, slot.offset + sizeof(jlog_block_header) + slot.capacity)
        if status != DONE:
            return status


cdef int turn_period(WritingProcess process, Operation *operation) noexcept nogil:
    """Rolls if the clock has left the period that the open segment's records come from."""
    cdef jlog_page *page = process.buffer.page
    cdef int64_t now_us = jlog_now_us(&process.buffer.clock)
    cdef int status
    if not jlog_period_is_over(page, now_us):
        return DONE
    if page.period_us != 0:
        status = close_block(process, operation)
        if status != DONE:
            return status
        if has_records(page):
            status = roll(process, operation)
            if status != DONE:
                return status
    jlog_begin_period(page, now_us)
    return DONE


cdef bint encode(WritingProcess process, Append *append, jlog_slot *slot, uint32_t start) noexcept nogil:
    """Encodes the records after the published end, and publishes them. Returns False if their time is too far from the base
    of a block that has records already."""
    cdef jlog_page *page = process.buffer.page
    cdef Records *new = &append.new.records
    cdef uint8_t *records = jlog_body(&process.buffer, slot.generation) + start
    cdef uint8_t *at = records
    cdef int64_t now_us = jlog_now_or_floor_us(&process.buffer)
    # The difference is unsigned, because the body may state any base time.
    cdef uint64_t delta_us = <uint64_t> now_us - <uint64_t> jlog_block_base(&process.buffer, slot, now_us)
    cdef PyObject *value
    cdef size_t size
    cdef uint64_t i
    cdef uint32_t crc
    if delta_us > UINT32_MAX:
        return False
    if append.items != NULL:
        for i in range(new.count):
            value = tuple_item(<PyObject *> append.items, i)
            size = bytes_size(value)
            jlog_encode_short(at, jlog_short_head(<uint32_t> delta_us, size), <const uint8_t *> bytes_data(value), size)
            at += JLOG_SHORT_BYTES + size
    else:
        memcpy(at, new.data, new.bytes)
        set_clock_times(at, new.bytes, <uint32_t> delta_us)
    crc = jlog_crc32c(jlog_block_crc(&process.buffer, slot), records, new.bytes)
    if new.explicit_count < new.count:
        page.floor_us = now_us
    page.explicit_count += new.explicit_count
    page.explicit_max_us = max(page.explicit_max_us, new.explicit_max_us)
    append.new.sequence = jlog_publish(&process.buffer, slot, start + <uint32_t> new.bytes, crc, new.count)
    return True


cdef void set_clock_times(uint8_t *at, uint64_t size, uint32_t delta_us) noexcept nogil:
    """Sets the time of the records that have the clock's time. They were encoded before the lock was taken, with 0 microseconds
    from the base time."""
    cdef uint8_t *end = at + size
    while delta_us != 0 and at < end:
        if jlog_load32(at) & JLOG_TAG_EXPLICIT == 0:
            jlog_store32(at + 4, delta_us)
        at += jlog_record_bytes(at, end - at)


# --- Into a block of its own ----------------------------------------------------------------------------------


cdef int put_direct(WritingProcess process, Append *append) noexcept nogil:
    """Appends records that do not fit into the buffer, or that must be in the segment before they are published."""
    cdef jlog_page *page = process.buffer.page
    cdef NewRecords *new = &append.new
    cdef Rolling *rolling = &new.head.rolling
    cdef jlog_slot *slot
    cdef uint64_t bytes_needed
    cdef int status
    if new.stored.data == NULL:
        return NEEDS_BODY
    bytes_needed = sizeof(jlog_block_header) + new.stored.bytes
    while True:
        # The open block gets a rotation of its own, because a takeover looks for a direct block at one place only.
        status = close_block(process, &new.head)
        if status != DONE:
            return status
        if not jlog_may_append(page, new.records.count):
            return NEEDS_RESERVATION
        if new.records.has_state and state_is_newer(page, new.state_generation):
            return NEEDS_STATE
        slot = jlog_open_slot(page)
        if page.limit_bytes != 0 and page.sealed_bytes + slot.offset + bytes_needed > page.limit_bytes:
            return NEEDS_SPACE
        if has_records(page) and bytes_needed > page.segment_bytes // 4:
            rolling.wants_block = True
            if rolling.prepared == NULL or not rolling.prepared.has_block:
                return NEEDS_SEGMENT
            return roll(process, &new.head)
        if new.records.count == 0 and is_full_of_state(page, slot, bytes_needed):
            status = replace(process, &new.head)
            if status != DONE:
                return status
            continue
        rolling.wants_block = False  # segment_bytes may have grown since the records were written to a file
        status = turn_period(process, &new.head)
        if status != DONE:
            return status
        slot = jlog_open_slot(page)
        if has_records(page) and slot.offset + bytes_needed > page.segment_bytes:
            status = roll(process, &new.head)
            if status != DONE:
                return status
            continue
        status = reserve(process, &new.head, slot.offset + bytes_needed)
        return write_direct(process, new, slot) if status == DONE else status


cdef bint is_full_of_state(jlog_page *page, jlog_slot *slot, uint64_t bytes_needed) noexcept nogil:
    """Returns whether the open segment holds only state, and too much of it. It cannot roll, because the next segment would get
    the same name."""
    return not has_records(page) and slot.offset + bytes_needed > max(page.segment_bytes, STATE_SEGMENT_BYTES_MIN)
