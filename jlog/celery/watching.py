"""Lets an event loop wait for messages: a descriptor that is readable when there is work, and a thread for each queue."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

import jlog
from jlog.system.threads import start_thread


class Bell:
    """A descriptor that is readable from ring() to clear(). Any thread may ring."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # no thread rings a closed descriptor, which may be another file's by now
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)

    def close(self) -> None:
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Watch:
    """A thread that takes the next message of a queue: one at a time, and only when it is asked to. It gives the message back
    if the consumer has no room for it any more."""

    def __init__(self, worker: jlog.Worker, ring: Callable[[], None]) -> None:
        self.worker = worker
        self._ring = ring
        self._changed = threading.Condition()
        self._is_waiting = self._is_wanted = self._is_closed = False
        self._task: jlog.Task | None = None
        self._error: BaseException | None = None
        start_thread("jlog-celery", self._run)

    def want(self) -> None:
        """Waits for a message from now on, and then rings. Rings at once if a message has come that was not collected."""
        with self._changed:
            self._is_wanted = True
            has_come = self._task is not None or self._error is not None
            if not has_come:
                self._is_waiting = True
                self._changed.notify()
        if has_come:
            self._ring()

    def pause(self) -> None:
        """Leaves the next message to others, also one that has come and was not collected."""
        with self._changed:
            self._is_wanted = False
            task, self._task = self._task, None
        if task is not None:
            give_back(task)

    def is_waiting(self) -> bool:
        return self._is_waiting

    def collect(self) -> jlog.Task | None:
        """Returns the message that has come. Raises the error that has come in its place."""
        with self._changed:
            task, self._task = self._task, None
            error, self._error = self._error, None
        if error is not None:
            raise error
        return task

    def close(self) -> None:
        """Ends the thread, which is woken when its worker is closed."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_waiting and not self._is_closed:
                    self._changed.wait()
                if self._is_closed:
                    return
            task, error = None, None
            try:
                task = self.worker.take(1)[0]
            except BaseException as raised:  # noqa: BLE001 - the consumer raises it
                error = raised
            with self._changed:
                self._is_waiting = False
                is_wanted = self._is_wanted and not self._is_closed
                if is_wanted:
                    self._task, self._error = task, error
            if is_wanted:
                self._ring()
            elif task is not None:
                give_back(task)


def give_back(task: jlog.Task) -> None:
    with suppress(jlog.JournalError):  # its worker was closed, and has given it back
        task.release()
