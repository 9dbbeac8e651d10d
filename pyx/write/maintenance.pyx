"""The maintenance thread of a writing process. From time to time it syncs, and closes the descriptors of old segments."""

import atexit
import os

from libc.stdint cimport INT64_MAX, int64_t

from jlog._core.format.dual_slot cimport SyncedMark
from jlog._core.format.format cimport JLOG_NONE
from jlog._core.system.lock cimport Deadline
from jlog._core.system.notices cimport warn
from jlog._core.buffer.page cimport JLOG_SYNC_INTERVAL, jlog_page
from jlog._core.buffer.publish cimport jlog_floor_ahead_us
from jlog._core.buffer.wake cimport Waker
from jlog._core.system.clock cimport CLOCK_MONOTONIC, CLOCK_REALTIME, jlog_clock_us
from jlog._core.write.group_commit cimport GroupCommit

from jlog._core.buffer.precommit import CLOCK_ADVICE
from jlog._core.system.lock import NEVER
from jlog.system.threads import real_ident, start_thread

cdef enum:
    EACH_US = 30_000_000  # longest time between two syncs while segments are written
    SEGMENTS_MAX = 16  # this many segments that are not synced make a sync due earlier
    BYTES_MAX = 1 << 30  # so do segments of this size in all
    PAUSE_US = 1_000_000  # longest time between two calls of maintain()
    ERROR_PAUSE_US = 100_000  # after an error of the wait itself

TIMEOUT = 1.0  # seconds to wait for all locks: their owners may be stopped, and a close waits for the thread
STOP_SECONDS = 10  # seconds that a close waits for the thread, whose fdatasync may take long


cdef class Maintenance:
    def __init__(self, GroupCommit group not None):
        self.process = group.process
        self.group = group

    cdef int64_t pause_us(self) noexcept:
        """Returns the time until maintain() is to be called next."""
        return max(min(PAUSE_US, self.sync_pause_us()), 1000)

    cdef int64_t sync_pause_us(self) noexcept:
        """Returns the time between two syncs by interval: half of the interval, since a record that comes right after the
        beginning of one sync becomes durable only at the end of the next."""
        cdef jlog_page *page = self.process.buffer.page
        return <int64_t> page.sync_interval_us // 2 if page.sync_mode == JLOG_SYNC_INTERVAL else INT64_MAX

    cdef int maintain(self) except -1:
        """Syncs by interval. Without an interval it syncs written blocks from time to time, so that a recovery has little to
        read. Closes the descriptors of segments that other processes have synced or cleaned. The caller has pinned the
        attachment."""
        cdef jlog_page *page = self.process.buffer.page
        self.process.descriptors.forget(page.durable_segment, True)
        self.tell_clock()
        if page.sync_error == 0:
            self.sync_if_due(jlog_clock_us(CLOCK_MONOTONIC))
        return 0

    cdef int tell_clock(self) except -1:
        """Logs once that the journal's times are ahead of the clock, as `jlogtool info` says it."""
        cdef jlog_page *page = self.process.buffer.page
        cdef int64_t ahead_us = jlog_floor_ahead_us(page, jlog_clock_us(CLOCK_REALTIME))
        if ahead_us and not self.told_clock:
            warn(self.process.path, "the clock",
                 f"its newest time is {ahead_us // 1_000_000} s ahead of the clock: {CLOCK_ADVICE}")
        self.told_clock = ahead_us != 0
        return 0

    cdef int sync_if_due(self, int64_t now_us) except -1:
        cdef jlog_page *page = self.process.buffer.page
        cdef SyncedMark mark
        if page.sync_mode == JLOG_SYNC_INTERVAL:
            if now_us - self.synced_us >= self.sync_pause_us() - PAUSE_US // 2:
                self.synced_us = now_us
                self.group.make_durable(Deadline(TIMEOUT))
        elif self.is_due(now_us) and self.group.take_sync_lock():
            page.sync_leads += 1
            self.synced_us = now_us
            mark.segment = JLOG_NONE
            try:
                self.group.segments.sync(&mark)
            finally:
                self.group.tell(&mark, True)
        return 0

    cdef bint is_due(self, int64_t now_us) except -1:
        cdef jlog_page *page = self.process.buffer.page
        cdef int retained = self.process.descriptors.retained_count
        if self.process.written_place()[0] == page.durable_segment:
            return False
        if self.synced_us == 0:
            self.synced_us = now_us
        if now_us - self.synced_us >= EACH_US or retained * page.segment_bytes >= BYTES_MAX:
            return True
        return retained >= SEGMENTS_MAX


_running = set()


class MaintenanceThread:
    """Calls maintain() of an attachment from time to time.

    before: the attachment's thread that was told to stop, but not waited for long enough; or None. This one begins when it has
        ended. So a close that waits for this one waits for both: the attachment cannot be closed while a thread is at work.
    """

    def __init__(self, attachment, before):
        self._attachment = attachment
        self._before = before
        self._process = os.getpid()
        self._stop = Waker()
        self._told = None  # the error that was logged last
        self._thread = None

    def start(self):
        _running.add(self)
        try:
            self._thread = start_thread(f"jlog {self._attachment.path}", self._run)
        except BaseException:
            _running.discard(self)
            raise

    @property
    def goes_on(self):
        """Whether it works, or is about to start, and was not told to stop."""
        return self._stop.rings == 0 and (self._thread is None or self._thread.is_alive())

    def _run(self):
        """Goes on after any error: without this thread no records would be synced for sync="interval"."""
        cdef bint ended = False
        cdef Waker stop = self._stop
        while not ended:
            try:
                self._wait_for_the_one_before()
                ended = self._is_over()
            except BaseException:  # noqa: BLE001
                ended = stop.wait(ERROR_PAUSE_US)
        _running.discard(self)

    def _wait_for_the_one_before(self):
        if self._before is not None:
            self._before.join(None)
            self._before = None

    def _is_over(self):
        """Waits, and calls maintain(). Returns whether the attachment is closed."""
        cdef Waker stop = self._stop
        pause = self._attachment.maintenance_pause()
        if pause is None or stop.wait(<int64_t> (pause * 1e6)):
            return True
        try:
            self._attachment.maintain()
            self._told = None
        except Exception as error:  # noqa: BLE001
            if str(error) != self._told:
                warn(self._attachment.path, "the work in the background", error)
            self._told = str(error)
        return False

    def stop(self, wait=True, deadline=NEVER):
        cdef Waker stop = self._stop
        if os.getpid() != self._process:
            return  # a child of a fork has no such thread, and the thread's locks may stay taken for ever
        stop.ring()
        if wait:
            self.join(deadline.at_most(STOP_SECONDS).left())

    def join(self, timeout):
        """Waits until it has ended, for `timeout` seconds at most; None waits for ever."""
        if self._thread is not None and self._thread.ident != real_ident():
            self._thread.join(timeout)


def _stop_all():
    running = list(_running)
    for thread in running:
        thread.stop(wait=False)
    for thread in running:
        thread.stop()


atexit.register(_stop_all)
