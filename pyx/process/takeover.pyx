"""Completes or undoes the steps that a dead owner of the append lock left half done.

All of it runs under the append lock, without the interpreter. The steps are those of tools/model.
"""

from libc.errno cimport ENOENT
from libc.stdint cimport uint8_t, uint64_t

from jlog._core.system.file cimport jlog_inode_at, jlog_sync_directory, jlog_unlink_at
from jlog._core.format.format cimport (
    JLOG_NAME_BYTES, jlog_block_header, jlog_load64, jlog_segment_name, jlog_walk, jlog_walk_records)
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES, jlog_body, jlog_is_unwritten, jlog_open_slot, jlog_page, jlog_slot, jlog_word_raw, jlog_word_used)
from jlog._core.buffer.publish cimport jlog_rotate
from jlog._core.buffer.room cimport jlog_begin_period, jlog_block_capacity, jlog_least_reserved, jlog_period_length
from jlog._core.system.atomic cimport jlog_store_release
from jlog._core.system.clock cimport CLOCK_REALTIME, jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.segments.walk cimport JLOG_BLOCK_UNREADABLE, JLOG_BLOCK_VALID, jlog_check_block
from jlog._core.process.operation cimport DAMAGED, DONE, TAKEN_OVER, Operation, failed
from jlog._core.process.process cimport WritingProcess


cdef int take_append_lock(WritingProcess process, Operation *operation) noexcept nogil:
    """Takes the append lock, and completes the takeover if its owner has died. Returns DONE; with any other status the lock is
    not taken."""
    cdef jlog_page *page = process.buffer.page
    cdef int status = process.locks.acquire(&page.append_lock, operation)
    if status != TAKEN_OVER:
        return status
    page.counters.takeovers += 1
    status = complete_takeover(process, operation)
    if status != DONE:
        process.locks.release(&page.append_lock)
    return status


cdef int complete_takeover(WritingProcess process, Operation *operation) noexcept nogil:
    """Completes the takeover of the append lock, which this process holds now. If that fails, perhaps because this process
    lacks a resource that another one has, no process appends before the next holder of the lock has completed it."""
    cdef int status = redo_derived_and_noted(process, operation)
    process.buffer.page.unrepaired = status != DONE
    return status


cdef int redo_derived_and_noted(WritingProcess process, Operation *operation) noexcept nogil:
    """Computes the derived fields anew. Undoes the steps that the dead owner left half done, or completes those that cannot be
    undone. If this is killed or fails at any step, the next takeover begins anew."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef const uint8_t *body = jlog_body(&process.buffer, slot.generation)
    cdef jlog_walk walk
    cdef char name[JLOG_NAME_BYTES]
    cdef int error, status
    if jlog_walk_records(body + JLOG_BASE_BYTES, jlog_word_raw(slot.publish_word), jlog_load64(body), &walk) != 0:
        operation.what = b"the open block does not consist of whole records"
        return DAMAGED
    if jlog_is_unwritten(page, page.generation):  # marked for a rotation that did not come
        page.unwritten = 0
    if page.rolling == page.generation - 1:
        page.sealed_bytes = page.next_sealed_bytes
    jlog_store_release(&page.rolling, 0)
    if page.period_us != 0 and page.period_us != jlog_period_length(page):
        jlog_begin_period(page, jlog_clock_us(CLOCK_REALTIME))  # the roll option was about to change
    # The value may be that of another segment, before or after a roll. A second allocation of the same bytes costs nothing.
    page.reserved_end = jlog_least_reserved(slot)
    page.next_sequence = slot.first_sequence + walk.record_count
    page.floor_us = max(page.floor_us, walk.clock_max_us)
    page.explicit_count = walk.explicit_count
    page.explicit_max_us = walk.explicit_max_us
    JLOG_FAILPOINT(b"takeover.derived")
    status = finish_replacing(process, operation)
    if status != DONE:
        return status
    slot = jlog_open_slot(page)
    if page.next_sequence != slot.segment:
        # A killed roll may have left a file with the name that the next roll needs. The directory is synced even if there is
        # no such file: another takeover may have been killed between the removal and the sync, and the file would come back.
        status = process.in_place(operation)
        if status != DONE:
            return status
        jlog_segment_name(name, page.next_sequence)
        error = jlog_unlink_at(process.descriptors.directory, name)
        if error != 0 and error != ENOENT:
            return failed(operation, error, b"removing the file of a killed roll")
        JLOG_FAILPOINT(b"takeover.unlinked")
        error = jlog_sync_directory(process.descriptors.directory)
        if error != 0:
            page.sync_error = error  # a later sync may succeed although the removal that this one lost is not durable
            return failed(operation, error, b"syncing the directory without the file of a killed roll")
    return complete_direct(process, operation)


cdef int finish_replacing(WritingProcess process, Operation *operation) noexcept nogil:
    """Finishes a replacement, in which another file takes the open segment's name. If that file has the name already, only the
    rotation to it is missing. Both files hold the same state."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef char name[JLOG_NAME_BYTES]
    cdef uint64_t inode = 0
    cdef int error
    if not page.incarnation & 1:
        return DONE
    jlog_segment_name(name, slot.segment)
    error = jlog_inode_at(process.descriptors.directory, name, &inode)
    if error != 0:
        return failed(operation, error, b"finding the file with the newest segment's name")
    if inode == page.new_inode and slot.offset != page.new_end:
        JLOG_FAILPOINT(b"takeover.replaced")
        jlog_rotate(page, slot.segment, page.new_end, slot.first_sequence, 0, jlog_block_capacity(page, page.new_end))
        page.reserved_end = page.new_end
    jlog_store_release(&page.incarnation, page.incarnation + 1)
    return DONE


cdef int complete_direct(WritingProcess process, Operation *operation) noexcept nogil:
    """Publishes a whole direct block that its dead writer did not publish, by the rotation that is missing. The block must be
    published, because its sequences could not be used again. A torn block never becomes whole, and is overwritten."""
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot = jlog_open_slot(page)
    cdef jlog_block_header header
    cdef int fd, status, error = 0
    cdef uint64_t end
    if page.direct != page.generation or jlog_word_used(slot.publish_word) != 0:
        return DONE
    fd = process.descriptors.of_open(slot.segment)
    if fd < 0:
        return failed(operation, -fd, b"opening the newest segment")
    status = jlog_check_block(fd, process.precommit.uuid, slot.segment, slot.offset, &header, &error)
    if status == JLOG_BLOCK_UNREADABLE:
        return failed(operation, error, b"reading a block whose writer was killed")
    if status == JLOG_BLOCK_VALID and header.first_sequence == slot.first_sequence:
        end = slot.offset + sizeof(header) + header.stored_bytes
        page.floor_us = max(page.floor_us, header.base_time_us)
        jlog_rotate(page, slot.segment, end, slot.first_sequence + header.record_count, slot.offset,
                    jlog_block_capacity(page, end))
    return DONE
