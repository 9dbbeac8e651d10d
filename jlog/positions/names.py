"""Names of subscribers and checkpoints, and positions as their users write them."""

from __future__ import annotations

import re
from datetime import datetime, timezone

Start = str | int | datetime

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


def timestamp_us_of(time: datetime) -> int:
    """Returns the microseconds since 1970. Raises ValueError for a naive datetime: nobody could tell which instant it means."""
    if time.tzinfo is None or time.utcoffset() is None:
        raise ValueError(f"{time!r} has no time zone; use an aware datetime, for example datetime.now(timezone.utc)")
    since = time.astimezone(timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
