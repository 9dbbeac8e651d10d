"""Repeats a call in a thread, so that the end of the work need not wait for the disk alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


@contextmanager
def repeated_in_background(call: Callable[[], Any]) -> Iterator[Callable[[], None]]:
    """Yields a function that starts `call` in a thread, unless it still runs there. An error of the call is raised by the next
    start, or at the end."""
    running: Future[Any] | None = None
    with ThreadPoolExecutor(1) as thread:

        def again() -> None:
            nonlocal running
            if running is None or running.done():
                if running is not None:
                    running.result()
                running = thread.submit(call)

        yield again
        if running is not None:
            running.result()
