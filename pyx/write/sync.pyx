"""Making records survive a power loss: one fdatasync for all who wait for it, of all threads and processes; and the thread
that does it from time to time."""

import atexit
import logging
import os
import threading

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EIO
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from jlog._core.format.dual_slot cimport BoundsFile, Mark
from jlog._core.system.file cimport jlog_sync_data, jlog_sync_directory
from jlog._core.format.format cimport JLOG_NONE
from jlog._core.system.lock cimport Deadline
from jlog._core.write.member cimport DONE, Call, doubtful_now
from jlog._core.buffer.page cimport JLOG_OWNERS_MAX, JLOG_SYNC_INTERVAL, jlog_first_unwritten, jlog_page, jlog_slot
from jlog._core.buffer.publish cimport jlog_wake
from jlog._core.system.atomic cimport (
    JLOG_WAITERS,
    jlog_add32,
    jlog_add64,
    jlog_futex_wait,
    jlog_load32_acquire,
    jlog_load_acquire,
    jlog_raise_to,
    jlog_replace64,
    jlog_store_release,
    jlog_tell,
    jlog_try_lock,
)
from jlog._core.system.clock cimport jlog_clock_us
from jlog._core.system.failpoint cimport JLOG_FAILPOINT

from jlog._core.system.lock import NEVER
from jlog._core.recover.recovery import write_again
from jlog._core.segments.segment import list_segments, segment_name
from jlog.errors import JournalError
from jlog.system.files import open_file

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<unistd.h>" nogil:
    int close(int fd)

cdef enum:
    CLOCK_MONOTONIC = 1
    ALONE_AFTER_US = 1_000_000  # without any sync being done: whoever has the word may be stopped
    SLICE_US = 20_000
    GATHER_SYNCS = 2  # as long as so many fdatasyncs take the first of a group waits for the others,
    GATHER_MAX_US = 500  # or so long,
    PATIENT_SYNCS = 8  # and the others for the first
    TURN_US = 60
    UPKEEP_US = 30_000_000
    UPKEEP_SEGMENTS = 16
    UPKEEP_BYTES = 1 << 30
    UPKEEP_PAUSE_US = 1_000_000

UPKEEP_TIMEOUT = 1.0  # seconds for all locks: whoever has one may be stopped, and a close waits for the thread
STOP_SECONDS = 10  # for an fdatasync that takes so long; then it ends when it ends


cdef int64_t turn_us = 0  # when the thread of this process that has the turn took it; 0: nobody has


cdef void take_turn() noexcept nogil:
    """The GIL is wanted by all that one sync has served, each for a moment, and who finds it taken sleeps again, for longer.
    So they come to it one after another. A turn ends when its holder waits for a sync once more, or by itself."""
    cdef int64_t now_us = jlog_clock_us(CLOCK_MONOTONIC), until_us = now_us + TURN_US, taken_us
    while now_us < until_us:
        taken_us = jlog_load_acquire(<uint64_t *> &turn_us)
        if now_us - taken_us > TURN_US and jlog_replace64(<uint64_t *> &turn_us, taken_us, now_us):
            return
        sched_yield()
        now_us = jlog_clock_us(CLOCK_MONOTONIC)


cdef void leave_turn() noexcept nogil:
    jlog_store_release(<uint64_t *> &turn_us, 0)


