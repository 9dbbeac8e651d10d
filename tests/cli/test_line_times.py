"""`jlogtool append --time-format`, `--time-regex` and `--time-field`: the times that lines have."""

from __future__ import annotations

import os
from calendar import isleap
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import HUNG_SECONDS, run, start

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
BEFORE = NOON - timedelta(hours=1)


def times(journal: Path, lines: list[str], *options: str, zone: str = "UTC") -> list[datetime]:
    tool = start("append", journal, *options, env={**os.environ, "TZ": zone})
    _, err = tool.communicate("\n".join(lines).encode(), timeout=HUNG_SECONDS)
    assert tool.returncode == 0, err
    with jlog.Reader(journal) as reader:
        return [record.timestamp for record in reader]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--time-format", "%Y-%m-%d %H:%M:%S"], "2026-11-20 12:00:00 text"),
        (["--time-format", "[%d/%b/%Y:%H:%M:%S %z]"], "[20/Nov/2026:13:00:00 +0100] GET /"),
        (["--time-format", "%d/%b/%Y:%H:%M:%S %z", "--time-regex", r"\[(.*?)\]"], "host - [20/Nov/2026:13:00:00 +0100] GET /"),
        (["--time-regex", r"at=(?P<time>\S+)"], "level=info at=2026-11-20T12:00:00Z"),
        (["--time-regex", r"^\S+ \S+"], "2026-11-20 12:00:00,000 WARNING text"),
        (["--time-field", "ts"], '{"ts": "2026-11-20T12:00:00+00:00"}'),
        (["--time-field", "ts"], f'{{"ts": {int(NOON.timestamp())}}}'),
        (["--time-field", "ts"], f'{{"ts": {NOON.timestamp()}}}'),
        (["--time-field", "ts"], f'{{"ts": {int(NOON.timestamp()) * 1000}}}'),
        (["--time-field", "ts"], f'{{"ts": {int(NOON.timestamp()) * 10**9}}}'),
        (["--time-field", "ts", "--time-format", "%d.%m.%Y %H"], '{"ts": "20.11.2026 12"}'),
        (["--time-field", "ts"], f'{{"ts": "{NOON.timestamp()}"}}'),
        (["--time-regex", r"audit\(([\d.]+)"], f"type=SYSCALL msg=audit({NOON.timestamp():.3f}:104): arch=c000003e"),
    ],
)
def test_a_line_has_its_own_time(journal: Path, options: list[str], line: str) -> None:
    assert times(journal, [line], *options) == [NOON]


def test_a_line_without_a_time_is_kept_with_that_of_the_line_before(journal: Path) -> None:
    lines = ["2026-11-20 11:00:00 error", "Traceback:", "2026-13-20 12:00:00", "", "2026-11-20 12:00:00 next"]
    assert times(journal, lines, "--time-format", "%Y-%m-%d %H:%M:%S") == [BEFORE] * 4 + [NOON]


def test_what_is_no_json_or_no_time_is_kept_too(journal: Path) -> None:
    lines = [f'{{"t": {BEFORE.timestamp()}}}', "{", "[1]", '{"t": NaN}', '{"t": 1e400}', '{"t": true}', '{"t": {}}', '{"u": 1}']
    assert times(journal, [*lines, '{"t": -1e300}'], "--time-field", "t") == [BEFORE] * 9


def test_a_time_without_a_year_is_of_the_last_year_that_fits(journal: Path) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    wanted = [now, now - timedelta(days=100), now - timedelta(days=300)]
    lines = [f"{time:%b %d %H:%M:%S} host text" for time in wanted]
    assert times(journal, lines, "--time-format", "%b %d %H:%M:%S") == wanted


def test_29_february_without_a_year_is_of_the_last_leap_year(journal: Path) -> None:
    today = datetime.now(timezone.utc)
    leap = next(
        year for year in range(today.year, 0, -1) if isleap(year) and datetime(year, 2, 29, tzinfo=timezone.utc) <= today
    )
    assert times(journal, ["Feb 29 12:00:00"], "--time-format", "%b %d %H:%M:%S") == [NOON.replace(leap, 2, 29)]


def test_a_time_without_a_day_is_of_the_last_day_that_fits(journal: Path) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    wanted = [now - timedelta(hours=22), now - timedelta(hours=1), now]
    assert times(journal, [f"{time:%H:%M:%S} text" for time in wanted], "--time-format", "%H:%M:%S") == wanted


def test_the_name_of_a_zone_in_a_line_counts(journal: Path) -> None:
    lines = [f"2026-07-20 12:00 {zone} text" for zone in ("UTC", "GMT", "CET", "CEST")]
    wanted = [NOON.replace(month=7) - timedelta(hours=hours) for hours in (0, 0, 1, 2)]
    assert times(journal, lines, "--time-format", "%Y-%m-%d %H:%M %Z", zone="Europe/Berlin") == wanted


def test_times_go_on_where_summer_time_ends_and_begins(journal: Path) -> None:
    """A clock shows the hour from 2 to 3 twice, and in March not at all."""
    lines = ["2026-10-25 02:59", "2026-10-25 02:00", "2026-10-25 01:59", "2026-03-29 02:30"]
    hours = [
        datetime(2026, 10, 25, 0, 59, tzinfo=timezone.utc),
        datetime(2026, 10, 25, 1, tzinfo=timezone.utc),
        datetime(2026, 10, 24, 23, 59, tzinfo=timezone.utc),
        datetime(2026, 3, 29, 1, 30, tzinfo=timezone.utc),
    ]
    assert times(journal, lines, "--time-format", "%Y-%m-%d %H:%M", zone="Europe/Berlin") == hours


def test_the_zone_that_was_taken_is_named_once(journal: Path) -> None:
    tool = start("append", journal, "--time-format", "%Y-%m-%d %H:%M", env={**os.environ, "TZ": "Asia/Tokyo"})
    _, err = tool.communicate(b"2026-11-20 21:00 a\n2026-11-20 21:00 b\n", timeout=HUNG_SECONDS)
    assert err == b"jlogtool: times without an offset are taken in this machine's zone, JST\n"
    with jlog.Reader(journal) as reader:
        assert [record.timestamp for record in reader] == [NOON, NOON]


def test_two_places_of_a_time_are_an_error_of_usage(journal: Path) -> None:
    assert run("append", journal, "--time-field", "a", "--time-regex", "b").code == 2
    assert not journal.exists()


def test_a_format_that_fits_no_text_is_refused(tmp_path: Path) -> None:
    """Each record would get the time of its append, without a word."""
    result = run("append", tmp_path / "j", "--time-format", "%Q", stdin=b"2026-01-01\n")
    assert (result.code, "'Q' is a bad directive" in result.err) == (2, True)
    assert not (tmp_path / "j").exists()
    assert run("append", tmp_path / "j", "--time-format", "", stdin=b"2026-01-01\n").code == 2
