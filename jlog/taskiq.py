"""A broker of taskiq whose queue is a journal. Needs the extra pyjlog[taskiq]."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import jlog

try:
    from taskiq import AckableMessage, AsyncBroker, BrokerMessage
except ImportError as error:
    raise ImportError("jlog.taskiq needs taskiq, which is not installed: pip install 'pyjlog[taskiq]'") from error

__all__ = ["JournalBroker"]

SIGNAL_SECONDS = 1.0  # after which an idle loop runs: taskiq's handler of SIGTERM sets an event, and does not wake the loop


class JournalBroker(AsyncBroker):
    """Queues tasks in the journal at `path`, which is created if there is none. Any number of worker processes of one machine
    take them. The tasks of a worker that is killed go to another one at once.

    name: the subscriber that the workers share.
    durable: True: a task that was kicked survives a power loss, as does the end of one that was done. Each then waits for an
        fdatasync, which others share.
    writer, worker: more options of jlog.Writer and jlog.Worker.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str = "taskiq",
        *,
        durable: bool = False,
        writer: dict[str, Any] | None = None,
        worker: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.path: str = os.fspath(path)
        self.name = name
        self.durable = durable
        self._writer_options = writer or {}
        self._worker_options = worker or {}
        self._writer: jlog.Writer | None = None
        self._worker: jlog.Worker | None = None
        # One that taskiq drops without an ack, for example because its result cannot be stored, stays taken while this process
        # lives: else it would be done again at once, and again.
        self._unfinished: dict[int, jlog.Task] = {}

    async def kick(self, message: BrokerMessage) -> None:
        writer = self._opened()
        try:
            await self._append(writer, message.message)
        except jlog.JournalMoved:  # the directory was removed or replaced; another kick may have opened it anew meanwhile
            if self._writer is writer:
                self._writer = None
            await self._append(self._opened(), message.message)

    def _opened(self) -> jlog.Writer:
        if self._writer is None:
            self._writer = jlog.Writer(self.path, **self._writer_options)
        return self._writer

    async def _append(self, writer: jlog.Writer, message: bytes) -> None:
        if self.durable:
            await writer.append_durable(message)
        else:
            writer.append(message)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        while True:
            worker = self._worker = jlog.Worker(self.path, self.name, **self._worker_options)
            try:
                while self._worker is worker:
                    async for task in worker.tasks_async(timeout=SIGNAL_SECONDS):
                        self._unfinished[id(task)] = task
                        yield AckableMessage(data=task.value or b"", ack=partial(self._finish, task))
            except jlog.JournalMoved:  # as above; what the worker has handed out may still be finished
                continue
            return

    def _finish(self, task: jlog.Task) -> None:
        task.ack(durable=self.durable)
        self._unfinished.pop(id(task), None)

    async def shutdown(self) -> None:
        """Gives back what this process has taken and not done."""
        await super().shutdown()
        for one in (self._worker, self._writer):
            if one is not None:
                one.close()
        self._worker = self._writer = None
        self._unfinished.clear()
