"""Following a journal in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from jlog._core.read.cursor import Cursor
from jlog._core.read.follow import FollowIterator
from jlog._core.records.record import Record
from jlog.reading.event_loops import Waiter, Waiting
from jlog.reading.pace import Pace

TURN_SECONDS = 0.002  # for records that are there already, before other tasks get their turn
SLEEP_SECONDS = 1.0  # longest sleep until a record is due, so that a closed reader is noticed


class AsyncFollowIterator(AsyncIterator[Record]):
    """The iterator that Reader.follow_async() returns. After an error, or a step that was cancelled, the next step goes on. No
    record is lost by either."""

    def __init__(self, cursor: Cursor, timeout: float | None, pace: Pace | None, waiters: set[Waiter]) -> None:
        self._waiting = Waiting(cursor, waiters)
        self._following = FollowIterator(cursor, None, pace)
        self._timeout = timeout
        self._ended = False
        self._turn_ends = 0.0

    def __aiter__(self) -> AsyncFollowIterator:
        return self

    async def __anext__(self) -> Record:
        if time.monotonic() >= self._turn_ends:
            await self._begin_turn(0)
        deadline = None
        while not self._ended:
            record, seconds = self._following.step()
            if record is not None:
                return record
            if seconds > 0:
                deadline = None
                await self._begin_turn(min(seconds, SLEEP_SECONDS))
            else:
                if deadline is None and self._timeout is not None:
                    deadline = time.monotonic() + self._timeout
                self._ended = not await self._waiting.wait(deadline)
                self._turn_ends = time.monotonic() + TURN_SECONDS
        raise StopAsyncIteration

    async def _begin_turn(self, after_seconds: float) -> None:
        await asyncio.sleep(after_seconds)
        self._turn_ends = time.monotonic() + TURN_SECONDS

    async def aclose(self) -> None:
        """Ends the iteration. An iterator that is dropped without this leaves nothing open either."""
        self._ended = True
        self._waiting.give_up()

    def __del__(self) -> None:
        self._waiting.give_up()
