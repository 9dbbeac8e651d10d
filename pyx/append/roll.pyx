"""Makes a prepared file the open segment: it is prepared without the append lock, and completed under it.

All of it runs without the interpreter. The steps are those of tools/model.
"""

from libc.errno cimport EEXIST
from libc.stdint cimport int64_t, uint64_t

from jlog._core.append.write_back cimport drain
from jlog._core.append.direct_block cimport build_direct_header, publish_direct
from jlog._core.system.file cimport (
    close_file, jlog_inode, jlog_rename_new, jlog_rename_over, jlog_sync_directory, jlog_unlink_at, jlog_write_at)
from jlog._core.format.format cimport JLOG_NAME_BYTES, JLOG_NONE, jlog_block_header, jlog_segment_header, jlog_segment_name
from jlog._core.process.operation cimport (
    INGEST, ROLL, DONE, NEEDS_RESERVATION, NEEDS_SEGMENT, Ingest, NewRecords, Operation, Prepared, failed, new_records)
from jlog._core.process.process cimport WritingProcess
from jlog._core.process.takeover cimport complete_takeover
from jlog._core.buffer.page cimport jlog_open_slot, jlog_page, jlog_slot, jlog_word_used
from jlog._core.buffer.publish cimport jlog_floor_ahead_us, jlog_now_or_floor_us, jlog_rotate
from jlog._core.buffer.room cimport jlog_begin_period, jlog_block_capacity, jlog_may_append
from jlog._core.system.atomic cimport jlog_store_release
from jlog._core.system.clock cimport jlog_now_us
from jlog._core.segments.build cimport jlog_place_block_header
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.segments.segment cimport fill_segment_header


cdef bint has_records(jlog_page *page) noexcept nogil:
    """Returns whether the open segment has a block with records. If it has none, the next segment would get the same name."""
    cdef jlog_slot *slot = jlog_open_slot(page)
    return slot.first_sequence != slot.segment


cdef int64_t first_us(WritingProcess process, const Operation *operation) noexcept nogil:
    """Returns the time that the next segment begins with. After a roll that the program asks for it is the clock's, if the
    newest time is far ahead of it: otherwise one record that was appended under a wrong clock would give its time to all later
    ones. Any other roll keeps the time, because the clock may be wrong now, and nobody has said that it is right."""
    cdef int64_t now_us = jlog_now_us(&process.buffer.clock)
    if operation.kind == ROLL and jlog_floor_ahead_us(process.buffer.page, now_us):
        return now_us
    return jlog_now_or_floor_us(&process.buffer)


cdef bint state_is_newer(jlog_page *page, uint64_t generation) noexcept nogil:
    """Returns whether a block with state was published since this generation was open. (An intent of the open generation
    belongs to a block that was never published.)"""
    return generation <= page.state and generation < page.generation


cdef bint is_left(const Prepared *prepared) noexcept nogil:
    """Returns whether there is a file to roll with. The file that the operation had may be the open segment already, or the
    segment before it."""
    return prepared != NULL and prepared.fd >= 0


cdef int roll(WritingProcess process, Operation *operation) noexcept nogil:
    """Makes the prepared file the open segment. The caller has seen that the open block is empty and the segment has
    records."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef Prepared *prepared = operation.rolling.prepared
    cdef uint64_t first = slot.first_sequence, end = prepared.start_bytes if prepared != NULL else 0, offset = 0
    cdef int64_t now_us = 0
    cdef int error, status = drain(process, operation)
    if status != DONE:
        return status
    operation.rolling.wants_name = False
    if not is_left(prepared) or prepared.has_block != operation.rolling.wants_block or prepared.replaces != JLOG_NONE:
        return NEEDS_SEGMENT
    if state_is_newer(page, prepared.state_generation):  # otherwise the next segment would lack that state
        return NEEDS_SEGMENT
    complete_start(prepared, page, slot, first_us(process, operation))
    if prepared.has_block:
        offset = end
        now_us = write_block_header(process, new_records(operation), prepared, first, offset, &error)
        end = offset + sizeof(jlog_block_header) + new_records(operation).stored.bytes
    else:
        error = 0
    if error == 0:
        error = jlog_write_at(prepared.fd, prepared.start, prepared.start_bytes, 0)
    if error != 0:
        prepared.spoiled = True
        return failed(operation, error, b"writing the next segment's header")
    return open_prepared(process, operation, offset, end, now_us)


cdef int ingest(WritingProcess process, Ingest *ingest) noexcept nogil:
    """Turns the prepared file, a synced segment with all its records, into the open segment. Does nothing if other records
    came since the generation that it was completed for."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef int status = drain(process, &ingest.new.head)
    if status != DONE or page.generation != ingest.completed_for or jlog_word_used(slot.publish_word) != 0:
        return status
    if not jlog_may_append(page, ingest.new.records.count):
        return NEEDS_RESERVATION
    status = open_prepared(process, &ingest.new.head, ingest.last_offset, ingest.end, ingest.clock_us)
    ingest.ingested = status == DONE
    return status


