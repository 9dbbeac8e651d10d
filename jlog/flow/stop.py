"""Ends a flow in time: after a request to stop, a wait gives the open transaction a moment more and then leaves it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

SLICE_SECONDS = 0.1  # longest wait without a look at whether to stop
GRACE_SECONDS = 1.2  # leaves room in the 2 s from SIGTERM to the end


class Stopped(BaseException):
    """The time to stop is over: leave everything as it is. It is also raised within a function of the user, which must not take
    it for an error."""


class Stop:
    """A request to stop. It may be made from a signal handler or another thread: it is one assignment."""

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        self._grace_seconds = grace_seconds
        self._asked_at: float | None = None

    @property
    def requested(self) -> bool:
        return self._asked_at is not None

    def request(self) -> None:
        if self._asked_at is None:
            self._asked_at = time.monotonic()

    def slice(self, seconds: float = SLICE_SECONDS) -> float:
        """Returns how long one wait may last, at most `seconds`. Raises Stopped when the time to stop is over."""
        if self._asked_at is None:
            return seconds
        left = self._asked_at + self._grace_seconds - time.monotonic()
        if left <= 0:
            raise Stopped
        return min(seconds, left)

    def wait(self, seconds: float) -> bool:
        """Waits so long, or until the request to stop. Returns whether that was made."""
        until = time.monotonic() + seconds
        while not self.requested and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, SLICE_SECONDS))
        return self.requested


class Stoppable(Protocol):
    def stop(self) -> None: ...

    def interrupt_function(self) -> None: ...


@contextmanager
def stopping(flow: Stoppable) -> Iterator[Callable[[], None]]:
    """Yields a call for signal handlers that stops the flow, which runs in the main thread, also while a function of the user
    runs that takes longer than the time to stop. Uses SIGALRM meanwhile."""

    def stop() -> None:
        flow.stop()
        # Again and again: the function may be about to begin, or catch what is raised in it.
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS, SLICE_SECONDS)

    before = signal.signal(signal.SIGALRM, lambda *_: flow.interrupt_function())
    try:
        yield stop
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
