"""How a command ends: its exit codes and the signals that end it; and what it tells the service manager that has started it."""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from jlog.errors import CorruptJournal

DONE = 0
FAILED = 1
USAGE = 2  # the code that click itself exits with
DAMAGED = 3
FOUND = 4  # of `doctor`: something needs care
SIGNALLED = 128  # and more: the codes that a shell makes of signals
INTERRUPTED = SIGNALLED + 2  # by SIGINT


def exit_code_of(error: Exception) -> int:
    """Returns the exit code of a command that ends with this error."""
    return DAMAGED if isinstance(error, CorruptJournal) else FAILED


ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals_to(end: Callable[[int, Any], None], numbers: tuple[signal.Signals, ...] = ENDING) -> Iterator[None]:
    """Calls `end` with these signals: where a command goes on for ever, with Ctrl-C and SIGTERM."""
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def interruptible() -> Iterator[None]:
    """Lets Ctrl-C raise KeyboardInterrupt here, and end the process at once before and after."""
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_DFL, signal.default_int_handler):
        yield  # a program in the background ignores it
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Lets Ctrl-C end the process at once, where nothing has to be undone. While a large library is loaded, Python does not
    look for signals."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leave(code: int) -> NoReturn:
    """Ends the process without waiting for its other threads."""
    try:
        atexit._run_exitfuncs()
    finally:
        os._exit(code)


@contextmanager
def ended_orderly() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP unwind the command as Ctrl-C does, so that it leaves no file and no process."""

    def end(number: int, _frame: Any) -> NoReturn:
        sys.exit(128 + number)

    with signals_to(end, (signal.SIGTERM, signal.SIGHUP)):
        yield


def notify(state: str) -> None:
    """Tells the service manager that started this process "READY=1" or another state, as units of Type=notify do for systemd.
    Does nothing where no service manager wants to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        import socket  # most commands need none

        if address.startswith("@"):  # a name that is not a file
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.sendto(state.encode(), address)