cdef class Syncer(Caller):
    def sync(self, Deadline deadline not None=NEVER) -> int:
        """Every record appended before survives a power loss when this returns. Returns the durable end."""
        self.pin()
        try:
            self.make_durable(deadline)
            return self.durable_end
        finally:
            self.unpin()

    cdef int make_durable(self, Deadline deadline) except -1:
        """All that is published now. Pinned."""
        cdef jlog_page *page = self.buffer.page
        cdef uint64_t generation
        if page.sync_error != 0:
            self.fail_sync(page.sync_error)
        while True:
            generation = jlog_load_acquire(&page.generation)
            empty = jlog_load_acquire(&page.slots[generation & 1].word) == 0
            if jlog_load_acquire(&page.generation) == generation:
                break
        return self.wait_durable(generation if empty else generation + 1, deadline)

    cdef int wait_durable(self, uint64_t wanted, Deadline deadline) except -1:
        """Until the blocks of all generations before `wanted` are synced, by this one or another that has the sync word. Once
        the deadline has passed, or the one that has the word seems to be stopped, this one syncs beside it."""
        cdef jlog_page *page = self.buffer.page
        cdef uint32_t counter, last, arrival, leads, last_leads
        cdef int64_t began_us, pause_us
        if jlog_load_acquire(&page.durable_generation) >= wanted:
            return 0
        arrival = jlog_add32(&page.sync_arrivals, 1)
        last, last_leads = jlog_load32_acquire(&page.sync_counter), jlog_load32_acquire(&page.sync_leads)
        began_us = jlog_clock_us(CLOCK_MONOTONIC)
        while True:
            counter = jlog_load32_acquire(&page.sync_counter)
            if jlog_load_acquire(&page.durable_generation) >= wanted:
                jlog_add64(&page.counters.sync_waits, 1)
                return 0
            pause_us = self.gather_us(arrival)
            if pause_us == 0:
                if jlog_try_lock(&page.sync_lock, self.buffer.owner):
                    return self.lead(wanted, deadline)
                pause_us = SLICE_US
            if page.sync_error != 0:
                self.fail_sync(page.sync_error)
            leads = jlog_load32_acquire(&page.sync_leads)
            if self.is_stuck():
                return self.lead(wanted, deadline) if self.take_sync_lock_from_dead() else self.sync_alone(deadline)
            if counter != last or leads != last_leads:
                last, last_leads, began_us = counter, leads, jlog_clock_us(CLOCK_MONOTONIC)
            pause_us = deadline.left_us(pause_us)
            with nogil:
                leave_turn()
                jlog_futex_wait(&page.sync_counter, counter, pause_us)
                take_turn()
            if jlog_load32_acquire(&page.sync_counter) != counter or jlog_load_acquire(&page.durable_generation) >= wanted:
                continue
            PyErr_CheckSignals()
            if self.take_sync_lock():
                return self.lead(wanted, deadline)
            if jlog_clock_us(CLOCK_MONOTONIC) - began_us > ALONE_AFTER_US:
                page.sync_stuck = leads  # for all that come after, until that lead ends
                return self.sync_alone(deadline)
            if deadline.left_us(1) == 0:
                return self.sync_alone(deadline)

    cdef int64_t gather_us(self, uint32_t arrival) noexcept:
        """How long this one waits for others to come; 0 if it is to lead. Those that the last sync served are about to come
        again, and the last of them leads: nobody has to be woken for it. If they don't come the first leads, or else, where
        that one is gone or stopped, whoever has waited longest."""
        cdef jlog_page *page = self.buffer.page
        cdef uint32_t served
        if jlog_load32_acquire(&page.sync_lock) != 0:
            return SLICE_US
        served = jlog_load32_acquire(&page.sync_served)
        if <int32_t> (arrival - served) <= 0 or jlog_load32_acquire(&page.sync_arrivals) - served >= page.sync_group:
            return 0
        if arrival - served == 1:
            return min(GATHER_SYNCS * self.sync_us, GATHER_MAX_US)
        return min(PATIENT_SYNCS * self.sync_us or SLICE_US, SLICE_US)

    cdef bint take_sync_lock(self) noexcept:
        """From a dead owner too; False while a living one has it."""
        cdef Call call
        cdef int status
        memset(&call, 0, sizeof(call))
        call.deadline_us = jlog_clock_us(CLOCK_MONOTONIC)
        with nogil:
            status = self.acquire(&self.buffer.page.sync_lock, &call)
        return status == DONE

    cdef bint is_stuck(self) noexcept:
        """Whether somebody has waited in vain for the one that has the sync word now."""
        cdef jlog_page *page = self.buffer.page
        return jlog_load32_acquire(&page.sync_lock) != 0 and page.sync_leads == page.sync_stuck

    cdef bint take_sync_lock_from_dead(self) noexcept:
        """Takes the sync word where its owner is dead. It does not wait for an owner that lives."""
        cdef uint32_t *word = &self.buffer.page.sync_lock
        cdef uint32_t owner = jlog_load32_acquire(word) & ~JLOG_WAITERS
        return 0 < owner <= JLOG_OWNERS_MAX and owner != self.buffer.owner and self.take_over(word, owner) == DONE

    cdef int lead(self, uint64_t wanted, Deadline deadline) except -1:
        """With the sync word: writes out the open block, and syncs for all who wait."""
        cdef jlog_page *page = self.buffer.page
        cdef uint32_t served = page.sync_served
        cdef Mark mark
        mark.segment = JLOG_NONE
        page.sync_leads += 1
        leave_turn()
        try:
            if jlog_load_acquire(&page.durable_generation) < wanted:
                page.sync_served = jlog_load32_acquire(&page.sync_arrivals)
                self.flush(deadline)
                self.sync_written(&mark)
                page.sync_group = jlog_load32_acquire(&page.sync_arrivals) - served
        finally:
            self.tell(&mark, True)
        return 0

    cdef int sync_alone(self, Deadline deadline) except -1:
        """Beside whoever has the word, which may be stopped and know of a failure."""
        cdef Mark mark
        self.flush(deadline)
        self.sync_written(&mark)
        return self.tell(&mark, False)

    cdef int tell(self, const Mark *mark, bint has_word) except -1:
        """Lets those go on that wait; then the mark is moved, of which little depends. Without the GIL: they want it."""
        cdef jlog_page *page = self.buffer.page
        cdef BoundsFile bounds = self.bounds_file
        cdef bint moves = mark.segment != JLOG_NONE and bounds.try_begin()
        cdef int error = 0
        with nogil:
            if has_word:
                self.release(&page.sync_lock)
            jlog_add32(&page.sync_counter, 1)
            jlog_tell(&page.sync_counter)
            JLOG_FAILPOINT(b"sync.told")
            if moves:
                error = bounds.move_mark(mark)
            take_turn()
        if moves:
            bounds.end()
        if error != self.mark_error:
            self.mark_error = error
            if error != 0:  # nothing is less durable for that, and whoever needs a lease raises
                logging.getLogger("jlog").warning("%s: the synced mark cannot be moved: %s", bounds.path, os.strerror(error))
        return 0

    cdef int sync_written(self, Mark *mark) except -1:
        """Every block that is written now. The end is read before the fdatasync, and becomes the mark."""
        cdef jlog_page *page = self.buffer.page
        cdef jlog_slot slot
        cdef int64_t began_us
        if page.sync_error != 0:
            self.fail_sync(page.sync_error)
        slot = jlog_first_unwritten(page)
        began_us = jlog_clock_us(CLOCK_MONOTONIC)
        # A process that dies in its fdatasync may have been told of a failure, and have told nobody: then these two numbers
        # stay apart.
        jlog_add64(&page.syncs_begun, 1)
        self.syncs += 1
        try:
            JLOG_FAILPOINT(b"sync.begun")
            self.sync_files(slot.segment, slot.offset)
            JLOG_FAILPOINT(b"sync.done")
        finally:
            self.syncs -= 1
            jlog_add64(&page.syncs_ended, 1)
        self.sync_us = jlog_clock_us(CLOCK_MONOTONIC) - began_us
        jlog_add64(&page.counters.syncs, 1)
        jlog_raise_to(&page.durable_segment, slot.segment)
        jlog_raise_to(&page.durable_end, slot.first_sequence)
        jlog_wake(page)  # readers of what is durable
        jlog_raise_to(&page.durable_generation, slot.generation)
        self.forget_descriptors(slot.segment)
        mark.segment, mark.offset, mark.sequence = slot.segment, slot.offset, slot.first_sequence
        return 0

    cdef int sync_files(self, uint64_t segment, uint64_t end) except -1:
        """Syncs the segments from the durable one up to this one, which ends at `end`, and the directory with their names."""
        cdef jlog_page *page = self.buffer.page
        cdef int error = 0
        first = page.durable_segment
        for name in [segment] if first == segment else [s for s in list_segments(self.path) if first <= s <= segment]:
            self.sync_segment(name, end if name == segment else 0)
        # Read behind the fdatasync, which may have been that of a file that another one's name was given to. While it is odd
        # that may be still to come.
        incarnation = jlog_load_acquire(&page.incarnation)
        if first != segment or incarnation != self.synced_incarnation:
            with nogil:
                error = jlog_sync_directory(self.directory)
            if error != 0:
                self.fail_sync(error)
            if not incarnation & 1:
                self.synced_incarnation = incarnation
        if page.sync_error != 0:  # told meanwhile, and perhaps before a descriptor was opened that does not know
            self.fail_sync(page.sync_error)
        return 0

    cdef int sync_segment(self, uint64_t segment, uint64_t end) except -1:
        """Through the descriptor that was open when the segment was written, if this process has it, and no other thread of it
        syncs: the kernel tells of a failed write-back once for each. What a descriptor does not tell of is written once more
        through it, and is its own."""
        cdef jlog_page *page = self.buffer.page
        cdef uint64_t doubtful = 0
        cdef uint64_t incarnation = jlog_load_acquire(&page.incarnation)
        cdef int error = 0, fd = self.borrow_descriptor(segment, &doubtful) if self.syncs == 1 else -1
        try:
            if fd < 0:
                fd = open_file(os.path.join(self.path, segment_name(segment)), os.O_RDWR)
                doubtful = doubtful_now(page, 1)
            if jlog_load_acquire(&page.durable_generation) < doubtful:
                write_again(self.path, segment, self.uuid, end, fd, page.durable_end)
            with nogil:
                error = jlog_sync_data(fd)
        except FileNotFoundError:
            return 0  # cleaned: nobody needs it
        except JournalError:
            if jlog_load_acquire(&page.incarnation) == incarnation:
                error = EIO  # what was written is not there any more; else it stands in another file, which was synced
        finally:
            if fd >= 0:
                close(fd)
        if error != 0:
            self.fail_sync(error)
        return 0

    cdef int fail_sync(self, int error) except -1:
        """In the page before anybody is told: what the kernel failed to write it may have dropped, and no later sync would
        know."""
        self.buffer.page.sync_error = error
        raise OSError(error, f"{os.strerror(error)}: fdatasync failed; what was not durable before may be lost in a power "
                             "loss; close all writers and open the journal again", self.path)

    @property
    def durable_end(self) -> int:
        return self.buffer.page.durable_end

    # --- From time to time --------------------------------------------------------------------------------------

    def start_upkeep(self) -> None:
        # At the end of the interpreter no thread can be started any more, and nothing is written from time to time.
        if not threading.main_thread().is_alive():
            return
        upkeep = Upkeep(self)
        if self.upkeep is None:  # no other thread has made one meanwhile
            self.upkeep = upkeep
            try:
                upkeep.start()
            except BaseException:
                self.upkeep = None
                raise

    def upkeep_pause(self):
        """Seconds until keep_up() is called next, None once it is closed."""
        if not self.may_call():
            return None
        return max(min(UPKEEP_PAUSE_US, self.sync_pause_us()), 1000) / 1e6

    cdef int64_t sync_pause_us(self) noexcept:
        """Between two syncs by interval: a record that comes right after one is in the next, and that takes its time."""
        cdef jlog_page *page = self.buffer.page
        return <int64_t> page.sync_interval_us // 2 if page.sync_mode == JLOG_SYNC_INTERVAL else INT64_MAX

    def keep_up(self) -> None:
        """Syncs by interval; and what is written, from time to time, so that a recovery has little to read. Lets go of
        segments that others have synced or cleaned."""
        if not self.may_call():
            return
        self.pin()
        try:
            self.forget_descriptors(self.buffer.page.durable_segment)
            self.forget_cleaned()
            if self.buffer.page.sync_error == 0:
                self.keep_up_pinned(jlog_clock_us(CLOCK_MONOTONIC))
        finally:
            self.unpin()

    cdef int keep_up_pinned(self, int64_t now_us) except -1:
        cdef jlog_page *page = self.buffer.page
        cdef Mark mark
        if page.sync_mode == JLOG_SYNC_INTERVAL:
            if now_us - self.kept_up_us >= self.sync_pause_us() - UPKEEP_PAUSE_US // 2:
                self.kept_up_us = now_us
                self.make_durable(Deadline(UPKEEP_TIMEOUT))
        elif self.is_due(now_us) and self.take_sync_lock():
            page.sync_leads += 1
            self.kept_up_us = now_us
            mark.segment = JLOG_NONE
            try:
                self.sync_written(&mark)
            finally:
                self.tell(&mark, True)
        return 0

    cdef bint is_due(self, int64_t now_us) except -1:
        cdef jlog_page *page = self.buffer.page
        segment, first = self.written_place[0], page.durable_segment
        if segment == first:
            return False
        if self.kept_up_us == 0:
            self.kept_up_us = now_us
        if now_us - self.kept_up_us >= UPKEEP_US or self.retained_count * page.segment_bytes >= UPKEEP_BYTES:
            return True
        return self.retained_count >= UPKEEP_SEGMENTS


