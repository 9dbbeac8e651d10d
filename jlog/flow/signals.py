"""Ends a flow by a signal, also while a function of the user runs that takes longer than the time to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jlog.flow.engine import Flow
from jlog.flow.stop import GRACE_SECONDS, SLICE_SECONDS


@contextmanager
def stopping(flow: Flow) -> Iterator[Callable[[], None]]:
    """Yields a call for signal handlers that stops the flow, which runs in the main thread. Uses SIGALRM meanwhile."""

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
