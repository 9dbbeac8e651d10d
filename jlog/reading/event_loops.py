"""Waits for many journals on behalf of event loops, in one thread of the process, which runs while a coroutine waits.

A coroutine that has nothing to read registers a waiter, looks once more, and then sleeps in its event loop. The thread sleeps
in the kernel until a writer publishes in one of the journals, and wakes the loops. Once a second it looks at each journal
itself, for a writer may die between publishing and waking. Some journals have no writer that can wake this process: no process
has them open, or this one may not write there. The thread looks at these every 1 to 50 ms.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import Iterable

from jlog._core.buffer.wake import Waker
from jlog._core.read.cursor import Cursor
from jlog._core.read.waiting import JOURNALS_MAX, WatchedJournal, wait_for_change
from jlog._core.system.lock import current_process_token
from jlog.system.threads import start_thread

TICK_SECONDS = 1.0
POLL_MIN_SECONDS = 0.001
POLL_MAX_SECONDS = 0.05


class Waiter:
    """One sleep of a coroutine in its event loop."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self.loop.create_future()

    async def sleep(self, seconds: float | None) -> None:
        """Sleeps until wake() is called, or for so many seconds."""
        timer = None if seconds is None else self.loop.call_later(seconds, self.wake)
        try:
            await self._future
        finally:
            if timer is not None:
                timer.cancel()

    @property
    def is_over(self) -> bool:
        """Whether nobody sleeps in it any more."""
        return self._future.done() or self.loop.is_closed()

    def wake(self) -> None:
        """Wakes the coroutine. Called in the thread of its loop."""
        if not self._future.done():
            self._future.set_result(None)


def wake_all(waiters: Iterable[Waiter]) -> None:
    """Wakes all these waiters. May be called in any thread."""
    loops: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
    for waiter in waiters:
        loops.setdefault(waiter.loop, []).append(waiter)
    for loop, its_waiters in loops.items():
        try:
            loop.call_soon_threadsafe(_wake, its_waiters)
        except RuntimeError:
            continue  # the loop was closed while coroutines still waited in it


def _wake(waiters: list[Waiter]) -> None:
    for waiter in waiters:
        waiter.wake()


class WatchThread:
    """One thread and the journals that it waits for: as many as the kernel takes in one call."""

    def __init__(self, watches: WaitingThreads) -> None:
        self.journals: dict[tuple[str, int, int], WatchedJournal] = {}
        self.waker: Waker = Waker()
        self._running = threading.Lock()  # held by the thread
        self._entered = threading.Event()  # the thread has come so far
        self._starting = threading.RLock()
        self._watches = watches

    def start(self) -> None:
        """Starts the thread, once there is a journal to wait for, unless it runs: an earlier start may have been interrupted at
        any point."""
        with self._starting:
            if not self._running.locked():
                start_thread("jlog-watch", self._run)
                self._entered.wait()

    def join(self) -> None:
        """Waits until the thread has ended."""
        self._running.acquire()

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            return  # started a second time, because the first start was interrupted
        self._entered.set()
        try:
            self._wait()
        finally:
            self._running.release()
            wake_all(self._watches.end(self))

    def _wait(self) -> None:
        changed: list[WatchedJournal] = []
        poll, tick = POLL_MIN_SECONDS, time.monotonic() + TICK_SECONDS
        while True:
            rings = self.waker.rings
            journals = self._watches.awaited(self, changed)
            if not journals:
                return
            look_at = [journal for journal in journals if not journal.asked]
            changed = wait_for_change(journals, self.waker, rings, poll if look_at else TICK_SECONDS, poll)
            if time.monotonic() >= tick:
                look_at, tick = journals, time.monotonic() + TICK_SECONDS
            changed += [journal for journal in look_at if journal.has_changed() and journal not in changed]
            changed = [journal for journal in changed if journal.waiters]
            wake_all(waiter for journal in changed for waiter in list(journal.waiters))
            quiet = not changed and self.waker.rings == rings
            poll = min(poll * 2, POLL_MAX_SECONDS) if quiet else POLL_MIN_SECONDS


class WaitingThreads:
    """All watching threads of this process."""

    def __init__(self) -> None:
        self.token: int = current_process_token()
        self._lock = threading.Lock()
        self._watches: list[WatchThread] = []
        self._stopped = False
        atexit.register(self._stop)

    def expect(self, cursor: Cursor, waiter: Waiter) -> tuple[WatchThread, WatchedJournal]:
        """Registers the waiter: whatever is published from now on wakes it."""
        key = WatchedJournal.key(cursor)
        with self._lock:
            watch = self._watch_of(key)
            journal = watch.journals.get(key)
            is_new = journal is None
            if journal is None:
                journal = watch.journals[key] = WatchedJournal(cursor)
            journal.waiters.add(waiter)
        try:
            watch.start()
            journal.ask(cursor)
        except BaseException:
            journal.waiters.discard(waiter)
            raise
        if is_new or not journal.asked:
            watch.waker.ring()
        return watch, journal

    def _watch_of(self, key: tuple[str, int, int]) -> WatchThread:
        for watch in self._watches:
            if key in watch.journals:
                return watch
        for watch in self._watches:
            if len(watch.journals) < JOURNALS_MAX:
                return watch
        watch = WatchThread(self)
        self._watches.append(watch)
        return watch

    def awaited(self, watch: WatchThread, woken: list[WatchedJournal]) -> list[WatchedJournal]:
        """Returns the journals that this thread still has to wait for. It drops a journal that no coroutine waits for, unless
        its waiters have just been woken: they will be back soon. Without any journal the thread ends."""
        with self._lock:
            for key, journal in list(watch.journals.items()):
                over = [waiter for waiter in list(journal.waiters) if waiter.is_over]
                journal.waiters.difference_update(over)
                if not journal.waiters and journal not in woken:
                    del watch.journals[key]
            if self._stopped:
                watch.journals.clear()
            if not watch.journals:
                self._watches.remove(watch)
            return list(watch.journals.values())

    def end(self, watch: WatchThread) -> list[Waiter]:
        """Returns the waiters that are left when a thread ends by an error. Each comes back, and gets another thread or the
        same error."""
        with self._lock:
            if watch in self._watches:
                self._watches.remove(watch)
            return [waiter for journal in watch.journals.values() for waiter in list(journal.waiters)]

    def _stop(self) -> None:
        """Ends the threads before the interpreter is taken down under them."""
        if self.token != current_process_token():
            return  # the parent process's
        self._stopped = True
        for watch in list(self._watches):
            watch.waker.ring()
            watch.join()


_watches: WaitingThreads | None = None


def watches() -> WaitingThreads:
    global _watches  # noqa: PLW0603 - of the process, as the kernel's waiting is
    if _watches is None or _watches.token != current_process_token():
        _watches = WaitingThreads()
    return _watches
