"""Records changed on their way, between any two of journal and topic, and each of them once."""

from __future__ import annotations

import random
import sys

import pytest

import exhaustive
import jlog
from jlog.flow.records import load
from jlog.kafka import BrokerError, RecordRefused, list_topics
from jlog.transform import transforming
from jlog.urls import create_journal, open_reader, open_writer
from kafka.processes import HUNG_SECONDS, Process, discard
from kafka.witness import numbered
from patience import wait_until


class Ends:
    """A source and a sink of the kinds asked for."""

    def __init__(self, request, tmp_path, kinds):
        witness = request.getfixturevalue("witness") if "kafka" in kinds else None
        topic = request.getfixturevalue("topic") if "kafka" in kinds else ""
        self.source, self.sink = (
            witness.url(f"{topic}.{name}") if kind == "kafka" else str(tmp_path / name)
            for kind, name in zip(kinds, ("source", "sink"), strict=True)
        )
        create_journal(self.source)

    def fill(self, values):
        with open_writer(self.source) as writer:
            writer.extend(values)

    def result(self):
        with open_reader(self.sink) as reader:
            return list(reader.values())


PAIRS = [("file", "file"), ("file", "kafka"), ("kafka", "file"), ("kafka", "kafka")]


@pytest.fixture(params=PAIRS, ids=[" to ".join(pair) for pair in PAIRS])
def ends(request, tmp_path):
    return Ends(request, tmp_path, request.param)


def change(record):
    number = int(record.value)
    if number % 3 == 0:
        return None
    if number % 3 == 1:
        return b"%d changed" % number
    return [record, jlog.NewRecord.like(record, value=b"%d again" % number, key=b"k")]


def changed(first, count):
    found = []
    for number in range(first, first + count):
        found += {0: [], 1: [b"%d changed" % number], 2: [b"%d" % number, b"%d again" % number]}[number % 3]
    return found


def test_each_record_becomes_none_one_or_several(ends):
    ends.fill(numbered(1000))
    assert jlog.transform(ends.source, ends.sink, change).records == 1000
    assert ends.result() == changed(0, 1000)


def test_a_codec_decodes_for_the_function_and_encodes_what_it_returns(ends):
    ends.fill([b'{"n": 1}', b"not JSON", b'{"n": 3}'])
    codec = jlog.typed.json(dict)
    jlog.transform(ends.source, ends.sink, lambda record: {"n": record.decoded["n"] + 1}, codec=codec, refused="skip")
    assert ends.result() == [b'{"n":2}', b'{"n":4}']


def test_the_next_time_it_goes_on_where_it_was(ends):
    ends.fill(numbered(100))
    jlog.transform(ends.source, ends.sink, change)
    assert jlog.transform(ends.source, ends.sink, change).records == 0
    ends.fill(numbered(100, 100))
    assert jlog.transform(ends.source, ends.sink, change).records == 100
    assert ends.result() == changed(0, 200)


def test_the_identity_keeps_every_part_of_a_record(ends):
    with open_writer(ends.source) as writer:
        writer.append(b"v", key=b"k", headers=[("h", b"1"), ("n", None)])
    jlog.transform(ends.source, ends.sink, lambda record: record)
    with open_reader(ends.source) as reader:
        (before,) = reader
    with open_reader(ends.sink) as reader:
        (after,) = reader
    for name in ("value", "key"):
        assert getattr(after, name) == getattr(before, name)
    assert list(after.headers) == list(before.headers) == [("h", b"1"), ("n", None)]
    assert after.timestamp_us // 1000 == before.timestamp_us // 1000


def test_a_function_that_raises_stops_it_there_or_is_passed_over(ends):
    ends.fill([b"1", b"x", b"2"])

    def double(record):
        return b"%d" % (2 * int(record.value))

    with pytest.raises(RecordRefused, match="ValueError"):
        jlog.transform(ends.source, ends.sink, double)
    assert ends.result() == [b"2"]
    stats = jlog.transform(ends.source, ends.sink, double, refused="skip")
    assert (stats.records, stats.refused) == (2, 1)
    assert ends.result() == [b"2", b"4"]


def test_only_the_refused_record_is_left_out(ends):
    """Records that come meanwhile are transformed."""
    ends.fill([b"x"])
    flow = transforming(ends.source, ends.sink, lambda record: b"%d" % int(record.value), refused="skip")
    try:
        while not flow.stats.refused:
            flow.step(timeout=5)
        ends.fill([b"1", b"2"])
        while flow.stats.records < 3:
            flow.step(timeout=5)
    finally:
        flow.close()
    assert (flow.stats.refused, ends.result()) == (1, [b"1", b"2"])


