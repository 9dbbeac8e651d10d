"""Worker.run(): a function that is called for each task, in some threads, until it is told to stop."""

from __future__ import annotations

import errno
import inspect
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from jlog._core.system.lock import NEVER
from jlog._core.work.task import Task
from jlog._core.work.tasks import TaskSource
from jlog.errors import JournalClosed, JournalError, LeaseLost, PositionLost
from jlog.system.arguments import check_count, check_seconds
from jlog.system.threads import start_thread

THREADS_MAX = 10_000
FULL = errno.ENOSPC, errno.EDQUOT
SLICE_SECONDS = 1.0  # longest wait of the main thread: a signal that comes just before it sleeps does not wake it
NEVER_RUN = inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction
NOT_RUN = (
    "handle is a coroutine or generator function, and calling it runs nothing; for coroutines use "
    "`async for task in worker.tasks_async()`"
)

_log = logging.getLogger("jlog")


class Run:
    """One call of Worker.run(). The calling thread waits; others take the tasks, and each has one at a time."""

    def __init__(self, source: TaskSource, stop: Callable[[], None], path: str, handle: Callable[[Task], object]) -> None:
        if not callable(handle):
            raise TypeError(f"handle must be a function that takes a task, not {handle!r}")
        if any(is_one(each) for each in (handle, type(handle).__call__) for is_one in NEVER_RUN):
            raise TypeError(NOT_RUN)
        self._source, self._stop, self._path, self._handle = source, stop, path, handle
        self._changed = threading.Condition()
        self._held: set[Task] = set()
        self._left = 0  # threads that have not ended
        self._is_full = False  # no new record could be taken, and this was logged
        self._error: BaseException | None = None

    def run(self, threads: int, grace: float) -> None:
        self._left = threads = check_count("threads", threads, most=THREADS_MAX)
        check_seconds("grace", grace, zero=True)
        with _stopped_by_signals(self._stop):
            for number in range(threads):
                try:
                    start_thread(f"jlog-work-{number}", self._work, of_program=True)
                except JournalError as error:  # those that have begun end, and the caller is told
                    with self._changed:
                        self._error = error
                        self._left -= threads - number
                    self._stop()
                    break
            self._wait(grace)
        if self._error is not None:
            raise self._error

    def _wait(self, grace: float) -> None:
        """Waits until all threads have ended; after a stop for `grace` seconds, then gives back what they still hold."""
        with self._changed:
            while self._left and not self._source.stopped:
                self._changed.wait(SLICE_SECONDS)
            ends = time.monotonic() + grace
            while self._left and (left := ends - time.monotonic()) > 0:
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            held = list(self._held)
        for task in held:
            try:
                task.release()
            except (LeaseLost, JournalClosed):
                continue  # it is with another worker, or was given back by close()

    def wake(self) -> None:
        """Lets the calling thread see that the worker was stopped."""
        with self._changed:
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while (task := self._next()) is not None:
                self._do(task)
        except JournalClosed:
            return  # closed in another thread
        except BaseException as error:  # noqa: BLE001 - run() raises it
            self._error = self._error or error
            self._stop()
        finally:
            with self._changed:
                self._left -= 1
                self._changed.notify_all()

    def _next(self) -> Task | None:
        while not self._source.stopped:
            try:
                tasks = self._source.take(1, NEVER)
            except PositionLost as error:
                _log.warning("%s", error)
                continue
            except OSError as error:
                if error.errno not in FULL:
                    raise
                self._tell_full(error)
                continue
            self._is_full = False
            if tasks:
                with self._changed:
                    self._held.add(tasks[0])
                return tasks[0]
        return None

    def _tell_full(self, error: OSError) -> None:
        """Waits for space: what is in work may go on meanwhile, and makes some."""
        with self._changed:
            is_told, self._is_full = self._is_full, True
            if not is_told:
                _log.warning("%s", error)
            self._changed.wait(SLICE_SECONDS)

    def _do(self, task: Task) -> None:
        try:
            try:
                task.begin()
                found = self._handle(task)
            except Exception as error:  # noqa: BLE001
                _log.warning("%s: record %d failed in attempt %d", self._path, task.sequence, task.attempt, exc_info=True)
                self._source.policy.failed(self._source, task, error)
            except BaseException:
                task.release()
                raise
            else:
                if isinstance(found, (Coroutine, Generator, AsyncGenerator)):  # of a lambda, say: nothing has run yet
                    task.release()
                    if not isinstance(found, AsyncGenerator):
                        found.close()  # without a warning that nobody has awaited it
                    raise TypeError(NOT_RUN)
                _acknowledge(task)
        finally:
            with self._changed:
                self._held.discard(task)
                self._changed.notify_all()


def _acknowledge(task: Task) -> None:
    try:
        task.ack()
    except LeaseLost as error:
        _log.warning("%s", error)
    except JournalClosed:
        raise
    except (JournalError, OSError):
        _log.warning("record %d was not acknowledged", task.sequence, exc_info=True)


@contextmanager
def _stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Lets SIGTERM and SIGINT stop the run, if this is the main thread, and restores their handlers. In a child that is forked
    meanwhile they do what they did before."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    process = os.getpid()

    def handler(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if os.getpid() != process:
            signal.signal(number, previous(number))
            signal.raise_signal(number)
            return
        threading.Thread(target=stop, daemon=True).start()  # the handler may have interrupted the holder of a lock

    def previous(number: int) -> Any:
        return signal.SIG_DFL if before[number] is None else before[number]

    before: dict[int, Any] = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in before:
            signal.signal(number, previous(number))