_running = set()


class Upkeep:
    """The thread of one writing process and journal."""

    def __init__(self, syncer):
        self._syncer = syncer
        self._process = os.getpid()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"jlog {syncer.path}", daemon=True)

    def start(self):
        _running.add(self)
        try:
            self._thread.start()
        except BaseException:
            _running.discard(self)
            raise

    def _run(self):
        told = None
        while (pause := self._syncer.upkeep_pause()) is not None and not self._stop.wait(pause):
            try:
                self._syncer.keep_up()
                told = None
            except Exception as error:  # noqa: BLE001
                # Whatever it was: without this thread sync="interval" would promise what nobody does.
                if str(error) != told:
                    logging.getLogger("jlog").warning("%s: the sync in the background: %s", self._syncer.path, error)
                told = str(error)
        _running.discard(self)

    def stop(self, wait=True, deadline=NEVER):
        if os.getpid() != self._process:
            return  # in a child the thread does not exist, and its locks may be taken for ever
        self._stop.set()
        if wait and self._thread is not threading.current_thread():
            self._thread.join(deadline.at_most(STOP_SECONDS).left())


def _stop_all():
    running = list(_running)
    for upkeep in running:
        upkeep.stop(wait=False)
    for upkeep in running:
        upkeep.stop()


atexit.register(_stop_all)
