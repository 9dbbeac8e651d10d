"""Takes tasks for coroutines: one thread of a worker waits while any of its coroutines does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator

from jlog._core.system.lock import AT_ONCE, NEVER
from jlog._core.work.task import Task
from jlog._core.work.tasks import Interrupt, TaskSource
from jlog.system.threads import refuse_greenlets, start_thread

TURN_SECONDS = 0.002  # for tasks that are there already, before other coroutines get their turn


class _Request:
    def __init__(self, most: int) -> None:
        self.most = most
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[Task]] = self.loop.create_future()

    def answer(self, tasks: list[Task], error: BaseException | None) -> None:
        """Called in the loop. A coroutine that has gone meanwhile gives its tasks back."""
        if self.future.done():
            give_back(tasks)
        elif error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(tasks)

    def abandon(self) -> None:
        """Gives the tasks back, also those that have just come."""
        if not self.future.cancel() and self.future.exception() is None:
            give_back(self.future.result())


class AsyncTakes:
    """The waiting takes of one worker."""

    def __init__(self, source: TaskSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._requests: deque[_Request] = deque()
        self._interrupt: Interrupt | None = None  # of the thread that waits
        self._turn_ends = 0.0

    async def take(self, most: int, timeout: float | None) -> list[Task]:
        refuse_greenlets("take_async()")
        now = time.monotonic()
        if now >= self._turn_ends:
            await asyncio.sleep(0)
            self._turn_ends = now + TURN_SECONDS
        tasks = self._source.take(most, AT_ONCE)
        if tasks or timeout == 0 or self._source.stopped:
            return tasks
        request = _Request(most)
        self._add(request)
        try:
            await asyncio.wait({request.future}, timeout=timeout)
        except BaseException:
            self._withdraw(request)
            request.abandon()
            raise
        self._withdraw(request)
        return [] if request.future.cancel() else request.future.result()

    def _add(self, request: _Request) -> None:
        with self._lock:
            if self._interrupt is None:
                interrupt = Interrupt()
                start_thread("jlog-take", self._run, interrupt)  # it waits for the lock
                self._interrupt = interrupt
            self._requests.append(request)

    def _withdraw(self, request: _Request) -> None:
        with self._lock:
            if request in self._requests:
                self._requests.remove(request)
            if not self._requests and self._interrupt is not None:
                self._interrupt.raised = True
                self._interrupt = None
                self._source.ring()

    def _run(self, interrupt: Interrupt) -> None:
        request: _Request | None
        while True:
            request = None  # it has the tasks that it was given, which the program may have dropped by now
            with self._lock:
                if interrupt.raised:
                    return
                most = self._requests[0].most
            tasks: list[Task] = []
            failure = None
            try:
                tasks = self._source.take(most, NEVER, interrupt)
            except BaseException as error:  # noqa: BLE001 - the coroutine raises it
                failure = error
            with self._lock:
                request = self._requests.popleft() if self._requests and not interrupt.raised else None
                if not self._requests and self._interrupt is interrupt:
                    interrupt.raised, self._interrupt = True, None
            if request is None:
                give_back(tasks)
                continue
            give_back(tasks[request.most :])
            try:
                request.loop.call_soon_threadsafe(request.answer, tasks[: request.most], failure)
            except RuntimeError:  # its loop was closed
                give_back(tasks)

    async def tasks(self, timeout: float | None) -> AsyncIterator[Task]:
        while not self._source.stopped:
            tasks = await self.take(1, timeout)
            if not tasks:
                return
            tasks[0].begin()
            yield tasks.pop()


def give_back(tasks: list[Task]) -> None:
    for task in tasks:
        task.release_quietly()
