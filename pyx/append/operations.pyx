"""Carries through operations that need the append lock. Between two attempts it does the work that must be done outside the
lock."""

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from jlog._core.system.file cimport OpenFile, close_descriptor, jlog_has_no_name, jlog_start_writeback, plain
from jlog._core.format.format cimport JLOG_RESERVATION_STRIDE
from jlog._core.system.lock cimport OWNERS_BYTE, Deadline
from jlog._core.system.notices cimport warn
from jlog._core.buffer.page cimport jlog_page
from jlog._core.buffer.room cimport jlog_period_is_over
from jlog._core.system.atomic cimport JLOG_WAITERS, jlog_load32_acquire, jlog_raise_to, jlog_spin_lock
from jlog._core.system.clock cimport CLOCK_REALTIME, jlog_clock_us
from jlog._core.append.append cimport attempt as attempt_without_gil, step_and_release
from jlog._core.append.compression cimport compress_open_block, wait_for_generation
from jlog._core.records.encode cimport EncodedRecords
from jlog._core.process.operation cimport (
    APPEND, COUNT, DAMAGED, DONE, FLUSH, NEEDS_BODY, NEEDS_IDS, NEEDS_RESERVATION, NEEDS_COMPRESSION, NEEDS_WAIT, NEEDS_SPACE,
    NEEDS_SEGMENT, NEEDS_STATE, NEEDS_WRITE_BACK, ROLL, SIGNALS, SYNC_FAILED, TAKEN_OVER, TIMED_OUT, TURN, Append, Count, Flush,
    NewRecords, Operation, new_records)
from jlog._core.process.process cimport WritingProcess
from jlog._core.append.roll cimport has_records
from jlog._core.append.write_back cimport write_back_for

from jlog._core.segments.index import segment_end, write_index
from jlog._core.segments.segment import list_segments, segment_name
from jlog._core.system.lock import AT_ONCE
from jlog.errors import CorruptJournal, JournalClosed, JournalFull, JournalLocked
from jlog.system.files import file_in, name_error, open_file

cdef enum:
    QUICK_TURNS = 200  # attempts at the append lock while the GIL is held
    HOLD_GIL_BYTES = 256 << 10  # a smaller write to the page cache is over before another thread could take the GIL


