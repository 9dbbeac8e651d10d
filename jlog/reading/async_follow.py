"""Following a journal, or an archive and its journal, in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, TypeVar

from jlog._core.read.across import AsyncAcross
from jlog._core.read.cursor import Cursor
from jlog._core.read.follow import AsyncFollow
from jlog._core.records.record import Record
from jlog.reading.event_loops import Waiter, WatchThread, watches
from jlog.reading.pace import Pace

SLEEP_SECONDS = 1.0  # longest sleep until a record is due, so that a closed reader is noticed
Found = TypeVar("Found")


class AsyncFollowIterator(AsyncFollow, AsyncIterator[Record]):
    """The iterator that Reader.follow_async() returns. After an error, or a step that was cancelled, the next step goes on. No
    record is lost by either."""

    def __init__(self, cursor: Cursor, timeout: float | None, pace: Pace | None, waiters: set[Waiter]) -> None:
        """waiters: the set to wake when the reader is closed."""
        self._watch: WatchThread | None = None
        self._cursor, self._timeout, self._waiters = cursor, timeout, waiters
        super().__init__(cursor, pace)

    async def _give_turn(self) -> None:
        await asyncio.sleep(0)

    async def _wait(self, seconds: float, deadline: float | None) -> float | None:
        """Waits until the next record is due, in `seconds`, or until there is one. Ends the iteration at the deadline, which it
        returns."""
        if seconds > 0:
            await asyncio.sleep(min(seconds, SLEEP_SECONDS))
            return None
        if deadline is None and self._timeout is not None:
            deadline = time.monotonic() + self._timeout
        found = False
        try:
            while not (found := self._cursor.look()) and await self._sleep(deadline):
                pass
        finally:
            if not found:
                self._give_up()
        self.ended: bool = not found
        return deadline

    async def _sleep(self, deadline: float | None) -> bool:
        """Sleeps, and returns whether there is a reason to look again."""
        waiter = Waiter()
        self._watch, journal = watches().expect(self._cursor, waiter)
        self._waiters.add(waiter)
        try:
            if self._cursor.look():
                return True
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            await waiter.sleep(left)
            return True
        finally:
            journal.waiters.discard(waiter)
            self._waiters.discard(waiter)

    async def aclose(self) -> None:
        """Ends the iteration. An iterator that is dropped without this leaves nothing open either."""
        self.ended = True
        self._give_up()

    def _give_up(self) -> None:
        """Lets the thread end without this iterator. Takes no lock: the garbage collector may call this at any time."""
        if self._watch is not None:
            self._watch.waker.ring()

    def __del__(self) -> None:
        if hasattr(self, "_watch"):
            self._give_up()


async def in_thread(call: Callable[..., Found], *arguments: Any) -> Found:
    """Makes the call in a thread. If the step is cancelled, it ends with the call: no later step meets it at work."""
    work = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        work.cancelled() or work.exception()  # asyncio would log it as never retrieved
        raise


class AsyncAcrossIterator(AsyncAcross, AsyncIterator[Record]):
    """The iterator that Reader.follow_async() returns with `archive`."""

    _in_thread = staticmethod(in_thread)
