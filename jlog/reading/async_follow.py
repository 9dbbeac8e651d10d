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
from jlog.reading.event_loops import Waiter, Waiting
from jlog.reading.pace import Pace

SLEEP_SECONDS = 1.0  # longest sleep until a record is due, so that a closed reader is noticed
Found = TypeVar("Found")


class AsyncFollowIterator(AsyncFollow, AsyncIterator[Record]):
    """The iterator that Reader.follow_async() returns. After an error, or a step that was cancelled, the next step goes on. No
    record is lost by either."""

    def __init__(self, cursor: Cursor, timeout: float | None, pace: Pace | None, waiters: set[Waiter]) -> None:
        self._waiting = Waiting(cursor, waiters)
        self._timeout = timeout
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
        self.ended = not await self._waiting.wait(deadline)
        return deadline

    async def aclose(self) -> None:
        """Ends the iteration. An iterator that is dropped without this leaves nothing open either."""
        self.ended = True
        self._waiting.give_up()

    def __del__(self) -> None:
        if hasattr(self, "_waiting"):
            self._waiting.give_up()


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
