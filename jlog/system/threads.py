"""Threads of jlog's own, and locks for what they share with the callers.

gevent and eventlet put greenlets in the place of a program's threads, locks and sleeps. A greenlet that waits in the kernel, as
jlog's threads do, stops every other one. So these threads and locks are always real ones: they come from a second copy of the
interpreter's module, which no patch reaches, whether jlog is imported before or after it.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib.machinery import BuiltinImporter
from importlib.util import module_from_spec
from types import ModuleType
from typing import Any, Protocol

from jlog.errors import JournalError

BEGIN_SECONDS = 1.0  # longest time that the exit waits for threads to begin


def _unpatched(name: str) -> ModuleType:
    """Returns a new copy of a module that is built into the interpreter."""
    spec = BuiltinImporter.find_spec(name)
    assert spec is not None, name
    assert spec.loader is not None, name
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_real_thread, _real_time = _unpatched("_thread"), _unpatched("time")
real_lock: Callable[[], Any] = _real_thread.allocate_lock  # creates a lock, which greenlets do not share with each other
real_sleep: Callable[[float], None] = _real_time.sleep
real_ident: Callable[[], int] = _real_thread.get_ident

_starting: set[object] = set()  # an object for each thread that was started and does not run yet
_waited_for: set[RealThread] = set()  # threads beside greenlets for which the exit waits
_exits = threading.Event()


class Thread(Protocol):
    """What start_thread() returns."""

    def is_alive(self) -> bool: ...
    def join(self, timeout: float | None = None) -> None: ...
    @property
    def ident(self) -> int | None: ...


def has_greenlets() -> bool:
    """Says whether greenlets stand in the place of this program's threads."""
    return _thread.allocate_lock.__module__ != "_thread"  # debuggers put something in the place of start_new_thread


def sleeps_beside_greenlets(seconds: float) -> bool:
    """Sleeps while other greenlets run, and returns True; returns False at once where the program has real threads."""
    if not has_greenlets():
        return False
    time.sleep(seconds)
    return True


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
    """Waits until every thread that was started runs, and until those have ended for which the exit waits."""
    _exits.set()
    until = time.monotonic() + BEGIN_SECONDS
    while _starting and time.monotonic() < until:
        real_sleep(0.001)
    for thread in list(_waited_for):
        thread.join()


def _forget_the_parent() -> None:
    _starting.clear()
    _waited_for.clear()


atexit.register(_let_all_begin)
os.register_at_fork(after_in_child=_forget_the_parent)


class RealThread:
    """A thread beside greenlets. The module threading does not know it, since it takes a greenlet's number for a thread's."""

    def __init__(self, run: Callable[[], None], *, daemon: bool) -> None:
        self._run, self._daemon = run, daemon
        self._ended = real_lock()
        self.ident: int | None = None

    def start(self) -> None:
        self._ended.acquire()
        if not self._daemon:
            _waited_for.add(self)
        try:
            self.ident = _real_thread.start_new_thread(self._main, ())
        except BaseException:
            self._end()
            raise

    def _main(self) -> None:
        try:
            self._run()
        finally:
            self._end()

    def _end(self) -> None:
        _waited_for.discard(self)
        self._ended.release()

    def is_alive(self) -> bool:
        return bool(self._ended.locked())

    def join(self, timeout: float | None = None) -> None:
        if self._ended.acquire(timeout=-1 if timeout is None else timeout):
            self._ended.release()


def start_thread(
    name: str, run: Callable[..., object], *arguments: object, daemon: bool = True, of_program: bool = False
) -> Thread:
    """Starts a thread, which does not keep the process alive if it is a daemon. Raises JournalError where the process can have
    no more of them. of_program: it runs the program's own code, and is a greenlet where the program's threads are."""
    start = None
    try:
        start = starting()
        thread: threading.Thread | RealThread
        if has_greenlets() and not of_program:
            thread = RealThread(lambda: _run(start, run, arguments), daemon=daemon)
        else:
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
    """Raises JournalError where greenlets stand in the place of threads: an event loop that waits in one stops all."""
    if has_greenlets():
        raise JournalError(
            f"{call}: this is for an event loop of asyncio, and gevent or eventlet has put greenlets in the place of this "
            "program's threads: use the call without async, beside which other greenlets run while it waits"
        )
