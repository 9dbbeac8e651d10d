"""Names of subscribers and checkpoints, and positions as their users write them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from jlog.system.clock import EPOCH
from jlog.system.texts import parse_iso_time, reads_as_a_date, reads_as_a_time

Start = str | int | datetime | timedelta

FORMS = (
    "'begin', 'end', a sequence, an aware datetime, an ISO string with a UTC offset such as '2026-11-25T12:00:00Z', a "
    "timedelta (so long ago), or a checkpoint's name"
)

NAME_BYTES_MAX = 200
_RESERVED = ("begin", "end")
_LIKE_A_SEQUENCE = re.compile(r"[+-]?\d+\Z")


def is_name(name: str) -> bool:
    """Says whether a subscriber or a checkpoint that exists may have this name."""
    return not _broken_rule(name)


def is_new_name(name: str) -> bool:
    """Says whether a new subscriber or checkpoint may have this name."""
    return is_name(name) and not reads_as_a_time(name)


def check_name(name: str, what: str) -> str:
    """Returns the name. Raises a ValueError that says which rule the name breaks. `what` is "subscriber" or "checkpoint"."""
    if not isinstance(name, str):
        raise TypeError(f"a {what}'s name must be str, not {type(name).__name__}")
    broken = _broken_rule(name)
    if broken:
        raise ValueError(f"{name!r} cannot name a {what}: {broken}")
    return name


def check_new_name(name: str, what: str) -> str:
    """Does the same for a name that is about to be created. A name that reads as a time is refused only here: later versions
    know more forms of times, and a name from before has to stay usable and removable."""
    if reads_as_a_time(check_name(name, what)):
        raise ValueError(f"{name!r} cannot name a {what}: it reads as a time")
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
        try:
            return datetime.now(timezone.utc) - start
        except OverflowError:
            raise ValueError(f"{start!r} ago is before the year 1 or after the year 9999; write 'begin' or 'end'") from None
    if isinstance(start, str) and _LIKE_A_SEQUENCE.match(start):
        raise ValueError(f"{start!r} is not a position: a sequence is an int from 0 on, and not a text")
    if isinstance(start, str) and reads_as_a_date(start):
        try:
            return parse_iso_time(start)
        except ValueError as error:
            raise ValueError(f"{error}; a position is {FORMS}") from None
    if isinstance(start, datetime):
        timestamp_us_of(start)
    return start


def timestamp_us_of(time: datetime) -> int:
    """Returns the microseconds since 1970. Raises TypeError for what is not a datetime, and ValueError for a naive one: nobody
    could tell which instant it means."""
    if not isinstance(time, datetime):
        raise TypeError(f"a time must be an aware datetime, not {time!r}")
    if time.tzinfo is None or time.utcoffset() is None:
        raise ValueError(f"{time!r} has no time zone; use an aware datetime, for example datetime.now(timezone.utc)")
    since = time - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
