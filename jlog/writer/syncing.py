"""Syncs for coroutines: one thread of a writer syncs while any coroutine, of any event loop, waits for it."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from jlog.system.threads import real_lock, real_sleep, refuse_greenlets, start_thread

if TYPE_CHECKING:
    import asyncio

    Call = tuple[asyncio.AbstractEventLoop, asyncio.Future[BaseException | None], Callable[[], None]]

IDLE_SECONDS = 1.0  # for which the thread stays where no coroutine waits, because a thread is slow to start
CALLS = "append_durable() and sync_async()"
NO_MEMORY_PAUSE_SECONDS = 0.001  # before a step that had no memory is tried again


class AsyncSyncs:
    """The coroutines that wait for the next sync of one writer. All that have come when a sync begins share it.

    Its locks are plain ones: a Condition needs memory to be released.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._calls: deque[Call] = deque()  # each until it has its answer
        self._wake = real_lock()  # free: the thread has something to do
        self._wake.acquire()
        self._runs = real_lock()  # held by the thread that syncs

    def begin(self) -> None:
        """Starts the thread, for a call that waits after it has appended. Raises JournalError where there can be no thread, and
        RuntimeError where no event loop runs."""
        import asyncio  # slow to import, and most programs have no event loop

        refuse_greenlets(CALLS)
        asyncio.get_running_loop()
        self._forget_the_parent()
        self._begin()

    def _forget_the_parent(self) -> None:
        """Begins anew in a forked child: what coroutines of the parent wait for is the parent's."""
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]

    def _begin(self) -> None:
        if not self._runs.locked():
            start_thread("jlog-sync", self._run)  # several calls may do so at once: one thread stays

    async def wait(self, sync: Callable[[], None]) -> None:
        """Returns when the thread has called `sync` once after this call has begun. Raises what `sync` has raised."""
        import asyncio

        refuse_greenlets(CALLS)
        self._forget_the_parent()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[BaseException | None] = loop.create_future()
        self._calls.append((loop, future, sync))
        self._begin()
        with suppress(RuntimeError):  # it is free already
            self._wake.release()
        error = await future
        if error is not None:
            raise copy.copy(error) from error  # each coroutine raises an error of its own, with its own traceback

    def _run(self) -> None:
        while self._runs.acquire(blocking=False):
            try:
                self._serve()
            finally:
                self._runs.release()
            if not self._calls:  # a call that came just before has found the lock held, and started no thread
                return

    def _serve(self) -> None:
        """Syncs until no call has come for a while."""
        while True:
            try:
                if not self._calls and not self._wake.acquire(timeout=IDLE_SECONDS) and not self._calls:
                    return
                self._sync_for(len(self._calls))
            except MemoryError:
                real_sleep(NO_MEMORY_PAUSE_SECONDS)

    def _sync_for(self, count: int) -> None:
        """Syncs for the first `count` calls."""
        if not count:
            return
        error: BaseException | None = None
        try:
            self._calls[0][2]()
        except MemoryError:
            raise
        except BaseException as raised:  # noqa: BLE001 - the coroutines raise it
            error = raised
        self._answer(count, error)

    def _answer(self, count: int, error: BaseException | None) -> None:
        futures: dict[asyncio.AbstractEventLoop, list[asyncio.Future[BaseException | None]]] = {}
        for number in range(count):
            loop, future, _ = self._calls[number]
            futures.setdefault(loop, []).append(future)
        for loop in tuple(futures):
            with suppress(RuntimeError):  # the loop was closed, and nobody waits in it
                loop.call_soon_threadsafe(_set, futures[loop], error)
        for _ in range(count):
            self._calls.popleft()


def _set(futures: list[asyncio.Future[BaseException | None]], error: BaseException | None) -> None:
    """Called in the loop. A coroutine that was cancelled needs no answer."""
    for future in futures:
        if not future.done():
            future.set_result(error)