def test_only_the_refused_record_of_any_partition_is_left_out(witness, topic, tmp_path):
    witness.make(topic, partitions=4)
    for partition in range(4):
        values = [b"x" if number % 5 == partition else b"%d" % number for number in range(20)]
        witness.produce(topic, values, partition=partition)
    sink = tmp_path / "sink"
    stats = jlog.transform(witness.url(topic), sink, lambda record: b"%d" % int(record.value), refused="skip")
    assert (stats.records, stats.refused) == (80, 16)
    with jlog.Reader(sink) as reader:
        assert len(list(reader)) == 64


def step_for_ever(flow):
    while True:
        flow.step(timeout=5)


def test_after_a_refusal_the_next_step_takes_the_record_again(ends):
    ends.fill([b"x", b"1"])
    flow = transforming(ends.source, ends.sink, lambda record: b"%d" % int(record.value))
    try:
        for _ in range(2):
            with pytest.raises(RecordRefused, match="ValueError") as refused:
                step_for_ever(flow)
            assert refused.value.sequence == 0
    finally:
        flow.close()
    assert flow.stats.records == 0


def test_a_reader_that_skips_records_is_told_which(tmp_path):
    with jlog.Writer(tmp_path / "source") as writer:
        writer.append(b"x")
    said = []
    jlog.transform(tmp_path / "source", tmp_path / "sink", lambda _: 1, refused="skip", on_event=said.append)
    assert f"{tmp_path}/source: record 0 is refused: a transform must return a record, bytes" in said[0]


def test_a_trial_tells_what_would_be_made_and_writes_nothing(ends):
    ends.fill([*numbered(30), b"x"])

    def tried():
        flow = transforming(ends.source, ends.sink, change, until_end=True, refused="skip", trial=True)
        stats = flow.run()
        return stats.records, flow.sink.made, stats.refused

    assert tried() == tried() == (31, 30, 1)
    with pytest.raises(jlog.JournalNotFound):
        open_reader(ends.sink)
    if not ends.source.startswith("kafka:"):
        assert jlog.Journal(ends.source).subscribers() == {}
    jlog.transform(ends.source, ends.sink, change, refused="skip")
    ends.fill([b"2"])
    assert tried() == (1, 2, 0)
    assert ends.result() == changed(0, 30)


def test_a_trial_tells_what_the_topic_would_not_have(witness, topic, tmp_path):
    sink = witness.make(topic, max_message_bytes=10_000)
    with jlog.Writer(tmp_path / "source") as writer:
        writer.extend([b"1", b"20000"])
    said = []
    flow = transforming(
        tmp_path / "source",
        sink,
        lambda record: bytes(int(record.value)),
        until_end=True,
        refused="skip",
        trial=True,
        on_event=said.append,
    )
    assert (flow.run().refused, flow.sink.made) == (1, 1)
    assert "record 1 is refused: 20000 bytes" in said[0]


def test_no_journal_is_made_for_a_topic_that_cannot_be_read(tmp_path):
    with pytest.raises(BrokerError, match="no broker answers"):
        jlog.transform("kafka://127.0.0.1:1/topic", tmp_path / "sink", lambda record: record)
    assert not (tmp_path / "sink").exists()


@pytest.mark.parametrize("text", ["def same(record:", "raise OSError('not today')", "same = 1"])
def test_a_function_that_cannot_be_loaded_says_why(tmp_path, monkeypatch, text):
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "broken", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"'broken:same' (cannot be loaded: \w+Error: |is not a function)"):
        load("broken:same")


def test_a_sink_that_is_the_source_too_is_refused(tmp_path):
    jlog.Journal.create(tmp_path / "journal")
    for source, sink in (
        (tmp_path / "journal", f"file:{tmp_path}/./journal"),
        ("kafka://localhost/a.*,b", "kafka://localhost:9092/a.b"),
    ):
        with pytest.raises(ValueError, match="is the source too"):
            transforming(source, sink, lambda record: record)


def test_a_sink_is_the_same_whichever_way_its_path_is_written(tmp_path, monkeypatch):
    jlog.Journal.create(tmp_path / "source")
    monkeypatch.chdir(tmp_path)
    for sink in ("sink", tmp_path / "sink", f"file:{tmp_path}/sink"):
        jlog.transform("source", sink, lambda record: record)
    assert len(jlog.Journal(tmp_path / "source").subscribers()) == 1