cdef int open_prepared(WritingProcess process, Operation *operation, uint64_t offset, uint64_t end,
                       int64_t now_us) noexcept nogil:
    """Gives the completed file its name, and makes it the open segment. Its blocks end at `end`; the last block with the
    operation's records begins at `offset`."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef Prepared *prepared = operation.rolling.prepared
    cdef NewRecords *new = new_records(operation)
    cdef uint64_t first = slot.first_sequence
    cdef int64_t began_us
    cdef int status = give_name(process, operation, first)
    if status != DONE:
        return status
    operation.rolling.sealed_segment = slot.segment
    operation.rolling.sealed_end = slot.offset
    operation.rolling.rolled = True
    store_sealed(page, slot.offset)
    page.counters.rolls += 1
    if prepared.has_block:
        if new.records.has_state:
            page.state = page.generation
        publish_direct(process, new, first, end, offset, now_us)
        # The period begins only now: if it began before and this process were killed, the segment before would go on into this
        # period. If this process is killed here, the new segment ends with its first block. Ingested records may have been
        # completed in the period before; then the next append rolls.
        began_us = jlog_now_us(&process.buffer.clock)
        jlog_begin_period(page, min(began_us, now_us) if operation.kind == INGEST else began_us)
    else:
        jlog_rotate(page, first, end, first, 0, jlog_block_capacity(page, end))
        operation.rotated = True
        if operation.kind == ROLL:  # after the rotation: within a segment times never go back, also if this process is killed
            page.floor_us = first_us(process, operation)
    page.sealed_bytes = page.next_sealed_bytes
    page.reserved_end = prepared.reserved_end
    process.descriptors.take(first, prepared.fd, 0)
    prepared.fd = -1
    return DONE


cdef int give_name(WritingProcess process, Operation *operation, uint64_t first) noexcept nogil:
    """Gives the prepared file the name of the segment that begins with the sequence `first`."""
    cdef Prepared *prepared = operation.rolling.prepared
    cdef int directory = process.descriptors.directory
    cdef char name[JLOG_NAME_BYTES]
    cdef int error
    JLOG_FAILPOINT(b"roll.completed")
    error = process.in_place(operation)
    if error != DONE:
        return error
    jlog_segment_name(name, first)
    error = jlog_rename_new(directory, prepared.name, name)
    if error == EEXIST:
        # A killed roll has left this file, and no takeover has removed it. It can hold no published record.
        error = jlog_unlink_at(directory, name)
        if error == 0:
            error = jlog_sync_directory(directory)
        if error == 0:
            error = jlog_rename_new(directory, prepared.name, name)
    if error != 0:
        prepared.spoiled = True
        return failed(operation, error, b"giving the next segment its name")
    error = JLOG_FAILPOINT(b"roll.renamed")
    if error != 0:
        # The file must not come back after a power loss, when its sequences are used for other records. So it is removed as if
        # this process had been killed: now, or by the next holder of the lock.
        complete_takeover(process, operation)
        close_file(prepared.fd, &prepared.file)
        prepared.fd = -1
        return failed(operation, error, b"rolling")
    return DONE


cdef void store_sealed(jlog_page *page, uint64_t end) noexcept nogil:
    """Stores how many bytes the sealed segments will have once the open one, whose blocks end at `end`, is sealed too. A
    takeover uses them if the roll came as far as the rotation. While they change, there is no intent."""
    jlog_store_release(&page.rolling, 0)
    jlog_store_release(&page.next_sealed_bytes, page.sealed_bytes + end)
    jlog_store_release(&page.rolling, page.generation)


cdef int replace(WritingProcess process, Operation *operation) noexcept nogil:
    """Gives the prepared file the name of the open segment. Both hold the present state and no records. The prepared file is
    complete and synced, so after a power loss either of the two may have the name."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef Prepared *prepared = operation.rolling.prepared
    cdef uint64_t segment = slot.segment
    cdef char name[JLOG_NAME_BYTES]
    cdef int error
    operation.rolling.wants_name = True
    if not is_left(prepared) or prepared.replaces != segment or state_is_newer(page, prepared.state_generation):
        return NEEDS_SEGMENT
    error = process.in_place(operation)
    if error != DONE:
        return error
    page.new_inode, page.new_end = jlog_inode(prepared.fd), prepared.start_bytes
    jlog_store_release(&page.incarnation, page.incarnation + 1)
    JLOG_FAILPOINT(b"replace.intent")
    jlog_segment_name(name, segment)
    error = jlog_rename_over(process.descriptors.directory, prepared.name, name)
    if error != 0:
        jlog_store_release(&page.incarnation, page.incarnation + 1)
        prepared.spoiled = True
        return failed(operation, error, b"giving the next file the open segment's name")
    JLOG_FAILPOINT(b"replace.renamed")
    jlog_rotate(page, segment, prepared.start_bytes, slot.first_sequence, 0,
                jlog_block_capacity(page, prepared.start_bytes))
    page.reserved_end = prepared.reserved_end
    JLOG_FAILPOINT(b"replace.rotated")
    jlog_store_release(&page.incarnation, page.incarnation + 1)
    operation.rotated = True
    operation.rolling.wants_name = False
    process.descriptors.take(segment, prepared.fd, 0)
    prepared.fd = -1
    return DONE


cdef void complete_start(Prepared *prepared, jlog_page *page, jlog_slot *slot, int64_t now_us) noexcept nogil:
    """Fills in the fields that are known only under the lock: where the segment begins, and the segment before it."""
    cdef jlog_segment_header *header = <jlog_segment_header *> prepared.start
    cdef jlog_block_header *state = <jlog_block_header *> (prepared.start + sizeof(jlog_segment_header))
    fill_segment_header(header, page.uuid, header.epoch, slot.first_sequence, slot.segment, slot.offset,
                        slot.first_sequence, 0)
    state.first_sequence = slot.first_sequence
    state.clock_us = now_us
    state.durable_end = page.durable_end
    jlog_place_block_header(state, page.uuid, slot.first_sequence, sizeof(jlog_segment_header))


cdef int64_t write_block_header(WritingProcess process, NewRecords *new, Prepared *prepared, uint64_t segment, uint64_t offset,
                                int *error) noexcept nogil:
    cdef jlog_block_header header
    cdef int64_t now_us = build_direct_header(process, new, &header, segment, offset)
    error[0] = jlog_write_at(prepared.fd, &header, sizeof(header), offset)
    return now_us
