"""Names of subscribers and checkpoints, and positions as their users write them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

Start = str | int | datetime | timedelta

FORMS = (
    "'begin', 'end', a sequence, an aware datetime, an ISO string with a UTC offset such as '2026-11-25T12:00:00Z', a "
    "timedelta (so long ago), or a checkpoint's name"
)

NAME_BYTES_MAX = 200
_RESERVED = ("begin", "end")
_LIKE_A_SEQUENCE = re.compile(r"[+-]?\d+\Z")
_LIKE_A_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?\Z")


def is_name(name: str) -> bool:
    """Says whether a subscriber or a checkpoint may have this name."""
    return not _broken_rule(name)


def check_name(name: str, what: str) -> str:
    """Returns the name. Raises a ValueError that says which rule the name breaks. `what` is "subscriber" or "checkpoint"."""
    if not isinstance(name, str):
        raise TypeError(f"a {what}'s name must be str, not {type(name).__name__}")
    broken = _broken_rule(name)
    if broken:
        raise ValueError(f"{name!r} cannot name a {what}: {broken}")
    return name


def _broken_rule(name: str) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if not 1 <= size <= NAME_BYTES_MAX:
        return f"a name has 1 to {NAME_BYTES_MAX} bytes of UTF-8, this one has {size}"
    if "/" in name:
        return "it contains a /"
    if any(ord(character) < 32 or 127 <= ord(character) < 160 for character in name):
        return "it contains a control character"
    if name.startswith("."):
        return "it starts with a dot"
    if name in _RESERVED:
        return "begin and end name the journal's own ends"
    if _LIKE_A_SEQUENCE.match(name):
        return "it reads as a sequence"
    if _LIKE_A_TIME.match(name):
        return "it reads as a time"
    return ""


def check_start(start: Start) -> Start:
    """Returns the position as it was given. Raises TypeError or ValueError for what cannot be one, without a look at any
    journal."""
    resolved(start)
    return start


def resolved(start: Start) -> str | int | datetime:
    """Returns the position with a time as a datetime: an ISO string, and a timedelta before now, become one."""
    if isinstance(start, bool) or not isinstance(start, (str, int, datetime, timedelta)):
        raise TypeError(f"a position must be {FORMS}, not {start!r}")
    if isinstance(start, timedelta):
        return datetime.now(timezone.utc) - start
    if isinstance(start, str) and _LIKE_A_TIME.match(start):
        return _parsed(start)
    if isinstance(start, datetime):
        timestamp_us_of(start)
    return start


def _parsed(text: str) -> datetime:
    try:
        # Before Python 3.11 datetime knows no Z, and no fraction of other than 3 or 6 digits.
        whole = re.sub(r"\.(\d{1,6})\d*", lambda found: "." + found[1].ljust(6, "0"), re.sub(r"[Zz]\Z", "+00:00", text))
        found = datetime.fromisoformat(whole)
    except ValueError:
        raise ValueError(f"{text!r} is not a time; a position is {FORMS}") from None
    if found.tzinfo is None:
        raise ValueError(f"{text!r} is not a time with a UTC offset; write 2026-11-25T12:00:00Z or …+01:00")
    return found


def timestamp_us_of(time: datetime) -> int:
    """Returns the microseconds since 1970. Raises ValueError for a naive datetime: nobody could tell which instant it means."""
    if time.tzinfo is None or time.utcoffset() is None:
        raise ValueError(f"{time!r} has no time zone; use an aware datetime, for example datetime.now(timezone.utc)")
    since = time.astimezone(timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
