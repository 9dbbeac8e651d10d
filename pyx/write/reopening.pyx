"""Makes a journal whole when the first process opens it: the writers before it have closed, or have died, or the power has
failed."""

from libc.string cimport memset

from jlog._core.format.format cimport JLOG_NONE
from jlog._core.system.lock cimport Deadline
from jlog._core.buffer.page cimport jlog_has_immutable, jlog_open_slot, jlog_page, jlog_slot, jlog_unwritten_slot
from jlog._core.buffer.room cimport jlog_least_reserved
from jlog._core.system.atomic cimport JLOG_WAITERS
from jlog._core.segments.segment cimport SegmentFile
from jlog._core.append.append cimport apply_options
from jlog._core.process.operation cimport Operation, Options
from jlog._core.append.operations cimport Operations
from jlog._core.process.process cimport WritingProcess
from jlog._core.process.takeover cimport finish_replacing, complete_takeover
from jlog._core.append.write_back cimport write_back_for

from jlog._core.recover.abandoned_buffer import only_processes_died
from jlog._core.recover.recovery import copy_unsynced, recover_after_power_loss
from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.segments.segment import segment_name
from jlog.system.files import file_in, stat_file


cdef bint recover(Operations operations, const Options *options, Deadline deadline) except -1:
    """Makes the journal whole. No other process writes to it, and none can open it while the open lock is held. Returns whether
    files had to be rewritten after a failed sync."""
    cdef WritingProcess process = operations.process
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot
    cdef bint died, rewritten_after_failed_sync = False
    bounds = process.bounds.read()
    died = only_processes_died(process.path, process.uuid, process.precommit, bounds)
    if died:
        forget_derived(operations, bounds)
        complete_for_dead(operations)
        if page.sync_error != 0:
            slot = jlog_open_slot(page)
            # The kernel may have dropped pages that it could not write. If it did, this is the same as a power loss.
            rewritten_after_failed_sync = died = copy_unsynced(process.path, process.uuid, bounds, slot.segment, slot.offset)
            process.descriptors.forget_before(JLOG_NONE)  # they are descriptors of replaced files
            if died:
                page.syncs_ended = page.syncs_begun
                page.sync_error = 0
    if not died:  # this recovery also clears sync_error, because no block depends on the failed sync any more
        recover_after_power_loss(process.path, process.uuid, process.epoch, process.precommit, process.bounds,
                                 options.segment_bytes, deadline)
    apply_options(page, options)
    slot = jlog_open_slot(page)
    page.reserved_end = max(stat_file(file_in(process.path, segment_name(slot.segment))).st_size,
                            jlog_least_reserved(slot))
    # `bounds` is synced even if it is unchanged. A process may have been killed between its write and its fdatasync: then a
    # power loss could bring back an old closed end, and sequences would be used twice.
    operations.reserve_sequences(0, deadline)
    return rewritten_after_failed_sync


cdef int forget_derived(Operations operations, bounds) except -1:
    """Computes anew all fields but the generation, the slots and their words: no process has checked the page meanwhile, and no
    checksum covers the rest of it."""
    cdef WritingProcess process = operations.process
    cdef jlog_page *page = process.buffer.page
    cdef jlog_slot *slot
    cdef Operation takeover
    memset(&takeover, 0, sizeof(takeover))
    page.counters.takeovers += page.append_lock & ~JLOG_WAITERS != 0
    page.append_lock = page.sync_lock = page.write_lock = page.sync_group = page.sync_arrivals = page.sync_served = 0
    operations.raise_unless_done(finish_replacing(process, &takeover), &takeover)
    slot = jlog_open_slot(page)
    if jlog_has_immutable(page):
        page.floor_us = page.immutable.clock_us
    else:
        file = SegmentFile(process.path, slot.segment, process.uuid)
        previous, _ = file.block_at(slot.previous_offset or SEGMENT_HEADER_BYTES)
        page.floor_us = file.created_us if previous is None else previous.clock_us
    page.reservation_limit = page.closed = page.durable_generation = 0
    page.state = page.generation - 1
    # The durable end must not move back for readers that have seen it. The synced mark may still lie before it.
    if not bounds.mark_sequence <= page.durable_end <= jlog_unwritten_slot(page).first_sequence:
        page.durable_end = bounds.mark_sequence
    page.durable_segment = bounds.mark_segment
    return 0


cdef int complete_for_dead(Operations operations) except -1:
    """Completes or undoes the steps that dead processes left half done."""
    cdef WritingProcess process = operations.process
    cdef Operation takeover
    memset(&takeover, 0, sizeof(takeover))
    operations.raise_unless_done(complete_takeover(process, &takeover), &takeover)
    operations.raise_unless_done(write_back_for(process, &takeover), &takeover)
    return 0
