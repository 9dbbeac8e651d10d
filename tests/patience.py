"""How long the tests wait for what comes at once on a machine that has nothing else to do."""

from __future__ import annotations

import time
from collections.abc import Callable

HUNG_SECONDS = 250.0  # guards against hanging only, and ends before pytest's own limit
LOOK_SECONDS = 0.01


def wait_until(holds: Callable[[], object], seconds: float = HUNG_SECONDS, complaint: str = "it did not happen") -> None:
    """Waits until this holds, for what another thread or process does. `seconds` guards against hanging."""
    guard = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < guard, complaint
        time.sleep(LOOK_SECONDS)
