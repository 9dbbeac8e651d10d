"""Syncs for coroutines: one thread of a writer syncs while any coroutine, of any event loop, waits for it."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from jlog.system.threads import start_thread

if TYPE_CHECKING:
    import asyncio

IDLE_SECONDS = 1.0  # for which the thread stays where no coroutine waits, because a thread is slow to start


class AsyncSyncs:
    """The coroutines that wait for the next sync of one writer. All that have come when a sync begins share it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition(threading.Lock())
        self._futures: dict[asyncio.AbstractEventLoop, list[asyncio.Future[BaseException | None]]] = {}
        self._sync: Callable[[], None] | None = None
        self._runs = False

    def begin(self) -> None:
        """Starts the thread, for a call that waits after it has appended. Raises JournalError where there can be no thread."""
        self._forget_the_parent()
        with self._changed:
            self._begin()

    def _forget_the_parent(self) -> None:
        """Begins anew in a forked child: what coroutines of the parent wait for is the parent's."""
        if self._process != os.getpid():
            self.__init__()  # type: ignore[misc]

    def _begin(self) -> None:
        if not self._runs:
            start_thread("jlog-sync", self._run)
            self._runs = True

    async def wait(self, sync: Callable[[], None]) -> None:
        """Returns when the thread has called `sync` once after this call has begun. Raises what `sync` has raised."""
        import asyncio  # slow to import, and most programs have no event loop

        self._forget_the_parent()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[BaseException | None] = loop.create_future()
        with self._changed:
            self._begin()
            self._futures.setdefault(loop, []).append(future)
            self._sync = sync
            self._changed.notify()
        error = await future
        if error is not None:
            raise copy.copy(error) from error  # each coroutine raises an error of its own, with its own traceback

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._futures and not self._changed.wait_for(lambda: self._futures, IDLE_SECONDS):
                    self._runs = False
                    return
                waiting, self._futures = self._futures, {}
                sync, self._sync = self._sync, None  # an idle thread keeps no writer alive
            error: BaseException | None = None
            try:
                assert sync is not None
                sync()
            except BaseException as raised:  # noqa: BLE001 - the coroutines raise it
                error = raised
            del sync
            for loop, futures in waiting.items():
                try:
                    loop.call_soon_threadsafe(_answer, futures, error)
                except RuntimeError:
                    continue  # the loop was closed, and nobody waits in it
            del waiting, error


def _answer(futures: list[asyncio.Future[BaseException | None]], error: BaseException | None) -> None:
    """Called in the loop. A coroutine that was cancelled needs no answer."""
    for future in futures:
        if not future.done():
            future.set_result(error)
