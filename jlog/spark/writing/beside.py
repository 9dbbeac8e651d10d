"""What is done in a thread beside the work, so that the disk is not waited for at its end alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


@contextmanager
def beside(call: Callable[[], Any]) -> Iterator[Callable[[], None]]:
    """Yields a function that has it called, unless that is still under way. What it raises comes out of the next, or at the
    end."""
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
