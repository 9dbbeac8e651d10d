"""roll="hourly" and the others: a segment ends with its period of UTC, by the clock at append, right or wrong.

The tests set the clock: a failpoint adds seconds to the realtime clock that the core reads.
"""

import math
import time
from datetime import datetime, timedelta, timezone

import pytest

import jlog
from behaviour.journals import fill, records, value_of, values

pytestmark = pytest.mark.usefixtures("failpoints")

MARGIN = 20  # seconds before and after a boundary: a test may be held up for as long
PERIODS = {"minutely": 60, "hourly": 3600, "daily": 86400, "weekly": 7 * 86400}
MONDAY = datetime(2026, 11, 16, tzinfo=timezone.utc).timestamp()
HOUR, DAY = 3600, 86400


def step_to(seconds):
    return f"clock={math.ceil(seconds - time.time())}@0"


@pytest.fixture
def clock(monkeypatch):
    """Sets it to a time in seconds since 1970, or up to a second later; it goes on from there."""

    def set_to(seconds):
        monkeypatch.setenv("JLOG_FAILPOINTS", step_to(seconds))

    return set_to


def segments(path):
    return [segment.first_sequence for segment in jlog.Journal(path).segments()]


@pytest.mark.parametrize("precommit", [0, 4 << 10])
@pytest.mark.parametrize(("roll", "seconds"), PERIODS.items(), ids=PERIODS)
def test_a_segment_ends_with_its_period_of_utc(path, clock, roll, seconds, precommit):
    begin = MONDAY + 3 * seconds
    clock(begin - MARGIN)
    with jlog.Writer(path, roll=roll, precommit=precommit) as writer:
        fill(writer, 5)
        assert segments(path) == [0]
        clock(begin + MARGIN)
        fill(writer, 5)
        assert segments(path) == [0, 5]
        clock(begin + seconds - MARGIN)
        fill(writer, 5)
        assert segments(path) == [0, 5], "the same period"
        clock(begin + seconds + MARGIN)
        fill(writer, 5)
        assert segments(path) == [0, 5, 15]
    assert values(path) == [value_of(number) for number in range(20)]


def test_a_week_begins_on_monday_at_midnight(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="weekly") as writer:
        for day in range(8):
            clock(MONDAY + day * DAY + HOUR)
            fill(writer, 1)
    assert segments(path) == [0, 7]


APPENDS = {
    "append": lambda writer: writer.append(b"x"),
    "append with a key": lambda writer: writer.append(b"x", key=b"k"),
    "append with a time": lambda writer: writer.append(b"x", timestamp_us=5),
    "extend": lambda writer: writer.extend([b"x", b"x"]),
    "state": lambda writer: writer.extend([b"x"], state={b"k": b"v"}),
    "what the buffer cannot hold": lambda writer: writer.append(b"x" * 200_000),
    "what is written to a segment of its own": lambda writer: writer.append(b"x" * 600_000),
}


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("call", APPENDS.values(), ids=APPENDS)
def test_every_kind_of_append_finds_the_period_over(path, clock, call, compression):
    clock(MONDAY)
    with jlog.Writer(path, roll="hourly", segment_bytes=1 << 20, compression=compression) as writer:
        first = fill(writer, 5)
        for hour in (1, 2):
            clock(MONDAY + hour * HOUR)
            call(writer)
            assert len(segments(path)) == hour + 1
    assert values(path)[:5] == first
    assert jlog.Journal(path).verify().ok


def test_size_and_time_both_end_a_segment(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="daily", segment_bytes=8 << 10, precommit=4 << 10) as writer:
        fill(writer, 200)
        by_size = len(segments(path))
        assert by_size > 2
        clock(MONDAY + DAY)
        fill(writer, 1)
        assert len(segments(path)) == by_size + 1


def test_a_segment_without_a_record_does_not_end(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="hourly") as writer:
        for hour in range(1, 5):
            clock(MONDAY + hour * HOUR)
            writer.flush()
            writer.sync()
            jlog.Journal(path).clean()
            assert segments(path) == [0]
        fill(writer, 1)
        clock(MONDAY + 5 * HOUR)
        writer.extend([])
        assert segments(path) == [0]
        fill(writer, 1)
        assert segments(path) == [0, 1]


