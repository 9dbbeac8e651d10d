"""The time that a line itself has: `append --time-format`, `--time-regex` and `--time-field`."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import click

from jlog.cli.arguments.click_parts import AddOptions, as_one
from jlog.cli.arguments.parameters import PATTERN
from jlog.cli.terminal.output import complain
from jlog.positions.names import timestamp_us_of
from jlog.system.texts import in_zone, parse_time, reads_as_a_date

HEAD_BYTES = 1024  # of a line, in which --time-format looks for the time
# A number of JSON below each is a time since 1970 in seconds, milliseconds, microseconds; above them in nanoseconds.
EPOCHS = ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0), (float("inf"), 1e-3))
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
_YEAR = re.compile(r"%[YyGcxDs]")
_DAY = re.compile(r"%[aAbBdjmUuVWw]")

Find = Callable[[bytes], Any]  # the text with the time, or a number; None: there is none


class LineTimes:
    """Tells the time of each line. A line without one has that of the line before it."""

    def __init__(self, find: Find, time_format: str | None) -> None:
        self.last_us: int | None = None
        self._find = find
        self._format = time_format
        self._told = False

    def of(self, lines: list[bytes]) -> list[int | None]:
        """Returns the times in microseconds. None is the time of the append: no line had one yet."""
        return [self._of(line) for line in lines]

    def _of(self, line: bytes) -> int | None:
        try:
            found = self._find(line)
            if found is not None and found != "":
                time_us = self._time_us(found)
                self.last_us = time_us if abs(time_us) < 1 << 63 else self.last_us
        except (ValueError, OverflowError, RecursionError):
            pass  # a stack trace, a line that is not JSON: has the time of the line before
        return self.last_us

    def _time_us(self, found: Any) -> int:
        if isinstance(found, str) and self._format is None and _NUMBER.fullmatch(found):
            found = float(found) if "." in found else int(found)
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            if not math.isfinite(found):
                raise ValueError(f"{found} is not a time")
            return round(found * next(factor for limit, factor in EPOCHS if abs(found) < limit))
        if not isinstance(found, str):
            raise ValueError(f"{found!r} is not a time")
        if self._format is not None:
            parsed = parsed_by(found, self._format)
            return timestamp_us_of(parsed) if parsed.tzinfo else self._local_us(parsed)
        if not reads_as_a_date(found):
            raise ValueError(f"{found!r} is not an ISO time")
        iso = parse_time(found)
        return self._local_us(iso.time.replace(tzinfo=None)) if iso.is_local else timestamp_us_of(iso.time)

    def _local_us(self, local: datetime) -> int:
        """Returns the time in this machine's zone. Where summer time ends, clocks show each time of an hour twice: then it is
        the one that is nearer to the line before."""
        zoned = in_zone(local)
        if not self._told:
            self._told = True
            complain(f"times without an offset are taken in this machine's zone, {zoned.tzname()}")
        first_us, second_us = timestamp_us_of(zoned), timestamp_us_of(in_zone(local.replace(fold=1)))
        last_us = first_us if self.last_us is None else self.last_us
        return min(first_us, second_us, key=lambda each: abs(each - last_us))


def parsed_by(text: str, time_format: str) -> datetime:
    """Parses the time that the text begins with; naive where it has no zone. Without a year in the format, as in syslog, it is
    the latest such day that is not more than a day ahead; without a day, the latest that is not more than an hour ahead."""
    if _YEAR.search(time_format):
        return _beginning(text, time_format)
    now = datetime.now().astimezone()
    if _DAY.search(time_format):  # on New Year's Eve a clock elsewhere may be in the new year; 29 February is in few years
        ahead, missing, candidates = timedelta(days=1), "%Y", [str(now.year - ago) for ago in range(-1, 9)]
    else:
        ahead, missing = timedelta(hours=1), "%Y-%m-%d"
        candidates = [(now - timedelta(days=ago)).date().isoformat() for ago in (-1, 0, 1, 2)]
    for candidate in candidates:
        try:
            found = _beginning(f"{candidate} {text}", f"{missing} {time_format}")
        except ValueError as error:
            if "does not match format" in str(error):
                raise
            continue
        if found.astimezone() <= now + ahead:
            return found
    raise ValueError(f"{text!r} is not a time")


def _beginning(text: str, time_format: str) -> datetime:
    try:
        found = datetime.strptime(text, time_format)  # noqa: DTZ007 - the caller adds the machine's zone
    except ValueError as error:
        # strptime has no other way to tell where the time ends.
        _, remains, rest = str(error).partition("unconverted data remains: ")
        if not remains:
            raise
        return _beginning(text[: len(text) - len(rest)], time_format)
    if found.tzinfo is None and "%Z" in time_format:  # datetime drops the zone, which is UTC, GMT or one of this machine's
        named = time.strptime(text, time_format)
        if (named.tm_zone or "").upper() in ("UTC", "GMT"):
            return found.replace(tzinfo=timezone.utc)
        if named.tm_isdst >= 0:
            return found.replace(tzinfo=timezone(timedelta(seconds=-(time.altzone if named.tm_isdst else time.timezone))))
    return found


def _check_format(time_format: str) -> None:
    """Raises an error of usage for a format that strptime does not know, and for one without any directive."""
    if "%" not in time_format:
        raise click.UsageError(f"--time-format {time_format!r} has no directive of strptime, such as %H")
    try:
        datetime.strptime("", time_format)  # noqa: DTZ007
    except ValueError as error:
        if "does not match format" not in str(error):
            raise click.UsageError(f"--time-format {time_format!r}: {error}; the directives are those of strptime") from None


def _by_pattern(pattern: re.Pattern[bytes]) -> Find:
    group: str | int = "time" if "time" in pattern.groupindex else min(pattern.groups, 1)

    def find(line: bytes) -> str | None:
        found = pattern.search(line)
        return None if found is None or found[group] is None else found[group].decode("utf-8", "replace")

    return find


def _by_field(name: str) -> Find:
    def find(line: bytes) -> Any:
        found = json.loads(line)
        return found.get(name) if isinstance(found, dict) else None

    return find


def times_of(time_format: str | None, time_regex: re.Pattern[bytes] | None, time_field: str | None) -> LineTimes | None:
    if time_regex is not None and time_field is not None:
        raise click.UsageError("--time-regex and --time-field do not go together")
    if time_format is not None:
        _check_format(time_format)
    if time_regex is not None:
        return LineTimes(_by_pattern(time_regex), time_format)
    if time_field is not None:
        return LineTimes(_by_field(time_field), time_format)
    if time_format is not None:
        return LineTimes(lambda line: line[:HEAD_BYTES].decode("utf-8", "replace"), time_format)
    return None


time_options: AddOptions = as_one(
    "times",
    times_of,
    click.option("--time-format", metavar="FORMAT", help="A line begins with its time, in this form of strptime."),
    click.option("--time-regex", type=PATTERN, help="A line's time is what the group `time`, or the first group, finds."),
    click.option("--time-field", metavar="NAME", help="A line is a JSON object, whose field NAME is its time."),
)
