"""One call that needs the append lock, carried through: what can only be done outside the lock is done in between."""

import logging
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from jlog._core.write.append cimport attempt, step
from jlog._core.write.closing cimport write_out, write_out_for
from jlog._core.write.encode cimport Body, pack
from jlog._core.read.journal_end cimport block_bytes
from jlog._core.system.file cimport jlog_allocate, jlog_create_at, jlog_start_writeback, jlog_sync_data, jlog_write_at
from jlog._core.format.format cimport JLOG_LEASE_STRIDE, JLOG_NONE, JLOG_STATE_BYTES_MAX, jlog_block_header, jlog_crc32c
from jlog._core.system.lock cimport Deadline
from jlog._core.write.member cimport (
    APPEND,
    COUNT,
    DAMAGED,
    DONE,
    FLUSH,
    NEEDS_BODY,
    NEEDS_LEASE,
    NEEDS_PACKING,
    NEEDS_PATIENCE,
    NEEDS_ROOM,
    NEEDS_SEGMENT,
    NEEDS_STATE,
    NEEDS_WRITE_OUT,
    OPEN,
    ROLL,
    SIGNALS,
    SYNC_FAILED,
    TIMED_OUT,
    TURN,
    Call,
    Member,
    Prepared,
)
from jlog._core.buffer.page cimport (
    JLOG_BASE_BYTES,
    jlog_body,
    jlog_first_unwritten,
    jlog_open_slot,
    jlog_page,
    jlog_slot,
    jlog_word_used,
)
from jlog._core.buffer.room cimport jlog_period_is_over
from jlog._core.system.atomic cimport jlog_full_fence, jlog_futex_wait, jlog_load_acquire, jlog_raise_to, jlog_spin_lock
from jlog._core.system.clock cimport jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT
from jlog._core.write.roll cimport has_records
from jlog._core.segments.segment cimport SegmentFile

from jlog._core.segments.index import segment_end, write_index
from jlog._core.system.lock import AT_ONCE, NEVER
from jlog._core.recover.recovery import segment_start
from jlog._core.segments.segment import SEGMENT_HEADER_BYTES, list_segments, segment_name
from jlog.errors import CorruptJournal, JournalClosed, JournalFull, JournalLocked, RecordTooLarge
from jlog.system.files import naming, open_error, open_file


cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    CLOCK_REALTIME = 0
    CLOCK_MONOTONIC = 1
    QUICK_TURNS = 200  # what may be spun away with the GIL held
    HOLD_GIL_BYTES = 256 << 10  # writing less into the page cache is over before another thread has the GIL
    PATIENCE_BYTES_PER_US = 100  # so much at least is compressed by whoever is at it, if it is not stopped
    PATIENCE_MIN_US = 200
    PATIENCE_SLICE_US = 50