@pytest.mark.parametrize("made", ["text", 1, [b"a", "b"], jlog.NewRecord("text"), jlog.NewRecord(b"", key=1)])
def test_a_result_that_is_not_a_record_is_refused(tmp_path, made):
    with jlog.Writer(tmp_path / "source") as writer:
        writer.append(b"x")
    with pytest.raises(
        RecordRefused, match=r"record 0 is refused: (a transform must return|a record's (value|key) must be bytes)"
    ):
        jlog.transform(tmp_path / "source", tmp_path / "sink", lambda _: made)


def no_broker(*_):
    list_topics("kafka://127.0.0.1:1")


def test_an_error_of_a_broker_that_the_function_raises_is_its_own(tmp_path):
    with jlog.Writer(tmp_path / "in") as writer:
        writer.extend(numbered(3))
    with pytest.raises(RecordRefused, match="the transform raised"):
        jlog.transform(tmp_path / "in", tmp_path / "out", no_broker)


def test_an_error_of_a_broker_that_on_commit_raises_ends_it(tmp_path):
    with jlog.Writer(tmp_path / "in") as writer:
        writer.extend(numbered(3))
    with pytest.raises(BrokerError, match="no broker answers"):
        jlog.transform(tmp_path / "in", tmp_path / "out", lambda record: record, on_commit=no_broker)
    assert len(jlog.Journal(tmp_path / "out")) == 3


def test_a_step_at_a_time(ends):
    ends.fill(numbered(3))
    flow = transforming(ends.source, ends.sink, change)
    try:
        while flow.stats.records < 3:
            flow.step(timeout=5)
        ends.fill(numbered(3, 3))
        while flow.stats.records < 6:
            flow.step(timeout=5)
    finally:
        flow.close()
    assert ends.result() == changed(0, 6)


@pytest.mark.timeout(300)
def test_killed_at_random_it_has_changed_each_record_once(ends, tmp_path):
    (tmp_path / "changes.py").write_text("def same(record):\n    return record\n")
    ends.fill(numbered(20_000))
    chance = random.Random(2)
    arguments = (ends.source, ends.sink, "--transform", "changes:same")
    killed = []
    try:
        for _ in range(exhaustive.count(2, 6)):
            killed.append(Process(*arguments, "--rate", 4_000, command="transform", cwd=tmp_path))
            killed[-1].runs_for(chance.uniform(0.8, 2))
            killed[-1].kill()
        last = Process(*arguments, "--until-end", command="transform", cwd=tmp_path)
        killed.append(last)
        assert last.wait() == (0, "")
    finally:
        discard(killed)
    assert ends.result() == numbered(20_000)


def test_several_topics_become_one_journal(witness, topic, tmp_path):
    for name in "ab":
        witness.make(f"{topic}.{name}")
        witness.produce(f"{topic}.{name}", [f"{name}{n}".encode() for n in range(100)])
    jlog.transform(witness.url(f"{topic}.*"), tmp_path / "sink", lambda record: record.value.upper())
    with jlog.Reader(tmp_path / "sink") as reader:
        assert sorted(reader.values()) == sorted(f"{name}{n}".encode() for name in "AB" for n in range(100))


def test_a_follower_ends_on_sigterm(ends, tmp_path):
    (tmp_path / "changes.py").write_text("def same(record):\n    return record\n")
    ends.fill(numbered(10))
    following = Process(ends.source, ends.sink, "--transform", "changes:same", command="transform", cwd=tmp_path)
    try:
        wait_until(lambda: has(ends, 10), HUNG_SECONDS)
        assert following.end() == (0, "")
    finally:
        discard([following])


def has(ends, count):
    try:
        return len(ends.result()) == count
    except jlog.JournalError:
        return False


@pytest.mark.parametrize("refused", ["skip", "dead-letter"])
def test_records_that_the_function_refuses_abort_nothing(tmp_path, witness, topic, refused):
    """One in a hundred of them made a transform a hundred times slower."""
    with jlog.Writer(tmp_path / "source") as writer:
        writer.extend(numbered(10_000))

    def function(record):
        if int(record.value) % 100 == 7:
            raise ValueError("no")
        return record

    letters = {"dead_letter": f"{topic}.refused"} if refused == "dead-letter" else {}
    stats = jlog.transform(tmp_path / "source", witness.url(topic), function, refused=refused, **letters)
    assert (stats.aborted, stats.refused, stats.records) == (0, 100, 10_000)
    assert len(witness.values(topic)) == 9_900
    if letters:
        assert witness.values(f"{topic}.refused") == numbered(10_000)[7::100]
