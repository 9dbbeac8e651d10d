"""Calls of the client that may block, in threads of their own.

A request to stop is heard meanwhile, however long a name server is silent. And Ctrl-C raises its exception in the main thread
alone: the client's calls return a result beside an exception that a signal handler has raised in them, which Python reports as
a SystemError.
"""

from __future__ import annotations

import _thread
import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from jlog.errors import JournalError
from jlog.flow.stop import SLICE_SECONDS, Stop, Stopped
from jlog.system.threads import begun, start_thread, starting

T = TypeVar("T")


def answer_of(call: Callable[[], T], stop: Stop) -> T:
    """Returns what the call returns, or raises its error. Raises Stopped when the time to stop is over; the call goes on. Also
    raises it while the process exits, in other threads than the main one."""
    answer: list[tuple[T | None, BaseException | None]] = []
    done = threading.Lock()
    done.acquire()
    try:
        start = starting()
    except JournalError:
        raise Stopped from None
    # Not by threading.Thread, whose start() waits in Python code, where Ctrl-C may end in a RuntimeError of its lock.
    try:
        _thread.start_new_thread(_run, (start, call, answer, done))
    except BaseException:
        begun(start)
        raise
    # The traceback of an exception that ends the wait keeps this frame, which must not have the last reference to a client.
    del call
    while not done.acquire(timeout=stop.slice()):
        pass
    result, error = answer[0]
    if error is not None:
        try:
            raise error
        finally:
            del answer, error  # its traceback has this frame, which would keep it for ever
    return result  # type: ignore[return-value] # it is the call's where there is no error


def _run(
    start: object, call: Callable[[], T], answer: list[tuple[T | None, BaseException | None]], done: threading.Lock
) -> None:
    begun(start)
    try:
        answer.append((call(), None))
    except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
        answer.append((None, error))
    finally:
        del call, answer  # the error's traceback keeps this frame, and the answer the error
        done.release()


def when_done(future: Future[Any]) -> Any:
    """Returns a lock that can be acquired once the future is done. Ctrl-C in future.result() itself may end in a RuntimeError
    of its lock, which is one of Python."""
    done = threading.Lock()
    done.acquire()
    future.add_done_callback(lambda _: done.release())
    return done


def let_go(clients: list[Any]) -> None:
    """Closes the clients, and forgets them. It takes as long as librdkafka asks a name server for an address, so this waits a
    moment and leaves the rest to a thread, which no exit waits for. `clients` has the last references, or None alone."""
    if clients == [None]:
        return

    def close_all() -> None:
        while clients:
            close = getattr(clients[-1], "close", None)
            if close is not None:
                close()
            del close, clients[-1]

    try:
        start_thread("jlog-kafka-close", close_all).join(SLICE_SECONDS)
    except JournalError:  # the process exits, and does so without waiting for the client's own threads
        for client in clients:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
