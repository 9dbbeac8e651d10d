"""The signals that end a command that goes on for ever."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def signals_to(end: Callable[[int, Any], None]) -> Iterator[None]:
    """Calls `end` with Ctrl-C and SIGTERM."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, end) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
