"""Checks of arguments and options. Each refusal names the argument, says what it may be, and shows what it was."""

from __future__ import annotations

import math
import sys
from operator import index
from typing import Any

FOR_EVER = ", or None to wait for ever"
SECONDS_MAX = 1e9  # of a lease or a delay: 30 years


def check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, not {value!r}")


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {value!r}")


def check_count(
    name: str, value: Any, least: int = 1, most: int = sys.maxsize, *, what: str = "a whole number", more: str = ""
) -> int:
    """Returns the number. Every kind of integer is taken, such as numpy's, but no bool. more: other values that are allowed."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be {what}{more}, not {value!r}")
    found = index(value)
    if not least <= found <= most:
        limit = f", at least {least}" if found < least and most == sys.maxsize else f" from {least} to {most}"
        raise ValueError(f"{name} must be {what}{limit}{more}, not {found}")
    return found


def check_seconds(name: str, value: Any, most: float = math.inf, *, zero: bool = False, more: str = "") -> float:
    """Returns the duration. zero: it may be 0. more: other values that are allowed."""
    limit = f" and at most {most}" if most < math.inf else ""
    what = f"a number of seconds{', at least 0' if zero else ' above 0'}{limit}{more}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be {what}, not {value!r}")
    if not (0 < value <= most or (zero and value == 0)):
        raise ValueError(f"{name} must be {what}, not {value!r}")
    return value


def check_timeout(name: str, seconds: Any) -> None:
    """Checks how long a call may wait. What is left of a longer wait may be below 0, and waits as little as 0 does."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds{FOR_EVER}, not {seconds!r}")
    if seconds != seconds:  # NaN; math.isnan() refuses large integers
        raise ValueError(f"{name} must be a number of seconds{FOR_EVER}, not {seconds!r}")
