"""Values as people write them: times, durations, sizes, flags, counts and patterns. The command line, `start=`, Spark's options
and the files of mirrors all parse them here, so that a text means the same in each of them. Another text raises ValueError,
which says the forms there are."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import AnyStr

FORMS = (
    "2026-11-25T12:00:00Z, with any UTC offset; in this machine's zone 2026-11-25, 2026-11-25 12:00, 13:30, today or "
    "yesterday; or so long ago: 10m, 1h, 7d"
)
ISO_FORMS = "2026-11-25T12:00:00Z or …+01:00"

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[Tt ].*)?\Z", re.ASCII | re.DOTALL)
_TIME = re.compile(
    r"(?:(?P<date>\d{4}-\d{2}-\d{2})(?:[Tt ](?=\d)|\Z))?"
    r"(?:(?P<minute>\d{2}:\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,6})\d*)?)?"
    r"(?:\s?(?P<offset>(?P<utc>[Zz])|(?P<hours>[+-]\d{2}):?(?P<minutes>\d{2})?))?)?\Z",
    re.ASCII,
)
_CLOCK = re.compile(r"\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\Z", re.ASCII)
_AGO = re.compile(r"(?:\d+[wdhms])+\Z", re.ASCII)
_PART = re.compile(r"(\d+)\s*(w|d|h|min|ms|us|m|s)\s*", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+\Z", re.ASCII)
_UNITS = {
    "w": "weeks",
    "d": "days",
    "h": "hours",
    "m": "minutes",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
}
_SIZE = re.compile(r"(\d+)\s*(?:([KMGT])(?:I?B)?|B)?\Z", re.IGNORECASE | re.ASCII)
_DAYS = {"today": timedelta(0), "yesterday": timedelta(days=1)}


@dataclass(frozen=True)
class FoundTime:
    """A time, and whether the machine's zone was taken for it, since the text has no offset."""

    time: datetime
    is_local: bool = False


def reads_as_a_time(text: str) -> bool:
    """Says whether the text is written as a time, so that it can be nothing else; it may still name none, as 2026-02-31."""
    return text in _DAYS or any(form.match(text) for form in (_DATE, _CLOCK, _AGO))


def reads_as_a_date(text: str) -> bool:
    """Says whether the text begins with a date, as an ISO time does."""
    return _DATE.match(text) is not None


def parse_iso_time(text: str) -> datetime:
    """Parses a time with its UTC offset: a program's text must mean the same on every machine and on every day."""
    found = parse_time(text, forms=ISO_FORMS) if reads_as_a_date(text) else None
    if found is None or found.is_local:
        raise ValueError(f"{text!r} is not a time with a UTC offset; write {ISO_FORMS}")
    return found.time


def parse_time(text: str, now: datetime | None = None, *, forms: str = FORMS) -> FoundTime:
    """Parses a time in any of the FORMS. Raises ValueError, which offers `forms`. now: an aware datetime, in whose zone a text
    without an offset is read; None: the machine's clock and zone."""
    if _AGO.match(text):
        return FoundTime(_ago(text, now or datetime.now(timezone.utc)))
    found = _TIME.match(text)
    if text not in _DAYS and (found is None or not text or (found["offset"] and not found["date"])):
        raise ValueError(f"{text!r} is not a time; write {forms}")
    here = now or (datetime.now(timezone.utc) if found and found["offset"] else _here_now())
    try:
        if found is None:
            day = here.replace(tzinfo=None) - _DAYS[text]
            return FoundTime(in_zone(day.replace(hour=0, minute=0, second=0, microsecond=0), now), is_local=True)
        second, fraction = found["second"] or "00", (found["fraction"] or "").ljust(6, "0")
        # datetime.fromisoformat knows no Z before Python 3.11, and only fractions of 3 or 6 digits.
        whole = f"{found['date'] or here.date().isoformat()}T{found['minute'] or '00:00'}:{second}.{fraction}"
        if found["utc"]:
            return FoundTime(datetime.fromisoformat(f"{whole}+00:00"))
        if found["hours"]:
            return FoundTime(datetime.fromisoformat(f"{whole}{found['hours']}:{found['minutes'] or '00'}"))
        return FoundTime(in_zone(datetime.fromisoformat(whole), now), is_local=True)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r} is not a time: {error}; write {forms}") from None


def parse_position(text: str) -> int | str | FoundTime:
    """Parses a sequence, a time, "begin", "end" or the name of a checkpoint. Raises ValueError for a time that is not one."""
    if is_number(text):
        return int(text)
    return parse_time(text) if reads_as_a_time(text) else text


def parse_duration(text: str) -> timedelta:
    """Parses a duration: 7d, 12h, 90m, 30s, 500ms, 1w, 1d12h."""
    if not _DURATION.match(text.strip()):
        raise ValueError(f"{text!r} is not a duration; write it in w, d, h, m, s and ms: 7d, 12h, 1h30m, 500ms")
    try:
        return sum((timedelta(**{_UNITS[unit]: int(count)}) for count, unit in _PART.findall(text)), timedelta(0))
    except OverflowError:
        raise ValueError(f"{text!r} is longer than {timedelta.max.days} days") from None


def parse_seconds(text: str) -> float:
    return parse_duration(text).total_seconds()


def parse_size(text: str) -> int:
    """Parses a number of bytes: 4096, 128K, 64MiB. Units are powers of 1024."""
    size = _SIZE.match(text.strip())
    if size is None:
        raise ValueError(f"{text!r} is not a number of bytes; write 131072, 128K or 64MiB")
    return int(size[1]) << (10 * (" KMGT".index((size[2] or " ").upper())))


def parse_flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return word == "true"


def parse_count(text: str) -> int:
    """Parses a whole number above 0."""
    digits = text.strip()
    if not is_number(digits) or int(digits) == 0:
        raise ValueError(f"{text!r} is not a whole number above 0")
    return int(digits)


def parse_pattern(text: AnyStr) -> re.Pattern[AnyStr]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{os.fsdecode(text)!r} is not a regular expression: {error}") from None


def is_number(text: str) -> bool:
    """Says whether the text has digits and nothing else, as sequences have."""
    return text.isascii() and text.isdigit()


def _here_now() -> datetime:
    """Returns the machine's time, in its zone."""
    try:
        return datetime.now().astimezone()
    except ValueError:
        zone = f"TZ={os.environ.get('TZ')}"
        raise ValueError(f"{zone}: this machine's zone is a day or more from UTC; name another, such as TZ=UTC") from None


def _ago(text: str, now: datetime) -> datetime:
    try:
        return now - parse_duration(text)
    except OverflowError:
        raise ValueError(f"{text!r} ago is before the year 1") from None


def in_zone(time: datetime, now: datetime | None = None) -> datetime:
    """Returns the naive time in the zone of `now`, or of the machine, whose offset may be another one on that day."""
    if now is not None:
        return time.replace(tzinfo=now.tzinfo)
    found = time.astimezone()
    # If the clock skips this time because summer time begins, Python has returned one before the gap, such as 01:30 for 02:30.
    return found if found.replace(tzinfo=None) == time else time.replace(fold=1).astimezone()
