"""Iterating over tasks, coroutines and run(): what a Worker makes of its take()."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from jlog.system.arguments import check_count, check_timeout

if TYPE_CHECKING:
    from jlog._core.work.task import Task
    from jlog._core.work.tasks import TaskSource
    from jlog.working.asynchronous import AsyncTakes
    from jlog.working.running import Run


class Taking:
    """The calls of a worker that are made of its take(), and stop()."""

    _source: TaskSource
    _pid: int  # of the process that has opened the worker
    _async: AsyncTakes | None = None
    _run: Run | None = None

    @property
    def path(self) -> str:
        raise NotImplementedError

    def _check_open(self) -> None:
        raise NotImplementedError

    def take(self, max_records: int = 1, timeout: float | None = None) -> list[Task]:
        raise NotImplementedError

    def tasks(self, timeout: float | None = None) -> Iterator[Task]:
        """Iterates over tasks, each taken when it is asked for. It ends after `timeout` seconds without one; None: never. After
        stop() it ends too."""
        check_timeout("timeout", timeout)
        while not self._source.stopped:
            tasks = self.take(1, timeout)
            if not tasks:
                return
            tasks[0].begin()
            yield tasks.pop()  # this frame keeps no reference to a task that the program has dropped

    def __iter__(self) -> Iterator[Task]:
        return self.tasks()

    async def take_async(self, max_records: int = 1, timeout: float | None = None) -> list[Task]:
        """The same as take(), in the running asyncio loop. A call that is cancelled gives back what it was about to return."""
        max_records = check_count("max_records", max_records)
        check_timeout("timeout", timeout)
        return await self._takes().take(max_records, timeout)

    def tasks_async(self, timeout: float | None = None) -> AsyncIterator[Task]:
        """The same as tasks(), for `async for` in the running asyncio loop."""
        check_timeout("timeout", timeout)
        return self._takes().tasks(timeout)

    def _takes(self) -> AsyncTakes:
        if self._async is None:
            from jlog.working.asynchronous import AsyncTakes  # imports asyncio, which most programs do not need

            self._async = AsyncTakes(self._source)
        return self._async

    def run(self, handle: Callable[[Task], object], *, threads: int = 1, grace: float = 30.0) -> None:
        """Calls handle(task) for each task, in `threads` threads, until stop(), SIGTERM or SIGINT. It acknowledges a task when
        handle returns; an Exception is logged, and the task is given back for its next attempt.

        After a stop it waits for `grace` seconds until the tasks in work are finished, and then gives them back without an
        attempt. It extends no lease. In the main thread it sets the handlers of SIGTERM and SIGINT, and restores them.
        """
        from jlog.working.running import Run

        self._check_open()
        self._run = Run(self._source, self.stop, self.path, handle)
        try:
            self._run.run(threads, grace)
        finally:
            self._run = None

    def stop(self) -> None:
        """Ends run() and the iterations of this worker, in any thread, once what they hold is finished, and those that begin
        later at once: to go on, open another worker."""
        self._source.stopped = True
        if self._pid != os.getpid():
            return  # another thread of the parent may have held what wake() needs
        self._source.ring()
        if self._run is not None:
            self._run.wake()
