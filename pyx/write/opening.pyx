"""Opens a journal for a process that writes to it: the process takes a writer slot. If no other process writes, it makes the
journal whole first."""

import os
import re

from libc.stdint cimport uint64_t
from libc.string cimport memset

from jlog._core.format.dual_slot cimport BoundsFile
from jlog._core.format.format cimport JLOG_NONE
from jlog._core.system.lock cimport OWNERS_BYTE, Deadline, DirectoryLock, LockFile
from jlog._core.buffer.page cimport (
    JLOG_CAPACITY_MAX, JLOG_CAPACITY_MIN, JLOG_OWNERS_MAX, jlog_has_immutable, jlog_open_slot, jlog_page, jlog_slot,
    jlog_unwritten_slot)
from jlog._core.buffer.precommit cimport PAGE_VALID, Precommit
from jlog._core.buffer.room cimport jlog_least_reserved
from jlog._core.segments.segment cimport SegmentFile
from jlog._core.system.atomic cimport JLOG_WAITERS, jlog_unlock
from jlog._core.append.append cimport apply_options, step
from jlog._core.append.write_back cimport write_back_for
from jlog._core.process.operation cimport FLUSH, Flush, Operation, Options
from jlog._core.append.operations cimport Operations
from jlog._core.process.process cimport WritingProcess
from jlog._core.process.takeover cimport complete_takeover, finish_replacing

from jlog._core.format.constants import SEGMENT_HEADER_BYTES
from jlog._core.recover.abandoned_buffer import only_processes_died
from jlog._core.recover.recovery import copy_unsynced, recover_after_power_loss, state_version
from jlog._core.segments.segment import segment_name
from jlog.errors import JournalError, JournalLocked, JournalMoved
from jlog.system import filesystem
from jlog.system.files import file_in, names_in, share, stat_file

_UNFINISHED = re.compile(r"next\.([0-9]{1,4})\.")  # prepared_segments.pyx gives them these names
_UNFINISHED_META = ".journal.meta"  # as storage/meta.py names it


cdef int take_part(Operations operations, uint64_t capacity, Deadline deadline) except -1:
    """Takes a writer slot. If no other process writes, makes the journal whole first. Returns how it has found the journal."""
    cdef WritingProcess process = operations.process
    cdef Options options
    cdef bint alone, rewritten_after_failed_sync = False
    cdef uint64_t wanted
    try:
        filesystem.check_local(process.path)
        process.locks.file = operations.life.lock_file = LockFile(file_in(process.path, "lock"))
    except FileNotFoundError:
        refuse_gone(operations)
        raise
    process.directory_lock = DirectoryLock(process.path)
    process.descriptors.directory = process.path.descriptor()
    held = process.opening(deadline)
    held.take()
    try:
        refuse_deleted(process)
        _, process.epoch, numbers = operations.policy.read(process.path)
        options = as_options(numbers)
        process.bounds = BoundsFile(file_in(process.path, "bounds"), process.uuid, process.locks.file)
        alone = not process.locks.file.is_held(OWNERS_BYTE, JLOG_OWNERS_MAX)
        process.directory_lock.share(alone)
        refuse_second_names(process)
        process.precommit = Precommit(process.path, process.uuid, create=True)
        share(process.precommit.fd, process.descriptors.directory)
        wanted = min(max(capacity, options.precommit, JLOG_CAPACITY_MIN), JLOG_CAPACITY_MAX)
        if alone and not process.precommit.has_bodies():
            process.precommit.grow(wanted)
        process.map_buffer()
        if alone:
            rewritten_after_failed_sync = recover(operations, &options, deadline)
            enlarge(operations, wanted)
        elif process.precommit.identify_beside_writers() != PAGE_VALID:
            raise JournalError(f"{process.precommit.path} is not the page that the journal's writers share; close them all and "
                               "open it again")
        if alone:
            process.epoch = operations.policy.opened_alone(process.path, wanted, process.buffer.page.next_sequence)
        take_slot(operations)
        remove_unfinished(process, alone)
    finally:
        held.give()
    return ALONE_AFTER_FAILED_SYNC if rewritten_after_failed_sync else ALONE if alone else BESIDE_OTHERS


cdef int refuse_gone(Operations operations) except -1:
    """Raises JournalMoved or JournalNotFound if the journal was deleted or moved since its path was looked up."""
    operations.process.path.check()
    uuid, _, _ = operations.policy.read(operations.process.path)
    if uuid != operations.process.uuid:
        raise was_deleted(operations.process)


