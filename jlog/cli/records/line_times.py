"""The time that a line itself has: `append --time-format`, `--time-regex` and `--time-field`."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import click

from jlog.cli.arguments.parameters import PATTERN
from jlog.cli.terminal.output import complain
from jlog.positions.names import timestamp_us_of
from jlog.positions.times import parse_time, reads_as_a_date

HEAD_BYTES = 1024  # of a line, in which --time-format looks for the time
# A number of JSON below each is a time since 1970 in seconds, milliseconds, microseconds; above them in nanoseconds.
EPOCHS = ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0), (float("inf"), 1e-3))

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
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            if not math.isfinite(found):
                raise ValueError(f"{found} is not a time")
            return round(found * next(factor for limit, factor in EPOCHS if abs(found) < limit))
        if not isinstance(found, str):
            raise ValueError(f"{found!r} is not a time")
        if self._format is None:
            if not reads_as_a_date(found):
                raise ValueError(f"{found!r} is not an ISO time")
            parsed = parse_time(found)
            return timestamp_us_of(self._zoned(parsed.time, parsed.is_local))
        time = parsed_by(found, self._format)
        return timestamp_us_of(self._zoned(time, time.tzinfo is None))

    def _zoned(self, time: datetime, is_local: bool) -> datetime:
        if is_local:
            time = time.astimezone()
            if not self._told:
                self._told = True
                complain(f"times without an offset are taken in this machine's zone, {time.tzname()}")
        return time


def parsed_by(text: str, time_format: str) -> datetime:
    """Parses the time that the text begins with. Without a year in the format, as in syslog, it is the latest such day that is
    not more than a day ahead."""
    if re.search(r"%[YyGcxDs]", time_format):
        return _beginning(text, time_format)
    year = datetime.now().astimezone().year
    for candidate in (year + 1, year):  # on New Year's Eve a clock elsewhere may be in the new year
        try:
            found = _beginning(f"{candidate} {text}", f"%Y {time_format}")
        except ValueError:
            continue  # 29 February, or no time at all
        if found.astimezone() <= datetime.now().astimezone() + timedelta(days=1):
            return found
    return _beginning(f"{year - 1} {text}", f"%Y {time_format}")


def _beginning(text: str, time_format: str) -> datetime:
    try:
        return datetime.strptime(text, time_format)  # noqa: DTZ007 - the caller adds the machine's zone
    except ValueError as error:
        # strptime has no other way to tell where the time ends.
        _, remains, rest = str(error).partition("unconverted data remains: ")
        if not remains:
            raise
    return datetime.strptime(text[: len(text) - len(rest)], time_format)  # noqa: DTZ007


def _check_format(time_format: str) -> None:
    """Raises an error of usage for a format that strptime does not know."""
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


def _beginning_of(line: bytes) -> str:
    return line[:HEAD_BYTES].decode("utf-8", "replace")


def time_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options. The command gets `times`, a LineTimes, or None."""

    @click.option("--time-format", metavar="FORMAT", help="A line begins with its time, in this form of strptime.")
    @click.option("--time-regex", type=PATTERN, help="A line's time is what the group `time`, or the first group, finds.")
    @click.option("--time-field", metavar="NAME", help="A line is a JSON object, whose field NAME is its time.")
    @functools.wraps(command)
    def with_times(
        *arguments: Any, time_format: str | None, time_regex: re.Pattern[bytes] | None, time_field: str | None, **options: Any
    ) -> None:
        if time_regex is not None and time_field is not None:
            raise click.UsageError("--time-regex and --time-field do not go together")
        if time_format is not None:
            _check_format(time_format)
        times = None
        if time_regex is not None:
            times = LineTimes(_by_pattern(time_regex), time_format)
        elif time_field is not None:
            times = LineTimes(_by_field(time_field), time_format)
        elif time_format is not None:
            times = LineTimes(_beginning_of, time_format)
        command(*arguments, times=times, **options)

    return with_times
