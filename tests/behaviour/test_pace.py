"""Replaying records as far apart as their timestamps are."""

import asyncio
import math
import threading
import time

import pytest

import jlog
from jlog.reading.pace import Pace
from patience import HUNG_SECONDS
from processes.children import Raised

SECOND = 1_000_000


@pytest.fixture
def at(path):
    """Creates a journal of records with these timestamps, in seconds, and gives a reader of it."""
    readers = []

    def make(*seconds):
        with jlog.Writer(path) as writer:
            for second in seconds:
                writer.append(str(second).encode(), timestamp_us=int(second * SECOND))
        readers.append(jlog.Reader(path))
        return readers[-1]

    yield make
    for reader in readers:
        reader.close()


def follow(reader, **options):
    """[(value, seconds since it began)]"""
    began = time.monotonic()
    return [(record.value, time.monotonic() - began) for record in reader.follow(timeout=0, **options)]


def follow_async(reader, **options):
    async def collect():
        began = time.monotonic()
        following = reader.follow_async(timeout=0, **options)
        return [(record.value, time.monotonic() - began) async for record in following]

    return asyncio.run(collect())


both = pytest.mark.parametrize("follow", [follow, follow_async])


@both
def test_no_record_comes_before_it_is_due(at, follow):
    found = follow(at(1000, 1000.1, 1000.3), pace=1.0)
    assert [value for value, _ in found] == [b"1000", b"1000.1", b"1000.3"]
    assert found[1][1] >= 0.1
    assert found[2][1] >= 0.3


@both
@pytest.mark.parametrize(("pace", "seconds"), [(2.0, 0.1), (0.5, 0.4)])
def test_at_another_pace_they_come_sooner_or_later(at, follow, pace, seconds):
    found = follow(at(0, 0.2), pace=pace)
    assert found[1][1] >= seconds


@pytest.mark.parametrize("factor", [0.25, 1.0, 2.0])
def test_the_schedule_counts_from_the_first_record(factor):
    pace = Pace(factor)
    began = time.monotonic()
    assert pace.delay(50 * SECOND) <= 0
    at_most = time.monotonic() - began  # so much later the first one came
    for second in (60, 80, 51, 51):
        due = began + (second - 50) / factor
        before = time.monotonic()
        seconds = pace.delay(second * SECOND)
        assert due - time.monotonic() <= seconds <= due + at_most - before


@both
def test_timestamps_that_run_backwards_come_at_once(at, follow):
    hour = 3600
    found = follow(at(2 * hour, hour, 0, -hour, 2 * hour + 0.05, hour), pace=1.0)
    assert len(found) == 6


@both
def test_records_of_one_time_come_at_once(at, follow):
    assert len(follow(at(*[7] * 500), pace=1e-6)) == 500


@both
@pytest.mark.parametrize("pace", [1e-300, 1.0, 1e300])
def test_a_pace_and_a_time_at_their_extremes_break_nothing(path, follow, pace):
    with jlog.Writer(path) as writer:
        for timestamp_us in ((1 << 63) - 1, -(1 << 63), 0):
            writer.append(b"x", timestamp_us=timestamp_us)
    with jlog.Reader(path) as reader:
        assert len(follow(reader, pace=pace)) == 3


def test_a_record_that_is_not_due_yet_is_not_handed_out(at):
    reader = at(0, 1e9, 2e9)
    following = reader.follow(pace=1.0)
    assert next(following).value == b"0"
    found = []

    def go_on():
        try:
            next(following)
        except jlog.JournalClosed as error:
            found.append(error)

    thread = threading.Thread(target=go_on)
    thread.start()
    assert reader.position == 1
    reader.close()
    thread.join(HUNG_SECONDS)
    assert len(found) == 1


def test_a_loop_goes_on_while_nothing_is_due(at):
    async def follow():
        following = reader.follow_async(pace=1.0)
        assert (await anext(following)).value == b"0"
        step = asyncio.ensure_future(anext(following))
        await asyncio.sleep(0.01)
        assert not step.done()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        assert reader.position == 1
        reader.seek(2)
        assert reader.position == 2

    reader = at(0, 1e9, 2e9)
    asyncio.run(follow())


def test_while_a_record_is_not_due_the_timeout_does_not_run(at):
    reader = at(0, 0.2)
    assert len(list(reader.follow(timeout=0.01, pace=1.0))) == 2


def test_at_the_end_it_waits_for_more(at, path):
    reader = at(0, 0.01)
    following = reader.follow(timeout=HUNG_SECONDS, pace=1.0)
    assert [next(following).value, next(following).value] == [b"0", b"0.01"]
    with jlog.Writer(path) as writer:
        writer.append(b"more", timestamp_us=20_000)
    assert next(following).value == b"more"


def test_ctrl_c_ends_the_wait_for_the_next_record(path, spawn):
    with jlog.Writer(path) as writer:
        writer.extend([b"now", b"never"], timestamps_us=[0, 1 << 60])
    child = spawn()
    child.start("follow", str(path), "never", "begin", 1.0)
    child.wait_for("record")
    child.interrupt()
    with pytest.raises(Raised) as caught:
        child.result()
    assert caught.value.kind == "KeyboardInterrupt"


@pytest.mark.parametrize("pace", [0, -1, -0.5, math.nan, math.inf])
def test_a_pace_is_above_0(at, pace):
    reader = at(0)
    for method in (reader.follow, reader.follow_async):
        with pytest.raises(ValueError, match="above 0"):
            method(pace=pace)


@pytest.mark.parametrize("pace", ["1", b"1", True, [1.0]])
def test_a_pace_is_a_number(at, pace):
    reader = at(0)
    for method in (reader.follow, reader.follow_async):
        with pytest.raises(TypeError, match="number"):
            method(pace=pace)