def test_state_alone_is_not_a_record_and_is_carried_on(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="hourly") as writer:
        writer.extend([], state={b"k": b"v"})
        clock(MONDAY + HOUR)
        writer.extend([], state={b"l": b"w"})
        assert segments(path) == [0]
        fill(writer, 1)
        clock(MONDAY + 2 * HOUR)
        fill(writer, 1)
        assert segments(path) == [0, 1]
    assert jlog.Journal(path).state() == {b"k": b"v", b"l": b"w"}


def test_hours_without_a_record_leave_no_segment(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="minutely") as writer:
        fill(writer, 1)
        clock(MONDAY + 30 * DAY)
        fill(writer, 1)
    assert segments(path) == [0, 1]


# --- A clock that jumps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [2 * HOUR, -2 * HOUR, 400 * DAY, -400 * DAY])
@pytest.mark.parametrize("precommit", [0, 4 << 10])
def test_a_clock_that_jumps_ends_a_segment_once(path, clock, jump, precommit):
    """Timestamps never run backwards."""
    clock(MONDAY + HOUR // 2)
    with jlog.Writer(path, roll="hourly", precommit=precommit) as writer:
        fill(writer, 10)
        clock(MONDAY + HOUR // 2 + jump)
        for _ in range(3):
            fill(writer, 10)
            writer.extend([b"x"] * 3)
            assert segments(path) == [0, 10]
        clock(MONDAY + HOUR // 2)
        for _ in range(3):
            fill(writer, 10)
            assert segments(path) == [0, 10, 49]
    times = [record.timestamp_us for record in records(path)]
    assert times == sorted(times)
    assert jlog.Journal(path).verify().ok


def test_two_clocks_that_differ_a_little_end_a_segment_once(path, clock, spawn):
    """Each process reads its own: at the boundary one of them may lag a little."""
    ahead = spawn()
    with jlog.Writer(path, roll="hourly") as writer:
        clock(MONDAY - MARGIN)
        fill(writer, 5)
        ahead.call("open_writer", "w", str(path), {})
        for hour in range(1, 4):
            ahead.call("arm", step_to(MONDAY + hour * HOUR))
            ahead.call("append", "w", 1)
            clock(MONDAY + hour * HOUR - 1)
            writer.append(b"x")
            ahead.call("append", "w", 1)
            writer.append(b"x")
    assert segments(path) == [0, 5, 9, 13]


@pytest.mark.parametrize(
    "call",
    [("roll", "w"), ("append", "w", 1, 600_000)],
    ids=["roll", "what is written to a segment of its own"],
)
@pytest.mark.parametrize("point", ["rotate.before", "rotate.turned"])
def test_a_roll_that_is_killed_leaves_no_segment_in_two_periods(path, spawn, call, point):
    """Just when the hour is over."""
    victim, other = spawn(step_to(MONDAY)), spawn(step_to(MONDAY))
    victim.call("open_writer", "w", str(path), {"roll": "hourly", "segment_bytes": 1 << 20})
    victim.call("append", "w", 5)
    other.call("open_writer", "other", str(path), {})
    victim.call("flush", "w")
    hour = step_to(MONDAY + HOUR)
    victim.call("arm", f"{hour},{point}=kill@1")
    victim.dies(*call)
    killed = segments(path)
    for _ in range(2):
        other.call("arm", step_to(MONDAY + HOUR + HOUR // 2))
        other.call("append", "other", 2)
    found = segments(path)
    begin = datetime.fromtimestamp(MONDAY + HOUR, timezone.utc)
    assert jlog.Journal(path).find(begin) == 5
    assert 5 in found, "records of the hour before are not in one segment with those of this one"
    assert len(found) <= len(killed) + 1, "and it ends once"
    other.call("arm", step_to(MONDAY + 2 * HOUR))
    other.call("append", "other", 1)
    assert len(segments(path)) == len(found) + 1


# --- Its option --------------------------------------------------------------------------------------------------


def test_it_is_kept_with_the_journal_over_close_and_reopening(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="daily") as writer:
        fill(writer, 5)
    clock(MONDAY + DAY // 2)
    with jlog.Writer(path) as writer:
        fill(writer, 5)
        assert segments(path) == [0]
    clock(MONDAY + DAY)
    with jlog.Writer(path) as writer:
        fill(writer, 5)
        assert segments(path) == [0, 10]
    assert jlog.Journal(path).options.roll == "daily"


def test_a_later_writer_changes_it_for_every_process(path, clock, spawn):
    child = spawn(step_to(MONDAY))
    clock(MONDAY)
    child.call("open_writer", "w", str(path), {})
    child.call("append", "w", 5)
    with jlog.Writer(path, roll="hourly"):
        child.call("append", "w", 5)
        assert segments(path) == [0]
        child.call("arm", step_to(MONDAY + 2 * HOUR))
        child.call("append", "w", 5)
        assert segments(path) == [0, 10]
    jlog.Writer(path, roll="never").close()
    child.call("arm", step_to(MONDAY + 4 * HOUR))
    child.call("append", "w", 5)
    assert segments(path) == [0, 10]


def test_several_processes_end_a_segment_once(path, spawn):
    children = [spawn(step_to(MONDAY)) for _ in range(3)]
    for number, child in enumerate(children):
        child.call("open_writer", f"w{number}", str(path), {"roll": "hourly", "precommit": 4 << 10})
        child.call("append", f"w{number}", 5)
    for hours in (2, 4):
        for number, child in enumerate(children):
            child.call("arm", step_to(MONDAY + hours * HOUR))
            child.start("append", f"w{number}", 50, 100)
        for child in children:
            child.result()
    assert len(segments(path)) == 3


# --- Who else rolls ----------------------------------------------------------------------------------------------


def test_clean_ends_a_segment_that_nobody_appends_to_any_more(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="hourly") as writer:
        fill(writer, 5)
        journal = jlog.Journal(path)
        journal.clean()
        assert segments(path) == [0]
        clock(MONDAY + HOUR)
        journal.clean(dry_run=True)
        assert segments(path) == [0], "a dry run changes nothing"
        journal.clean()
        assert segments(path) == [0, 5]
        journal.clean()
        assert segments(path) == [0, 5]
        fill(writer, 5)
        assert segments(path) == [0, 5]


def test_a_segment_that_clean_ends_goes_at_once_if_it_was_read(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="hourly") as writer, jlog.Reader(path, "billing") as reader:
        fill(writer, 5)
        list(reader.values())
        reader.commit()
        assert segments(path) == [0]
        clock(MONDAY + HOUR)
        jlog.Journal(path).clean()
        assert segments(path) == [5]
        assert jlog.Journal(path).first_sequence == 5


def test_clean_rolls_a_closed_journal_too(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="hourly") as writer:
        fill(writer, 5)
    clock(MONDAY + HOUR)
    jlog.Journal(path).clean()
    assert segments(path) == [0, 5]
    with jlog.Writer(path) as writer:
        fill(writer, 5)
    assert segments(path) == [0, 5]


def test_a_commit_does_not_roll(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="hourly") as writer, jlog.Reader(path, "billing") as reader:
        fill(writer, 5)
        clock(MONDAY + HOUR)
        list(reader.values())
        reader.commit()
        assert segments(path) == [0]


def test_times_find_the_segments_that_time_has_made(path, clock):
    clock(MONDAY)
    with jlog.Writer(path, roll="hourly") as writer:
        for hour in range(5):
            clock(MONDAY + hour * HOUR + 60)
            fill(writer, 3)
    begin = datetime.fromtimestamp(MONDAY, timezone.utc)
    assert [jlog.Journal(path).find(begin + timedelta(hours=hour)) for hour in range(6)] == [
        0,
        3,
        6,
        9,
        12,
        15,
    ]