cdef class Caller(Member):
    def __dealloc__(self):
        self.drop(self.spare)

    cdef uint64_t run(self, Call *call, Deadline deadline) except? 0xFFFFFFFFFFFFFFFF:
        """Carries the call through. Returns its first sequence, for an append. Raises with nothing of it published."""
        cdef jlog_page *page
        cdef int status
        self.pin()
        page = self.buffer.page
        call.deadline_us = deadline.until_us
        kept = []  # what the call points into
        try:
            while True:
                if call.prepared == NULL and self.spare != NULL:
                    call.prepared, self.spare = self.spare, NULL
                if call.record_bytes <= HOLD_GIL_BYTES and jlog_spin_lock(&page.append_lock, self.buffer.owner, QUICK_TURNS):
                    status = step(self, call)
                    self.release(&page.append_lock)
                    if call.writes_out:
                        write_out(self, call)
                else:
                    page.counters.waits += 1
                    with nogil:
                        status = attempt(self, call)
                if status == DONE:
                    if call.has_state and call.published_generation != 0:
                        self.note_state(call)
                    return call.sequence
                if status == NEEDS_BODY:
                    if call.body == NULL:
                        body = Body.of_values(<tuple> call.items)
                        kept.append(body)
                        call.body = <void *> body
                    (<Body> call.body).describe_direct(call, page.codec)
                elif status == NEEDS_PACKING:
                    kept.append(self.pack_open_block(call))
                else:
                    self.serve(status, call, deadline)
        finally:
            try:
                self.tidy_up(call)
            finally:
                self.unpin()

    cdef int serve(self, int status, Call *call, Deadline deadline) except -1:
        if status == SIGNALS:
            PyErr_CheckSignals()
            if not self.may_call():  # the signal's handler has forked, and this is the child
                raise closed_error(self.path)
        elif status == NEEDS_SEGMENT:
            if call.rolled:  # for the second time
                self.seal(call.sealed_segment, call.sealed_end)
                call.rolled = False
            with naming(self.path):
                self.prepare(call)
        elif status == NEEDS_LEASE:
            self.lease(call.count, deadline)
        elif status == NEEDS_PATIENCE:
            self.wait_for_generation(call)
        elif status == NEEDS_STATE:
            self.check_state(call)
        elif status == NEEDS_ROOM:
            self.make_room(call, deadline)
        elif status == NEEDS_WRITE_OUT:
            self.finish_closing(call, deadline)
        else:
            self.raise_unless_done(status, call)
        return 0

    # --- Compressing the open block -----------------------------------------------------------------------------

    cdef object pack_open_block(self, Call *call):
        """Of a copy: whoever loses patience may switch meanwhile, and then the body is used anew."""
        cdef jlog_page *page = self.buffer.page
        cdef uint64_t generation = jlog_load_acquire(&page.generation)
        cdef jlog_slot *slot = &page.slots[generation & 1]
        cdef uint32_t used = jlog_word_used(jlog_load_acquire(&slot.word))
        cdef const uint8_t *body = jlog_body(&self.buffer, generation)
        cdef bytes raw, stored
        if generation != call.closed_generation or used < JLOG_BASE_BYTES:
            return None
        raw = PyBytes_FromStringAndSize(<const char *> body + JLOG_BASE_BYTES, used - JLOG_BASE_BYTES)
        jlog_full_fence()
        if jlog_load_acquire(&page.generation) != generation:
            return None
        JLOG_FAILPOINT(b"pack.copied")
        stored = pack(raw)
        call.packed.generation = generation
        call.packed.data = NULL
        if stored is not None:
            call.packed.data = <const uint8_t *> PyBytes_AS_STRING(stored)
            call.packed.size = len(stored)
            call.packed.crc = jlog_crc32c(0, call.packed.data, call.packed.size)
        # What must find the next block empty does not come round again: other writers could be first for ever.
        call.plain = call.operation == ROLL or call.direct
        return stored

    cdef int wait_for_generation(self, Call *call) except -1:
        """While another call compresses the block that it has closed; after a while this one does the same."""
        cdef jlog_page *page = self.buffer.page
        cdef uint64_t generation = jlog_load_acquire(&page.generation)
        cdef int64_t until_us = jlog_clock_us(CLOCK_MONOTONIC) + PATIENCE_MIN_US + (
            <int64_t> jlog_word_used(page.slots[generation & 1].word) // PATIENCE_BYTES_PER_US)
        with nogil:
            while jlog_load_acquire(&page.generation) == generation and jlog_clock_us(CLOCK_MONOTONIC) < until_us:
                jlog_futex_wait(NULL, 0, PATIENCE_SLICE_US)
        PyErr_CheckSignals()
        call.closed_generation = generation
        return 0

    # --- The closing block --------------------------------------------------------------------------------------

    cdef int finish_closing(self, Call *call, Deadline deadline) except -1:
        """Waits until the closing block is written; if its writer could not, or died, it is written here."""
        cdef int status
        with nogil:
            status = self.acquire(&self.buffer.page.write_lock, call)
            if status == DONE:
                status = write_out_for(self, call)
        return 0 if status == DONE else self.serve(status, call, deadline)

    # --- What may refuse it -------------------------------------------------------------------------------------

    cdef int check_state(self, Call *call) except -1:
        """Whether the state may grow by what the call stores, as of a generation that is noted."""
        if not self.read_state():
            return 0
        call.state_generation = self.state_generation
        live = {**self.state, **<dict> call.state}
        size = sum(len(key) + len(value) for key, value in live.items() if value is not None)
        if size > JLOG_STATE_BYTES_MAX:
            raise RecordTooLarge(f"the live state would have {size} bytes with its keys, at most {JLOG_STATE_BYTES_MAX} may "
                                 "live; delete keys by storing None")
        return 0

    cdef int make_room(self, Call *call, Deadline deadline) except -1:
        """Others may have cleaned: first it counts anew. Then it cleans, the open segment too if all of it is read.
        JournalFull where that is not enough."""
        limit = self.buffer.page.limit_bytes
        if call.made_room == 2:
            raise JournalFull(f"{self.path}: its segments have reached the limit of {limit} bytes, and what they hold is still "
                              "wanted; let its subscribers read and commit, remove dead ones, or raise limit_bytes")
        call.made_room += 1
        if call.made_room == 2:
            if has_records(self.buffer.page):
                self.roll(deadline)
            self.policy.make_room(deadline)
        self.count_sealed(deadline)
        return 0

    def count_sealed(self, Deadline deadline not None=NEVER) -> None:
        """Tells the page how much the sealed segments hold: for limit_bytes."""
        cdef Call call
        while True:
            memset(&call, 0, sizeof(call))
            call.operation = COUNT
            call.segment = self.written_place[0]
            try:
                call.sealed_bytes = sealed_bytes(self.path, self.uuid, call.segment)
            except FileNotFoundError:
                continue  # cleaned in this moment
            self.run(&call, deadline)
            if call.count:
                return

    cdef int raise_unless_done(self, int status, Call *call) except -1:
        what = call.what.decode() if call.what != NULL else ""
        if status == DONE:
            return 0
        if status == TIMED_OUT:
            raise JournalLocked(f"{self.path}: another process held the append lock, or was writing a block, for the whole "
                                "lock_timeout; it may be stopped: continue or end it")
        if status == DAMAGED:
            raise CorruptJournal(self.precommit.path, 0, what)
        if status == SYNC_FAILED:
            raise OSError(call.error, f"{os.strerror(call.error)}: an fdatasync of the journal failed, so that nobody "
                                      "appends any more; close all its writers and open it again", self.path)
        left = "nothing of this call is readable" if call.operation == APPEND else "what was appended before is readable"
        raise OSError(call.error, f"{os.strerror(call.error)}, {what}; {left}, and it can be made again", self.path)

    cdef lease(self, uint64_t count, Deadline deadline):
        """Makes more numbers usable: durably in `bounds` before the page says so."""
        limit = self.buffer.page.next_sequence + count + JLOG_LEASE_STRIDE
        self.bounds_file.update(lease_limit=limit, closed=None, durable=True, deadline=deadline)
        # To what this fdatasync has made durable, not to what another process may have written since.
        jlog_raise_to(&self.buffer.page.lease_limit, limit)

    # --- Afterwards ---------------------------------------------------------------------------------------------

    cdef int tidy_up(self, Call *call) except -1:
        """What a call leaves to do outside the lock. Its records are published: no failure here may be taken for theirs."""
        cdef jlog_page *page = self.buffer.page
        self.keep_or_drop(call)
        try:
            if call.rolled:
                self.seal(call.sealed_segment, call.sealed_end)
                self.policy.after_roll()
            if call.switched and page.lease_limit < page.next_sequence + JLOG_LEASE_STRIDE // 2:
                self.lease(0, AT_ONCE)
        except JournalLocked:
            pass  # another process writes `bounds`: the next call leases, there are numbers left
        except Exception as error:  # noqa: BLE001
            # Another process does it, or the next roll, or the append that cannot do without a lease: then it raises.
            logging.getLogger("jlog").warning("%s: left for later: %s", self.path, error)
        return 0

    cdef int pin(self) except -1:
        """The mapping and the descriptors stay until unpin(). Raises JournalClosed where it is closed, or about to be."""
        if not self.may_call():
            raise closed_error(self.path)
        self.pins += 1
        return 0

    cdef unpin(self):
        """The last call to end closes what was given back meanwhile; what fails in that is not the call's failure."""
        self.pins -= 1
        if self.pins == 0 and self.users == 0 and self.life == OPEN:
            try:
                self.finish(self.closing_deadline)
            except Exception as error:  # noqa: BLE001
                logging.getLogger("jlog").warning("%s: closing it: %s", self.path, error)

    cdef finish(self, Deadline deadline):
        raise AssertionError("an Attachment knows how")

    def flush(self, Deadline deadline not None=NEVER) -> None:
        """Every record appended before is in its segment file when this returns."""
        cdef Call call
        memset(&call, 0, sizeof(call))
        call.operation = FLUSH
        self.run(&call, deadline)

    def roll(self, Deadline deadline not None=NEVER) -> None:
        """Closes the open segment, if it has a record, and opens the next."""
        cdef Call call
        memset(&call, 0, sizeof(call))
        call.operation = ROLL
        self.run(&call, deadline)

    def roll_if_due(self, Deadline deadline not None=NEVER) -> None:
        """Rolls where the period is over that the open segment's records come from: if nobody appends, nobody else does."""
        cdef jlog_page *page = self.buffer.page
        cdef Call call
        if page.period_us != 0 and jlog_period_is_over(page, jlog_clock_us(CLOCK_REALTIME)):
            memset(&call, 0, sizeof(call))
            call.operation = TURN
            self.run(&call, deadline)

    @property
    def written_place(self) -> tuple:
        """(segment, offset, first sequence) of the first block that is not in its segment yet."""
        cdef jlog_slot slot = jlog_first_unwritten(self.buffer.page)
        return slot.segment, slot.offset, slot.first_sequence

    @property
    def buffered_bytes(self) -> int:
        """What the blocks that are not in their segment yet will take there, uncompressed."""
        cdef jlog_slot first = jlog_first_unwritten(self.buffer.page), last = jlog_open_slot(self.buffer.page)[0]
        before = last.offset - first.offset if first.segment == last.segment and first.offset < last.offset else 0
        return before + block_bytes(&last)

    @property
    def next_sequence(self) -> int:
        return self.buffer.page.next_sequence

    @property
    def capacity(self) -> int:
        return self.buffer.page.capacity

    @property
    def counters(self) -> dict:
        return self.buffer.page.counters

    # --- Segments -----------------------------------------------------------------------------------------------

    cdef bytes next_name(self):
        """Of a file that is being made. Whoever takes the slot after a death removes it."""
        self.prepared_count += 1
        return f"next.{self.slot}.{self.prepared_count}".encode()

    cdef prepare(self, Call *call):
        """The next segment in a file of one's own: allocated, and all but what only the lock can tell is filled in."""
        cdef Prepared *prepared
        cdef SegmentFile replaced
        cdef uint64_t needed, wanted
        cdef int error = 0
        cdef bytes name, start
        if call.prepared != NULL:
            self.drop(call.prepared)
            call.prepared = NULL
        if not self.read_state():
            return
        state, generation = self.state, self.state_generation  # other threads read on meanwhile
        if call.wants_name:
            replaced = SegmentFile(self.path, self.written_place[0], self.uuid)
            start = segment_start(self.uuid, self.epoch, replaced.segment, previous_of(replaced), state,
                                  durable_end=self.buffer.page.durable_end, clamp_us=self.buffer.page.clamp_us,
                                  replacements=replaced.replacements + 1)
        else:
            start = segment_start(self.uuid, self.epoch, 0, None, state)
        name = self.next_name()
        prepared = <Prepared *> calloc(1, sizeof(Prepared))
        if prepared == NULL:
            raise MemoryError
        prepared.fd = -1
        try:
            prepared.fd = jlog_create_at(self.directory, name)
            if prepared.fd < 0:
                raise open_error(-prepared.fd, os.path.join(self.path, name.decode()))
            memcpy(prepared.name, <const char *> name, len(name) + 1)
            prepared.start = <uint8_t *> malloc(len(start))
            if prepared.start == NULL:
                raise MemoryError
            memcpy(prepared.start, <const uint8_t *> start, len(start))
            prepared.start_bytes = len(start)
            prepared.state_generation = generation
            prepared.replaces = replaced.segment if call.wants_name else JLOG_NONE
            needed = prepared.start_bytes
            if call.operation == APPEND:
                needed += sizeof(jlog_block_header) + max(call.record_bytes, call.stored_bytes)
            wanted = max(needed, self.buffer.page.segment_bytes)
            with nogil:
                error = jlog_allocate(prepared.fd, 0, needed, wanted, &prepared.reserved_end)
                if error == 0 and call.wants_block:
                    error = jlog_write_at(prepared.fd, call.stored, call.stored_bytes,
                                          prepared.start_bytes + sizeof(jlog_block_header))
                if error == 0 and call.wants_name:
                    error = jlog_write_at(prepared.fd, prepared.start, prepared.start_bytes, 0)
                    if error == 0:
                        error = jlog_sync_data(prepared.fd)
            prepared.has_block = call.wants_block
            if error != 0:
                raise OSError(error, f"{os.strerror(error)}, preparing the next segment; nothing of this call is readable, "
                                     "and it can be made again", self.path)
        except BaseException:
            self.drop(prepared)
            raise
        call.prepared = prepared

    cdef int keep_or_drop(self, Call *call) except -1:
        """A file that was prepared and not needed serves the next roll, unless it holds this call's records."""
        if call.prepared == NULL:
            return 0
        if self.spare == NULL and call.prepared.fd >= 0 and self.may_call() and not (
                call.prepared.has_block or call.prepared.spoiled or call.prepared.replaces != JLOG_NONE):
            self.spare = call.prepared
        else:
            self.drop(call.prepared)
        call.prepared = NULL
        return 0

    cdef void drop(self, Prepared *prepared) noexcept:
        if prepared == NULL:
            return
        if prepared.fd >= 0:
            close(prepared.fd)
            if self.lock_file is not None and self.lock_file.is_open():
                try:
                    os.unlink(prepared.name, dir_fd=self.directory)
                except OSError:
                    pass  # whoever takes the slot next removes it
        free(prepared.start)
        free(prepared)

    cdef int note_state(self, Call *call) except -1:
        """What this call has stored need not be read back."""
        if self.state is None or self.state_generation != call.state_generation:
            return 0  # another thread has read on meanwhile
        state = {**self.state, **<dict> call.state}
        self.state = {key: value for key, value in state.items() if value is not None}
        self.state_end = call.published_segment, call.published_incarnation, call.published_end
        self.state_generation = call.published_generation
        return 0

    cdef bint read_state(self) except -1:
        """Makes self.state the live state as of self.state_generation: of every block before that one. False while the open
        segment's file is being replaced: whoever has the lock next knows more, for who is at it may have died."""
        cdef jlog_page *page = self.buffer.page
        while True:
            generation = jlog_load_acquire(&page.generation)
            if self.state is not None and page.state < self.state_generation:
                self.state_generation = generation
                return True
            incarnation = jlog_load_acquire(&page.incarnation)
            if incarnation & 1:
                return False
            segment, offset, _ = self.written_place
            file = SegmentFile(self.path, segment, self.uuid)
            if jlog_load_acquire(&page.generation) != generation or jlog_load_acquire(&page.incarnation) != incarnation:
                continue
            state, start = {}, SEGMENT_HEADER_BYTES
            if self.state is not None and self.state_end[:2] == (segment, incarnation):
                state, start = self.state, self.state_end[2]  # only what came since
            self.state = file.state_between(start, offset, state)
            self.state_end = segment, incarnation, offset
            self.state_generation = generation
            return True

    def seal(self, uint64_t segment, uint64_t end) -> None:
        """What is left to do for a segment that was rolled away from, outside the lock; whoever finds it undone can do
        without: the index is derived, and the next segment's header says where this one ends."""
        path = os.path.join(self.path, segment_name(segment))
        try:
            fd = open_file(path, os.O_RDWR)
        except FileNotFoundError:
            return  # cleaned already
        try:
            os.ftruncate(fd, end)
            jlog_start_writeback(fd, end)
        finally:
            os.close(fd)
        write_index(self.path, segment, self.uuid, end, f"next.{self.slot}.{segment}.idx")


def sealed_bytes(path, bytes uuid not None, open_segment) -> int:
    """Content of the segments before the open one."""
    names = [name for name in list_segments(path) if name <= open_segment]
    return sum(segment_end(path, name, following, uuid)[0] for name, following in zip(names, names[1:], strict=False))


cdef tuple previous_of(SegmentFile file):
    """What its header says of the segment before, as segment_start takes it."""
    if file.previous_segment == JLOG_NONE:
        return None
    return file.previous_segment, file.previous_end_offset, file.previous_end_sequence


def closed_error(path):
    return JournalClosed(f"{path}: this object is closed, or belongs to the process that this one was forked from; open a "
                         "new one")
