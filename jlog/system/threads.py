"""Threads of jlog's own."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable

from jlog.errors import JournalError

BEGIN_SECONDS = 1.0  # longest time that the exit waits for threads to begin

_starting: set[object] = set()  # an object for each thread that was started and does not run yet
_exits = threading.Event()


def starting() -> object:
    """Returns what a new thread has to call begun() with. The exit of the interpreter waits for that: CPython 3.11 and older
    crash where a thread begins to run later. Raises JournalError where the exit waits for no more threads."""
    start = object()
    _starting.add(start)
    if sys.is_finalizing() or (_exits.is_set() and threading.get_ident() != threading.main_thread().ident):
        begun(start)
        raise JournalError("no thread can be started any more: the process exits")
    return start


def begun(start: object) -> None:
    """Ends the wait of the exit for a thread: the thread calls it first of all, or the one that could not start it."""
    _starting.discard(start)


def _let_all_begin() -> None:
    """Waits until every thread that was started runs."""
    _exits.set()
    until = time.monotonic() + BEGIN_SECONDS
    while _starting and time.monotonic() < until:
        time.sleep(0.001)


atexit.register(_let_all_begin)
os.register_at_fork(after_in_child=_starting.clear)


def start_thread(name: str, run: Callable[..., object], *arguments: object, daemon: bool = True) -> threading.Thread:
    """Starts a thread, which does not keep the process alive if it is a daemon. Raises JournalError where the process can have
    no more of them."""
    start = None
    try:
        start = starting()
        thread = threading.Thread(target=_run, args=(start, run, arguments), name=name, daemon=daemon)
        thread.start()
    except BaseException as error:
        begun(start)
        if isinstance(error, RuntimeError):  # also that of a lock without memory
            raise JournalError(
                f"the thread {name!r} cannot be started ({error}): the process or its container has reached its limit of "
                "threads (ulimit -u, pids.max) or of memory; raise it, or end other threads"
            ) from error
        raise
    return thread


def _run(start: object, run: Callable[..., object], arguments: tuple[object, ...]) -> None:
    begun(start)
    run(*arguments)


def refuse_greenlets(call: str) -> None:
    """Raises JournalError where gevent has put greenlets in the place of threads: one that waits in the kernel stops all."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        raise JournalError(
            f"{call} needs a thread that waits beside the event loop, and gevent has put greenlets in the place of threads: "
            "patch with monkey.patch_all(thread=False), or read with follow() in gevent.get_hub().threadpool"
        )
