"""Times: the clock's, which never run backwards, and the caller's, which are stored as given."""

import time
from datetime import datetime, timedelta, timezone

import pytest

import jlog
from behaviour.journals import SMALL, fill, records

NOW_US = 1_700_000_000_000_000
FAR = [-(1 << 63), -1, 0, 1, NOW_US, (1 << 63) - 1]


def clock_times(path):
    return [record.timestamp_us for record in records(path)]


def test_the_clocks_time_is_now(writer, path):
    before = time.time_ns() // 1000
    writer.append(b"value")
    after = time.time_ns() // 1000
    slack = 100_000  # the clock of the core is read in another way
    assert before - slack <= clock_times(path)[0] <= after + slack


def test_clock_times_never_run_backwards(path):
    """Appends, a roll and a reopening never put them back."""
    for precommit in (4 << 10, 0, 8 << 10):
        with jlog.Writer(path, **{**SMALL, "precommit": precommit}) as writer:
            fill(writer, 100)
            writer.extend([b"x"] * 20)
            writer.roll()
    found = clock_times(path)
    assert found == sorted(found)


def test_explicit_times_are_stored_and_never_move_the_clock(writer, path):
    future = NOW_US * 2
    writer.append(b"clock")
    writer.append(b"explicit", timestamp_us=future)
    writer.append(b"clock")
    writer.append(b"explicit", timestamp_us=5)
    writer.roll()
    writer.append(b"clock")
    times = clock_times(path)
    assert (times[1], times[3]) == (future, 5)
    assert times[0] <= times[2] <= times[4] < future


@pytest.mark.parametrize("precommit", [0, 4 << 10])
def test_any_64_bits_are_a_time(path, precommit):
    with jlog.Writer(path, precommit=precommit) as writer:
        for time_us in FAR:
            writer.append(b"value", timestamp_us=time_us)
        writer.extend([b"value"] * len(FAR), timestamps_us=FAR)
    assert clock_times(path) == FAR * 2


@pytest.mark.parametrize("time_us", [1 << 63, -(1 << 63) - 1, 1 << 200])
def test_more_than_64_bits_are_not_a_time(writer, time_us):
    with pytest.raises(ValueError, match="64 bits"):
        writer.append(b"value", timestamp_us=time_us)
    assert writer.next_sequence == 0


@pytest.mark.parametrize(
    "time_us",
    [
        1.5,
        "5",
        datetime.now(timezone.utc),
    ],
    ids=["float", "str", "datetime"],
)
def test_a_time_is_an_int(writer, time_us):
    with pytest.raises(TypeError):
        writer.append(b"value", timestamp_us=time_us)
    assert writer.next_sequence == 0


def test_a_timestamp_is_a_time_in_utc_to_the_microsecond(writer, path):
    writer.append(b"value", timestamp_us=NOW_US + 123_456)
    writer.append(b"value", timestamp_us=-1)
    first, second = records(path)
    assert first.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_456, tzinfo=timezone.utc)
    assert first.timestamp.utcoffset() == timedelta(0)
    assert second.timestamp == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc)


def test_a_time_outside_datetimes_range_is_kept_in_microseconds(writer, path):
    writer.append(b"value", timestamp_us=(1 << 63) - 1)
    (record,) = records(path)
    assert record.timestamp_us == (1 << 63) - 1
    with pytest.raises(OverflowError):
        _ = record.timestamp


def test_records_of_one_extend_have_one_time(writer, path):
    writer.extend([b"x"] * 10)
    assert len(set(clock_times(path))) == 1
