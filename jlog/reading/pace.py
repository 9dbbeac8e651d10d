"""Replays records with the intervals at which they were written."""

from __future__ import annotations

import math
import time


class Pace:
    """Says when each record of a replay is due. The interval from the first record is that of the timestamps, divided by
    `factor` (2.0 is twice as fast). The times are absolute, so that errors do not add up. A record is due at once if its
    timestamp runs backwards, or if the reader is late."""

    def __init__(self, factor: float) -> None:
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            raise TypeError(f"pace must be a number, not {factor!r}")
        if not 0 < factor < math.inf:
            raise ValueError(f"pace must be a number above 0, not {factor!r}: 1.0 is as recorded, 2.0 twice as fast")
        self._factor = factor
        self._first: tuple[int, float] | None = None  # timestamp of the first record, and when it came

    def delay(self, timestamp_us: int) -> float:
        """Returns the seconds until a record of this timestamp is due; 0 or less means now."""
        if self._first is None:
            self._first = timestamp_us, time.monotonic()
        first_us, began = self._first
        return began + (timestamp_us - first_us) / 1e6 / self._factor - time.monotonic()
