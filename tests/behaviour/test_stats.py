"""Journal.stats(): what all processes have done, and how the journal and its subscribers stand."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

import jlog
from behaviour.journals import SMALL, fill, read_away
from crash.tampering import another_boot, copy, flip, zero
from elsewhere import mounted_by, read_only, run_python
from jlog.positions.position_files import DEAD_AFTER

COUNTED = ("flushes", "syncs", "rolls")
AN_HOUR_US = 3600 * 1_000_000


def stats(path):
    return jlog.Journal(path).stats()


def counted(path):
    found = stats(path)
    return tuple(getattr(found, name) for name in COUNTED)


def segment_files(path):
    return sorted(path.glob("*.seg"))


# --- Counters ----------------------------------------------------------------------------------------------------


def test_everything_is_zero_for_a_journal_without_records(path):
    found = jlog.Journal.create(path).stats()
    assert set(found.counters.values()) == {0}
    assert (found.records, found.next_sequence, found.writers, found.subscribers) == (0, 0, 0, {})
    assert (found.segments, found.open_bytes) == (1, 0)


def test_counters_are_those_of_all_processes_together(path, spawn):
    """Flushes, syncs and rolls are counted."""
    child = spawn()
    with jlog.Writer(path) as writer:
        child.call("open_writer", "w", str(path), {})
        before = stats(path)
        for _ in range(3):
            writer.append(b"ours")
            writer.flush()
            child.call("append", "w")
            child.call("sync", "w")
            child.call("roll", "w")
        found = stats(path)
        assert found.flushes - before.flushes >= 3
        assert found.syncs - before.syncs == 3
        assert found.rolls - before.rolls == 3


def test_every_record_of_every_process_is_counted_once(path, spawn):
    """It counts the same in the buffer and in its segment."""
    child = spawn()
    with jlog.Writer(path, **SMALL) as writer, jlog.Writer(path, precommit=0) as direct:
        journal = jlog.Journal(path)
        child.call("open_writer", "w", str(path), {})
        for turn in range(20):
            fill(writer, turn)
            child.call("extend", "w", 1, 7)
            direct.append(b"direct")
            writer.extend([b"x" * 10] * 3, state={b"turn": b"%d" % turn})
            assert journal.stats().appends == writer.next_sequence
        before = journal.stats()
        writer.flush()
        assert (journal.stats().appends, journal.stats().bytes) == (before.appends, before.bytes)


def test_bytes_are_those_of_records_before_compression(path):
    with jlog.Writer(path, compression="lz4") as writer:
        writer.extend([b"x" * 92] * 1000)
        assert stats(path).bytes == 100_000
        writer.flush()
        found = stats(path)
        assert found.bytes == found.counters["raw_bytes"] == 100_000
        assert 0 < found.counters["stored_bytes"] < 50_000


def test_a_counter_never_goes_back_while_a_process_writes(path, spawn):
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)
    child.start("append", "w", 1500, 100)  # what it acknowledges stays in the pipe
    journal, seen = jlog.Journal(path), [(0, 0)]
    while seen[-1][0] < 1500:
        found = journal.stats()
        seen.append((found.appends, found.bytes))
    child.result()
    assert seen == sorted(seen)
    assert (seen[-1][0], stats(path).appends) == (1500, 1500)


def test_each_counter_of_the_control_page_is_there_by_its_name(writer, path):
    fill(writer, 100)
    found = stats(path)
    assert found.counters["rolls"] == found.rolls == len(segment_files(path)) - 1 > 0
    assert found.counters["blocks"] > 0
    assert all(value >= 0 for value in found.counters.values())


def test_counters_outlive_the_writers_that_have_counted(path):
    with jlog.Writer(path) as writer:
        writer.append(b"x")
        writer.sync()
        found = stats(path)
    assert found.syncs == 1
    assert stats(path).syncs == 1
    with jlog.Writer(path) as writer:
        writer.append(b"x")
        writer.sync()
        assert stats(path).syncs == 2


def test_counters_of_a_boot_that_is_over_are_zero(path):
    with jlog.Writer(path) as writer:
        writer.append(b"x")
        writer.sync()
        writer.roll()
    assert counted(path) == (counted(path)[0], 2, 1)  # the close has synced the new segment
    another_boot(path)
    found = stats(path)
    assert set(found.counters.values()) == {0}
    assert (found.records, found.segments) == (1, 2)


def test_a_journal_whose_buffer_was_removed_still_has_figures(path):
    with jlog.Writer(path) as writer:
        fill(writer, 10)
    os.unlink(path / "precommit")
    found = stats(path)
    assert set(found.counters.values()) == {0}
    assert found.records == 10


# --- What it holds -----------------------------------------------------------------------------------------------


def test_the_gauges_say_what_the_journal_says(path):
    with jlog.Writer(path, retention=jlog.Retention(delete_read=False), **SMALL) as writer:
        journal = jlog.Journal(path)
        for _ in range(5):
            fill(writer, 50)
            found = journal.stats()
            assert found.records == len(journal) == found.next_sequence - found.first_sequence
            assert (found.first_sequence, found.next_sequence) == (0, writer.next_sequence)
            assert found.size_bytes == journal.size_bytes
            assert found.segments == len(journal.segments()) == len(segment_files(path))


def test_segments_that_were_removed_count_no_more(path):
    with jlog.Writer(path, **SMALL) as writer:
        journal = jlog.Journal(path)
        journal.add_subscriber("billing")
        fill(writer, 200)
        before = journal.stats()
        read_away(path, "billing", 150)
        journal.clean()
        found = journal.stats()
        assert found.segments == len(segment_files(path)) < before.segments
        assert found.size_bytes == journal.size_bytes < before.size_bytes
        assert found.records == len(journal) < before.records


def test_open_bytes_are_those_of_records_only_in_the_buffer(path):
    with jlog.Writer(path) as writer:
        assert stats(path).open_bytes == 0
        fill(writer, 10)
        assert stats(path).open_bytes == 10 * (100 + 8)
        writer.flush()
        assert stats(path).open_bytes == 0


def test_the_durable_end_moves_with_a_sync(path):
    with jlog.Writer(path) as writer:
        fill(writer, 10)
        assert stats(path).durable_end == 0
        writer.sync()
        fill(writer, 5)
        found = stats(path)
        assert (found.durable_end, found.next_sequence) == (10, 15)


def test_gaps_are_not_records_and_no_lag(path, spawn, tmp_path):
    child = spawn()
    child.call("open_writer", "w", str(path), SMALL)
    child.call("append", "w", 20, 100)
    child.call("flush", "w")
    jlog.Journal(path).add_subscriber("billing", start=5)
    child.kill()
    after = copy(path, tmp_path / "after")
    another_boot(after)
    with jlog.Writer(after) as writer:
        writer.append(b"after the gap")
        found = stats(after)
        assert found.next_sequence > 1 << 20
        assert found.records == 21
        assert found.subscribers["billing"].lag == 16


# --- Who writes --------------------------------------------------------------------------------------------------


def test_writers_are_processes_that_live(path, spawn):
    children = [spawn() for _ in range(3)]
    with jlog.Writer(path), jlog.Writer(path):
        assert stats(path).writers == 1
        for child in children:
            child.call("open_writer", "w", str(path), {})
        assert stats(path).writers == 4
        children[0].kill()
        assert stats(path).writers == 3
        children[1].call("close", "w")
        assert stats(path).writers == 2
        children[2].kill()
    assert stats(path).writers == 0


def test_readers_are_not_writers(path):
    jlog.Journal.create(path)
    with jlog.Reader(path), jlog.Reader(path, "billing"):
        assert stats(path).writers == 0


@pytest.mark.usefixtures("failpoints")
def test_stats_do_not_wait_for_a_writer_stopped_in_an_append(path, spawn):
    child = spawn()
    child.call("open_writer", "w", str(path), {})
    child.call("append", "w", 3)
    child.call("arm", "append.encoded=stop@0")
    child.start("append", "w")
    child.is_stopped()
    assert (stats(path).next_sequence, stats(path).writers) == (3, 1)
    child.continues()
    child.result()
    assert stats(path).next_sequence == 4


def test_it_needs_no_right_to_write(writer, path):
    fill(writer, 100)
    jlog.Journal(path).add_subscriber("billing", start=7)
    code = f"""
        found = jlog.Journal({str(path)!r}).stats()
        assert (found.records, found.writers, found.rolls) == (100, 1, {stats(path).rolls})
        assert found.subscribers["billing"].lag == 93
        assert not found.subscribers["billing"].busy
    """
    run_python(code, within=mounted_by(read_only(path)))


# --- Subscribers -------------------------------------------------------------------------------------------------


def test_each_subscriber_has_its_own_lag_and_busy_flag(writer, path):
    fill(writer, 10)
    journal = jlog.Journal(path)
    journal.add_subscriber("idle", start=2)
    with jlog.Reader(path, "busy") as reader:
        list(reader.values())
        reader.commit()
        fill(writer, 3)
        found = journal.stats().subscribers
        assert {name: (at.sequence, at.lag, at.busy) for name, at in found.items()} == {
            "busy": (10, 3, True),
            "idle": (2, 11, False),
        }


def test_held_bytes_are_sealed_segments_not_passed_yet(path):
    """The subscriber that has not passed them holds them."""
    with jlog.Writer(path, retention=jlog.Retention(delete_read=False), **SMALL) as writer:
        journal = jlog.Journal(path)
        journal.add_subscriber("billing")
        fill(writer, 200)
        segments = journal.segments()
        assert len(segments) > 3
        for passed, segment in enumerate(segments):
            journal.set_subscriber("billing", segment.first_sequence)
            held = sum(segment.size_bytes for segment in segments[passed:-1])
            assert journal.stats().subscribers["billing"].held_bytes == held
        journal.set_subscriber("billing", segments[1].first_sequence - 1)
        held = sum(segment.size_bytes for segment in segments[:-1])
        assert journal.stats().subscribers["billing"].held_bytes == held


def test_the_oldest_unread_record_has_the_age_of_its_timestamp(writer, path):
    now_us = time.time_ns() // 1000
    for hours in (5, 3, 1):
        writer.append(b"x", timestamp_us=now_us - hours * AN_HOUR_US)
    journal = jlog.Journal(path)
    journal.add_subscriber("billing")
    for read, hours in ((1, 5), (1, 3), (1, 1)):
        age = journal.stats().subscribers["billing"].oldest_unread_seconds
        assert hours * 3600 <= age < hours * 3600 + 1800
        read_away(path, "billing", read)
    assert journal.stats().subscribers["billing"].oldest_unread_seconds is None


def test_a_record_of_the_future_has_no_negative_age(writer, path):
    writer.append(b"x", timestamp_us=time.time_ns() // 1000 + AN_HOUR_US)
    jlog.Journal(path).add_subscriber("billing")
    assert stats(path).subscribers["billing"].oldest_unread_seconds == 0


def test_a_dead_subscriber_lags_and_has_not_moved_for_a_day(writer, path):
    """It is not busy either."""
    fill(writer, 10)
    jlog.Journal(path).add_subscriber("billing")
    found = stats(path).subscribers["billing"]
    assert not found.dead
    gone = replace(found, idle_seconds=DEAD_AFTER.total_seconds())
    assert gone.dead
    assert not replace(gone, busy=True).dead
    assert not replace(gone, lag=0).dead


def test_idle_time_begins_anew_with_each_commit(writer, path):
    fill(writer, 10)
    journal = jlog.Journal(path)
    journal.add_subscriber("billing")
    with jlog.Reader(path, "billing") as reader:
        before = time.time()
        reader.commit()
        assert journal.stats().subscribers["billing"].idle_seconds <= time.time() - before


@pytest.mark.damage
def test_an_unreadable_position_is_damaged_and_holds_everything(writer, path):
    fill(writer, 200)
    journal = jlog.Journal(path)
    journal.add_subscriber("billing", start=150)
    journal.add_subscriber("shipping", start=150)
    zero(path / "subscribers" / "billing")
    found = journal.stats().subscribers
    assert (found["billing"].damaged, found["billing"].lag) == (True, 200)
    assert found["billing"].held_bytes > found["shipping"].held_bytes > 0
    assert (found["shipping"].damaged, found["shipping"].lag) == (False, 50)


@pytest.mark.damage
def test_an_unreadable_record_has_no_age(writer, path):
    """The other figures are there."""
    fill(writer, 200)
    journal = jlog.Journal(path)
    journal.add_subscriber("billing")
    flip(segment_files(path)[0], 1000, 3)
    found = journal.stats()
    assert found.subscribers["billing"].oldest_unread_seconds is None
    assert (found.records, found.subscribers["billing"].lag) == (200, 200)


# --- Looking again and again -------------------------------------------------------------------------------------


def system_calls() -> int:
    """The number of bytes that this process has read so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["syscr"])


