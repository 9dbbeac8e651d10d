"""Times, durations, sizes, flags, counts and patterns as people write them."""

import time
from datetime import datetime, timedelta, timezone

import pytest

from jlog.system.texts import (
    parse_count,
    parse_duration,
    parse_flag,
    parse_iso_time,
    parse_pattern,
    parse_size,
    parse_time,
    reads_as_a_time,
)

ZONE = timezone(timedelta(hours=1), "CET")
NOW = datetime(2026, 11, 25, 15, 45, 10, 123456, tzinfo=ZONE)
NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)


def local(*fields):
    return datetime(*fields, tzinfo=ZONE)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-20T12:00Z", NOON),
        ("2026-11-20T12:00:00Z", NOON),
        ("2026-11-20 12:00:00z", NOON),
        ("2026-11-20 13:00:00 +01:00", NOON),
        ("2026-11-20T13:00:00+0100", NOON),
        ("2026-11-20T04:00:00-08", NOON),
        ("2026-11-20T12:00:00.5Z", NOON + timedelta(milliseconds=500)),
        ("2026-11-20T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
    ],
)
def test_an_iso_time_with_its_offset_is_an_instant(text, time):
    found = parse_time(text, NOW)
    assert (found.time, found.is_local) == (time, False)
    assert parse_iso_time(text) == time


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2026-11-24", local(2026, 11, 24)),
        ("2026-11-24T13:30", local(2026, 11, 24, 13, 30)),
        ("2026-11-24 13:30:05.25", local(2026, 11, 24, 13, 30, 5, 250000)),
        ("13:30", local(2026, 11, 25, 13, 30)),
        ("13:30:05", local(2026, 11, 25, 13, 30, 5)),
        ("23:59", local(2026, 11, 25, 23, 59)),
        ("today", local(2026, 11, 25)),
        ("yesterday", local(2026, 11, 24)),
    ],
)
def test_a_time_without_an_offset_is_of_the_zone(text, time):
    found = parse_time(text, NOW)
    assert (found.time, found.is_local) == (time, True)
    with pytest.raises(ValueError, match="is not a time with a UTC offset"):
        parse_iso_time(text)


@pytest.mark.parametrize(
    ("text", "ago"),
    [("10m", timedelta(minutes=10)), ("1h", timedelta(hours=1)), ("7d", timedelta(days=7)), ("1d12h", timedelta(hours=36))],
)
def test_a_duration_is_so_long_ago(text, ago):
    found = parse_time(text, NOW)
    assert (found.time, found.is_local) == (NOW - ago, False)


def test_the_machines_clock_and_zone_are_the_default():
    before = datetime.now(timezone.utc)
    assert before - timedelta(hours=1) <= parse_time("1h").time <= datetime.now(timezone.utc) - timedelta(hours=1)
    assert parse_time("2026-07-01").time == datetime(2026, 7, 1).astimezone()


def test_a_zone_that_python_does_not_have_is_named(monkeypatch):
    monkeypatch.setenv("TZ", "UTC+25")
    time.tzset()
    try:
        for text in ("2026-07-01", "13:30", "today"):
            with pytest.raises(ValueError, match=r"TZ=UTC\+25: this machine's zone is a day or more from UTC; name another"):
                parse_time(text)
        assert parse_time("2026-11-20T12:00:00Z").time == NOON
    finally:
        monkeypatch.undo()
        time.tzset()


BAD = [
    "2026-11-31",
    "2026-11-31T12:00:00Z",
    "2026-11-20T12:00:00 UTC",
    "2026-11-20T",
    "2026-11-20 noon",
    "25:00",
    "12:61",
    "9999999d",
    "25:99",
]


@pytest.mark.parametrize("text", BAD)
def test_what_reads_as_a_time_and_is_none_is_refused(text):
    assert reads_as_a_time(text)
    with pytest.raises(ValueError, match=r"is not a time.* write 2026-11-25T12:00:00Z.* 10m, 1h, 7d|ago is before the year 1"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    "text", ["", "noon", "12:30Z", "1330", "10", "h", "-10m", "1.5h", "tomorrow", "before-2026-11-24", "٣d"]
)
def test_other_text_is_no_time_and_the_error_lists_the_forms(text):
    assert not reads_as_a_time(text)
    with pytest.raises(
        ValueError, match=r"is not a time; write 2026-11-25T12:00:00Z.* 13:30, today or yesterday;.* 10m, 1h, 7d"
    ):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("30s", timedelta(seconds=30)),
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1d12h", timedelta(days=1, hours=12)),
        ("2min 500ms", timedelta(minutes=2, milliseconds=500)),
    ],
)
def test_durations_are_written_with_their_units(text, duration):
    assert parse_duration(text) == duration


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "1y", "9999999999999999w", "٣d"])
def test_a_bad_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a duration|is longer"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4K", 4096),
        ("4 KiB", 4096),
        ("64mib", 64 << 20),
        ("1GB", 1 << 30),
        ("7B", 7),
    ],
)
def test_sizes_have_units_of_1024(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "1.5K", "-1", "1X", "1 000", "٣"])
def test_a_bad_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a number of bytes"):
        parse_size(text)


@pytest.mark.parametrize(("text", "flag"), [("true", True), (" False ", False)])
def test_flags_are_true_or_false(text, flag):
    assert parse_flag(text) is flag
    with pytest.raises(ValueError, match="'yes' is neither true nor false"):
        parse_flag("yes")


def test_counts_are_above_zero():
    assert parse_count(" 12 ") == 12
    for text in ("0", "-1", "1e6", ""):
        with pytest.raises(ValueError, match="is not a whole number above 0"):
            parse_count(text)


@pytest.mark.parametrize("text", ["(", b"("])
def test_a_pattern_that_is_none_is_named(text):
    with pytest.raises(ValueError, match=r"'\(' is not a regular expression: missing \)"):
        parse_pattern(text)