cdef was_deleted(WritingProcess process):
    return JournalMoved(f"{process.path} was deleted while it was being opened; open it again")


cdef int refuse_deleted(WritingProcess process) except -1:
    """Raises JournalMoved if the journal was deleted or moved while this waited for the open lock. The file whose range this
    process has locked may lie in no directory any more, and others lock another one."""
    process.path.check()
    try:
        if os.path.samestat(os.stat("lock", dir_fd=process.descriptors.directory), os.fstat(process.locks.file.fd)):
            return 0
    except FileNotFoundError:
        pass
    raise was_deleted(process)


cdef int refuse_second_names(WritingProcess process) except -1:
    """Raises JournalError if one of the journal's own files has a second name. A copy by hard links shares them with its
    original: what is written to one of the two destroys the other."""
    for name in ("journal.meta", "lock", "bounds", "precommit"):
        try:
            names = os.stat(name, dir_fd=process.descriptors.directory, follow_symlinks=False).st_nlink
        except FileNotFoundError:
            continue
        if names > 1:
            raise JournalError(f"{os.path.join(process.path, name)} has {names} names, as in a copy by hard links (cp -al, "
                               "rsnapshot): writing to one copy would destroy the other. Copy the journal with "
                               "`jlogtool backup` or cp -a, and remove the copy by hard links")
    return 0


cdef Options as_options(numbers) except *:
    """Converts the tuple of numbers that a policy gives into Options."""
    cdef Options found
    (found.precommit, found.segment_bytes, found.limit_bytes, found.sync_interval_us, found.roll_us, found.codec,
     found.sync_mode) = numbers
    return found


cdef int enlarge(Operations operations, uint64_t capacity) except -1:
    """Enlarges the buffer. This moves the second body, so all records are flushed first. The block that is open afterwards
    keeps its smaller capacity, which fits wherever its body begins."""
    cdef WritingProcess process = operations.process
    cdef Flush flush
    if process.buffer.page.capacity >= capacity:
        return 0
    memset(&flush, 0, sizeof(flush))
    flush.head.kind = FLUSH
    flush.head.closing.plain = True
    operations.raise_unless_done(step(process, &flush.head), &flush.head)
    process.precommit.grow(capacity)
    process.map_buffer()
    process.buffer.page.capacity = process.precommit.room()
    return 0


cdef int take_slot(Operations operations) except -1:
    """Takes a writer slot. If its dead owner held lock words, takes them over and releases them."""
    cdef WritingProcess process = operations.process
    cdef jlog_page *page = process.buffer.page
    cdef Operation takeover
    cdef int status
    if not process.locks.take_slot():
        raise JournalLocked(f"{process.path}: {JLOG_OWNERS_MAX} processes already write to it; close one")
    memset(&takeover, 0, sizeof(takeover))
    if (page.append_lock & ~JLOG_WAITERS) == process.buffer.owner:
        page.counters.takeovers += 1
        status = complete_takeover(process, &takeover)
        process.locks.release(&page.append_lock)
        operations.raise_unless_done(status, &takeover)
    if (page.sync_lock & ~JLOG_WAITERS) == process.buffer.owner:
        jlog_unlock(&page.sync_lock)
    if (page.write_lock & ~JLOG_WAITERS) == process.buffer.owner:
        jlog_unlock(&page.write_lock)  # the immutable block stays marked as unwritten
    return 0


cdef int remove_unfinished(WritingProcess process, bint alone) except -1:
    """Removes the files that a killed process was making in this slot, or in every slot if no other process writes. Removes an
    unfinished `journal.meta` in any case: nobody else makes one now, since this process holds the open lock."""
    for name in names_in(process.path):
        slot = _UNFINISHED.match(name)
        if name == _UNFINISHED_META or slot and (alone or int(slot[1]) == process.locks.slot):
            os.unlink(name, dir_fd=process.descriptors.directory)
    return 0


# --- Making a journal whole: the writers before have closed, or have died, or the power has failed ---------------


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
            process.descriptors.forget(JLOG_NONE, False)  # they are descriptors of replaced files
            if died:
                page.syncs_ended = page.syncs_begun
                page.sync_error = 0
    if not died:  # this recovery also clears sync_error, because no block depends on the failed sync any more
        recover_after_power_loss(process.path, process.uuid, process.epoch, process.precommit, process.bounds,
                                 options.segment_bytes, deadline)
    apply_options(page, options)
    slot = jlog_open_slot(page)
    state_version(process.path, slot.segment, process.uuid)
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