cdef class Operations:
    def __init__(self, WritingProcess process not None, policy not None, Life life not None):
        self.process = process
        self.policy = policy
        self.life = life
        self.state = LiveState(process)
        self.prepared = PreparedSegments(process, self.state)

    cdef int run(self, Operation *operation, Deadline deadline) except -1:
        """Carries the operation through, and returns 0. If it raises, no record of the operation is published; likewise if it
        returns NEEDS_IDS, for an append with an id. The caller has pinned the attachment."""
        cdef NewRecords *new = new_records(operation)
        cdef int status
        if not self.life.may_call():
            raise closed_error(self.process.path)
        operation.deadline_us = deadline.until_us
        kept = []  # keeps alive the bytes that the operation points into
        try:
            while True:
                self.prepared.take_spare(operation)
                status = self.attempt(operation)
                if status == DONE:
                    if new != NULL and new.records.has_state and new.published.generation != 0:
                        self.state.note(new)
                    return 0
                if status == NEEDS_IDS:
                    return status
                if status == NEEDS_BODY:
                    kept.append(self.make_body(<Append *> operation))
                elif status == NEEDS_COMPRESSION:
                    kept.append(compress_open_block(self.process, operation))
                else:
                    self.serve(status, operation, deadline)
        except (CorruptJournal, OSError):
            self.process.check()  # tells whether it is this journal that has failed
            raise
        finally:
            self.tidy_up(operation)

    cdef int attempt(self, Operation *operation) noexcept:
        """Makes one attempt. It holds the GIL if the operation is short and the lock is free."""
        cdef WritingProcess process = self.process
        cdef jlog_page *page = process.buffer.page
        cdef NewRecords *new = new_records(operation)
        cdef int status
        if (new == NULL or new.records.bytes <= HOLD_GIL_BYTES) and jlog_spin_lock(
                &page.append_lock, process.buffer.owner, QUICK_TURNS):
            return step_and_release(process, operation)
        page.counters.waits += 1
        with nogil:
            status = attempt_without_gil(process, operation)
        return status

    cdef object make_body(self, Append *append):
        """Encodes the records for a direct block. Returns the body that the operation points into."""
        cdef EncodedRecords body
        if append.body == NULL:
            body = EncodedRecords.of_values(<tuple> append.items)
        else:
            body = <EncodedRecords> append.body
        append.body = <void *> body
        make_direct(append, self.process.buffer.page.codec)
        return body

    cdef int serve(self, int status, Operation *operation, Deadline deadline) except -1:
        """Does the work that the attempt could not do under the lock. Raises if the attempt has failed."""
        if status == SIGNALS:
            PyErr_CheckSignals()
            if not self.life.may_call():  # the signal's handler has forked, and this is the child
                raise closed_error(self.process.path)
            self.process.refuse_lost()
        elif status == NEEDS_SEGMENT:
            if operation.rolling.rolled:  # it needs a second roll, so the first segment is sealed now
                seal(self.process, operation.rolling.sealed_segment, operation.rolling.sealed_end)
                operation.rolling.rolled = False
            self.process.check()
            try:
                self.prepared.prepare(operation)
            except OSError as error:
                name_error(error, self.process.path)
                raise
        elif status == NEEDS_RESERVATION:
            self.reserve_sequences(new_records(operation).records.count, deadline)
        elif status == NEEDS_WAIT:
            wait_for_generation(self.process, operation)
        elif status == NEEDS_STATE:
            self.state.check(new_records(operation))
        elif status == NEEDS_SPACE:
            self.free_space(operation, deadline)
        elif status == NEEDS_WRITE_BACK:
            self.finish_write_back(operation, deadline)
        else:
            self.raise_unless_done(status, operation)
        return 0

    cdef int finish_write_back(self, Operation *operation, Deadline deadline) except -1:
        """Waits until the immutable block is written. If its writer has failed or died, writes it here."""
        cdef WritingProcess process = self.process
        cdef int status
        with nogil:
            status = process.locks.acquire(&process.buffer.page.write_lock, operation)
            if status == DONE or status == TAKEN_OVER:
                status = write_back_for(process, operation)
        return 0 if status == DONE else self.serve(status, operation, deadline)

    cdef int free_space(self, Operation *operation, Deadline deadline) except -1:
        """Makes space in a journal that has reached its limit. At first it only counts the bytes anew, because another process
        may have cleaned. The second time it cleans, and rolls before, so that the records of the open segment can be removed
        too. Raises JournalFull if that is not enough."""
        limit = self.process.buffer.page.limit_bytes
        if operation.space_attempts == 2:
            raise JournalFull(f"{self.process.path}: its segments have reached the limit of {limit} bytes, and their records "
                              "are still needed; let its subscribers read and commit, remove dead ones, or raise limit_bytes")
        operation.space_attempts += 1
        if operation.space_attempts == 2:
            if has_records(self.process.buffer.page):
                self.roll(deadline)
            if self.care is not None:
                self.care.free_space(deadline)
        self.count_sealed(deadline)
        return 0

    cdef int count_sealed(self, Deadline deadline) except -1:
        """Counts the bytes of the sealed segments for limit_bytes, and stores the result in the page."""
        cdef Count count
        while True:
            memset(&count, 0, sizeof(count))
            count.head.kind = COUNT
            count.segment = self.process.written_place()[0]
            try:
                count.sealed_bytes = sealed_bytes(self.process.path, self.process.uuid, count.segment)
            except FileNotFoundError:
                continue  # cleaned in this moment
            self.run(&count.head, deadline)
            if count.taken:
                return 0

    cdef int raise_unless_done(self, int status, const Operation *operation) except -1:
        if status == DONE:
            return 0
        path, error = plain(self.process.path), operation.error
        what = operation.what.decode() if operation.what != NULL else ""
        if status == TIMED_OUT:
            who = self.append_lock_owner()
            raise JournalLocked(f"{path}: another process{who} held the append lock, or was writing a block, for the whole "
                                "lock_timeout; if that process is stopped, continue or end it")
        if status == DAMAGED:
            raise CorruptJournal(self.process.precommit.path, 0, what)
        if status == SYNC_FAILED:
            raise OSError(error, f"{os.strerror(error)}: an fdatasync of the journal failed, so no process can append any "
                                 "more; close all its writers and open it again", path)
        left = ("nothing of this call is readable; call it again" if operation.kind == APPEND else
                "what was appended before is readable; a later flush or sync writes it once that is possible")
        raise OSError(error, f"{os.strerror(error)}, {what}; {left}", path)

    cdef str append_lock_owner(self):
        cdef uint32_t owner = jlog_load32_acquire(&self.process.buffer.page.append_lock) & ~JLOG_WAITERS
        return self.process.locks.file.holders(OWNERS_BYTE + owner - 1) if owner else ""

    cdef int reserve_sequences(self, uint64_t count, Deadline deadline) except -1:
        """Reserves more sequences: durably in `bounds` first, and then in the page."""
        limit = self.process.buffer.page.next_sequence + count + JLOG_RESERVATION_STRIDE
        self.process.bounds.update(reservation_limit=limit, closed=None, durable=True, deadline=deadline)
        # The page gets the limit that this fdatasync has made durable. `bounds` may hold a later one that is not durable yet.
        jlog_raise_to(&self.process.buffer.page.reservation_limit, limit)
        return 0

    cdef int tidy_up(self, Operation *operation) except -1:
        """Does the work that an operation leaves for the time after the lock. Its records may be published, so no failure here
        may look like a failure of the operation."""
        cdef jlog_page *page = self.process.buffer.page
        self.prepared.keep_or_drop(operation, self.life.may_call())
        try:
            if operation.rolling.rolled:
                seal(self.process, operation.rolling.sealed_segment, operation.rolling.sealed_end)
                if self.care is not None:
                    self.care.after_roll()
            if operation.rotated and page.reservation_limit < page.next_sequence + JLOG_RESERVATION_STRIDE // 2:
                self.reserve_sequences(0, AT_ONCE)
        except JournalLocked:
            pass  # another process writes `bounds`; the next call reserves, and enough sequences are left until then
        except Exception as error:  # noqa: BLE001
            # Another process does it later, or the next roll, or an append that needs the reservation and then raises.
            warn(self.process.path, "left for later", error)
        return 0

    # --- Operations without records -----------------------------------------------------------------------------

    cdef int flush(self, Deadline deadline) except -1:
        """Returns when every record that was appended before is in its segment file."""
        cdef Flush flush
        memset(&flush, 0, sizeof(flush))
        flush.head.kind = FLUSH
        return self.run(&flush.head, deadline)

    cdef int roll(self, Deadline deadline) except -1:
        """Seals the open segment and opens the next one. Does nothing if the open segment has no record yet."""
        cdef Operation roll
        memset(&roll, 0, sizeof(roll))
        roll.kind = ROLL
        return self.run(&roll, deadline)

    cdef bint roll_if_due(self, Deadline deadline) except -1:
        """Rolls if the period of the open segment's records is over, and returns whether it was. Appends roll too, but only
        when they come."""
        cdef jlog_page *page = self.process.buffer.page
        cdef Operation turn
        if page.period_us != 0 and jlog_period_is_over(page, jlog_clock_us(CLOCK_REALTIME)):
            memset(&turn, 0, sizeof(turn))
            turn.kind = TURN
            self.run(&turn, deadline)
            return True
        return False


