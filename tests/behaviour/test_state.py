"""State: small named values, stored atomically with records and never lost to cleaning."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import jlog
import oracle
from behaviour.journals import fill, read_away, values
from behaviour.test_extend import each_writer  # noqa: F401

LIMIT = 64 << 10


def state(path):
    return jlog.Journal(path).state()


def test_a_new_journal_has_none(writer, path):
    assert state(path) == {}


def test_it_is_set_changed_and_deleted_with_records(writer, path):
    writer.extend([b"a"], state={b"source": b"1", b"other": b"x"})
    assert state(path) == {b"source": b"1", b"other": b"x"}
    writer.extend([b"b"], state={b"source": b"2"})
    assert state(path) == {b"source": b"2", b"other": b"x"}
    writer.extend([b"c"], state={b"other": None, b"new": b""})
    assert state(path) == {b"source": b"2", b"new": b""}
    assert values(path) == [b"a", b"b", b"c"]


def test_it_is_set_without_records_and_takes_no_sequence(writer, path):
    writer.append(b"a")
    assert writer.extend([], state={b"k": b"v"}) == 1
    assert writer.extend([b"b"]) == 1
    assert state(path) == {b"k": b"v"}
    assert values(path) == [b"a", b"b"]
    assert len(jlog.Journal(path)) == 2


def test_readers_never_see_it(writer, path):
    for number in range(50):
        writer.extend([b"%d" % number], state={b"k%d" % (number % 7): b"v" * 50})
    with jlog.Reader(path) as reader:
        assert [record.sequence for record in reader] == list(range(50))
        reader.seek(25)
        assert reader.read(3).values() == [b"25", b"26", b"27"]
        assert [record.value for record in reader.read_backward(4)] == [b"27", b"26", b"25", b"24"]


def test_deleting_a_key_that_is_not_there_does_nothing(writer, path):
    writer.extend([b"a"], state={b"missing": None})
    assert state(path) == {}


def test_it_survives_close_and_reopening(writer, path):
    writer.extend([b"a"], state={b"k": b"v", b"": b"empty key"})
    writer.close()
    assert state(path) == {b"k": b"v", b"": b"empty key"}
    with jlog.Writer(path) as again:
        again.extend([b"b"], state={b"k": b"w"})
    assert state(path) == {b"k": b"w", b"": b"empty key"}


def test_state_survives_the_removal_of_the_segments_it_was_in(writer, path):
    jlog.Journal(path).add_subscriber("billing")
    writer.extend([b"a"], state={b"k": b"v"})
    fill(writer, 200)
    read_away(path, "billing")
    assert jlog.Journal(path).first_sequence > 100
    assert state(path) == {b"k": b"v"}
    writer.extend([], state={b"k": None})
    writer.roll()
    assert state(path) == {}


def test_a_roll_keeps_what_came_just_before_it(writer, path):
    fill(writer, 3)
    for number in range(20):
        writer.extend([], state={b"n": b"%d" % number})
        writer.append(b"x" * 3000)
        assert state(path) == {b"n": b"%d" % number}
        writer.roll()
        assert state(path) == {b"n": b"%d" % number}


def test_64_kib_with_the_keys_may_live_and_not_a_byte_more(writer, path):
    writer.extend([b"a"], state={b"key": b"x" * (LIMIT - 3)})
    assert len(state(path)[b"key"]) == LIMIT - 3
    before = state(path)
    for more in ({b"k": b""}, {b"key": b"x" * (LIMIT - 2)}, {b"other": b"x"}):
        with pytest.raises(jlog.RecordTooLarge, match="65536"):
            writer.extend([b"refused"], state=more)
    assert (state(path), values(path)) == (before, [b"a"])
    writer.extend([b"b"], state={b"key": None, b"yek": b"y" * (LIMIT - 3)})
    assert state(path) == {b"yek": b"y" * (LIMIT - 3)}


def test_the_limit_counts_what_lives_and_not_what_was_written(writer, path):
    for number in range(20):
        writer.extend([], state={b"k": bytes([number]) * 60_000})
    assert state(path) == {b"k": bytes([19]) * 60_000}


def test_state_of_one_writer_counts_for_another(writer, path):
    with jlog.Writer(path) as other:
        writer.extend([], state={b"a": b"x" * 40_000})
        with pytest.raises(jlog.RecordTooLarge):
            other.extend([], state={b"b": b"x" * 40_000})
        other.extend([], state={b"a": None, b"b": b"x" * 40_000})
    assert list(state(path)) == [b"b"]


def test_a_refused_value_leaves_the_state_as_it_was(writer, path):
    writer.extend([], state={b"k": b"v"})
    with pytest.raises(TypeError):
        writer.extend(["text"], state={b"k": b"w"})
    with pytest.raises(TypeError):
        writer.extend([b"a"], state={b"k": b"w", "text": b"x"})
    assert (state(path), values(path)) == ({b"k": b"v"}, [])


def test_threads_that_roll_keep_state_stored_by_others_meanwhile(path):
    until = time.monotonic() + 2

    def store(number):
        stored = 0
        while time.monotonic() < until:
            writer.extend([b"x" * 200], state={b"%d" % number: b"%d" % stored})
            stored += 1

    def roll(_number):
        while time.monotonic() < until:
            writer.append(b"y" * 3000)

    with jlog.Writer(path, segment_bytes=16 << 10, precommit=4096) as writer, ThreadPoolExecutor() as threads:
        for done in [threads.submit(task, number) for number in range(2) for task in (store, roll)]:
            done.result()
    oracle.check_journal(path)
