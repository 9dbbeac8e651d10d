"""The signals that end a command."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

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
def ended_orderly() -> Iterator[None]:
    """Lets SIGTERM and SIGHUP unwind the command as Ctrl-C does, so that it leaves no file and no process."""

    def end(number: int, _frame: Any) -> NoReturn:
        sys.exit(128 + number)

    with signals_to(end, (signal.SIGTERM, signal.SIGHUP)):
        yield
