"""Looks for journals and topics that a table of the file asks for, while the mirrors run."""

from __future__ import annotations

import threading

from jlog.errors import JournalError
from jlog.flow.ends import Lag
from jlog.flow.stats import FlowStats
from jlog.flow.stop import SLICE_SECONDS, Stop, Stopped
from jlog.kafka.many.config import Find, Job

LOOK_EVERY = 5.0  # seconds between two looks


class Lookout:
    """Finds the jobs of one table, in a thread of its own: brokers that do not answer hold up no other table. `found` has the
    jobs of the newest look, `error` says why it failed, and `looks` counts them.

    Its attributes are those of a flow too, so that a table that finds nothing because of an error is not taken for ready.
    """

    was_open = False
    is_open = False

    def __init__(self, find: Find, stop: Stop, *, once: bool) -> None:
        self.found: list[Job] = []
        self.error: Exception | None = None
        self.looks = 0
        self._find = find
        self._stop = stop
        self._once = once
        self._thread = threading.Thread(target=self._run, name="jlog-lookout", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.requested:
            try:
                found, error = [*self._find(self._stop)], None
            except Stopped:
                return
            except Exception as raised:  # noqa: BLE001 - whatever it was, somebody has to know
                found, error = [], raised
            self.found, self.error = found, error  # in this order: a thread that sees no error sees the new jobs
            self.looks += 1
            if self._once or not (error is None or isinstance(error, (JournalError, OSError))):
                return
            self._stop.wait(LOOK_EVERY)

    def join(self) -> None:
        """Waits for the end, after a request to stop, but not for brokers."""
        self._thread.join(2 * SLICE_SECONDS)

    @property
    def stats(self) -> FlowStats:
        return FlowStats(last_error="it looks for what there is" if self.error is None else str(self.error))

    def lag(self) -> Lag | None:
        return None