def test_a_second_look_reads_as_much_of_many_segments_as_of_few(tmp_path):
    costs = []
    for records in (100, 5000):
        path = tmp_path / str(records)
        with jlog.Writer(path, **SMALL) as writer:
            fill(writer, records)
            journal = jlog.Journal(path)
            journal.add_subscriber("billing", start=50)
            journal.stats()
            before = system_calls()
            journal.stats()
            costs.append(system_calls() - before)
    assert stats(path).segments > 100
    assert costs[0] == costs[1]


def test_figures_kept_from_a_look_follow_rolls_and_cleaning(path):
    with jlog.Writer(path, **SMALL) as writer:
        watched = jlog.Journal(path)
        watched.add_subscriber("billing")
        for turn in range(30):
            fill(writer, 17)
            if turn % 3 == 2:
                read_away(path, "billing", 40)
            anew = jlog.Journal(path)
            found = watched.stats()
            assert (found.segments, found.size_bytes) == (len(anew.segments()), anew.size_bytes)
            assert (found.records, found.first_sequence) == (len(anew), anew.first_sequence)
            at, seen = anew.subscribers()["billing"], found.subscribers["billing"]
            assert (seen.sequence, seen.lag) == (at.sequence, at.lag)
            assert seen.held_bytes == sum(
                segment.size_bytes for segment in anew.segments() if segment.sealed and segment.end_sequence > at.sequence
            )


def test_a_journal_made_anew_at_the_same_path_is_looked_at_anew(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 200)
    watched = jlog.Journal(path)
    assert watched.stats().records == 200
    jlog.Journal.delete(path)
    with pytest.raises(jlog.JournalNotFound):
        watched.stats()
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 3)
        assert (watched.stats().records, watched.stats().segments) == (3, 1)


def test_a_repair_by_another_program_is_seen(path):
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 1000)
    watched = jlog.Journal(path)
    before = watched.stats().segments
    segment = watched.segments()[1]
    flip(Path(segment.path), segment.size_bytes // 2)
    jlog.Journal(path).repair()
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 1000)
        found, anew = watched.stats(), stats(path)
        assert (found.segments, found.size_bytes, found.records) == (anew.segments, anew.size_bytes, anew.records)
    assert found.segments > before