cdef int make_direct(Append *append, int codec) except -1:
    """Prepares the operation's body to be written as a direct block."""
    (<EncodedRecords> append.body).store(codec, &append.new.records, &append.new.stored)
    append.direct = True
    append.items = NULL
    return 0


def seal(WritingProcess process not None, uint64_t segment, uint64_t end):
    """Completes a sealed segment, outside the lock: cuts off its preallocated end, and writes its index. If this is not done,
    no record is missing: the index is derived, and the next segment's header states where this segment ends."""
    cdef uint64_t _doubtful = 0
    cdef int fd
    process.check()
    fd = process.descriptors.borrow(segment, &_doubtful)
    try:
        if fd < 0:
            fd = (<OpenFile> open_file(file_in(process.path, segment_name(segment)), os.O_RDWR)).detach(NULL)
    except FileNotFoundError:
        return  # cleaned already
    try:
        if jlog_has_no_name(fd):
            return
        os.ftruncate(fd, end)
        jlog_start_writeback(fd, end)
    finally:
        close_descriptor(fd)
    # Looked at once more when the unfinished file is there: a restore in place removes `precommit` first and then this file, so
    # it never gets the name of an index in the restored journal.
    write_index(process.path, segment, process.uuid, end, f"next.{process.locks.slot}.{segment}.idx", lambda: process.check())


def sealed_bytes(path, bytes uuid not None, open_segment) -> int:
    """Returns how many bytes the segments before the open one have."""
    names = [name for name in list_segments(path) if name <= open_segment]
    return sum(segment_end(path, name, following, uuid)[0] for name, following in zip(names, names[1:], strict=False))


def closed_error(path):
    return JournalClosed(f"{path}: this object is closed, or belongs to the process that this one was forked from; open a "
                         "new one")
