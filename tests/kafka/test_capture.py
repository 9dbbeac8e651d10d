"""Topics captured into a journal, out of what a plain producer has put there."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions

import jlog
from behaviour.journals import values
from jlog.kafka import Capture, Lag, Mirror, TopicChanged, status, verify
from jlog.kafka.client import lag as kafka_lag
from kafka.secured import MOSTLY_PLAIN, PLAIN_AND_SECURED
from kafka.witness import fields_of_journal, numbered
from patience import HUNG_SECONDS, wait_until


def capture(url, journal, **options):
    """To the end; returns what it did."""
    return Capture(url, journal, until_end=True, **options).run()


@PLAIN_AND_SECURED
def test_a_message_becomes_a_record_with_all_that_it_has(witness, topic, url, journal):
    witness.make(topic, retention_ms=-1)
    full = {"value": b"v", "key": b"k", "headers": [("h", b"1"), ("h", None)], "timestamp": 1_700_000_000_123}
    witness.produce(topic, [full, {"value": None, "key": b"tombstone"}, {"value": b""}])
    stats = capture(url, journal)
    assert fields_of_journal(journal) == witness.fields(topic)
    assert (stats.records, stats.bytes) == (3, 1)


def test_headers_say_where_in_kafka_a_record_was(witness, topic, url, journal):
    witness.make(topic, partitions=2)
    witness.produce(topic, [{"value": b"a", "headers": [("mine", b"1")]}], partition=1)
    witness.produce(topic, [b"b", b"c"], partition=0)
    capture(url, journal)
    with jlog.Reader(journal) as reader:
        found = {record.value: record.headers for record in reader}
    assert found == {
        b"a": [("mine", b"1"), ("jlog.kafka.partition", b"1"), ("jlog.kafka.offset", b"0")],
        b"b": [("jlog.kafka.partition", b"0"), ("jlog.kafka.offset", b"0")],
        b"c": [("jlog.kafka.partition", b"0"), ("jlog.kafka.offset", b"1")],
    }


def test_headers_of_ours_that_a_message_brings_do_not_count(witness, topic, url, journal):
    """Such a message was dumped from a journal that had been captured elsewhere, for example."""
    witness.make(topic)
    brought = [("jlog.kafka.partition", b"7"), ("jlog.kafka.offset", b"1000"), ("mine", b"1")]
    witness.produce(topic, [{"value": b"%d" % number, "headers": brought} for number in range(3)])
    capture(url, journal)
    with jlog.Reader(journal) as reader:
        assert [dict(record.headers)["jlog.kafka.offset"] for record in reader] == [b"0", b"1", b"2"]
    found = verify(journal, url)
    assert (found.ok, found.compared) == (True, 3)


@MOSTLY_PLAIN
def test_the_second_time_it_goes_on_where_it_was(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, numbered(1000))
    assert capture(url, journal).records == 1000
    assert capture(url, journal).records == 0
    witness.produce(topic, numbered(500, 1000))
    assert capture(url, journal).records == 500
    assert values(journal) == numbered(1500)


@MOSTLY_PLAIN
def test_only_what_was_committed_is_captured(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, numbered(100), transactions=7)
    witness.produce_and_abort(topic, [b"aborted"] * 50)
    witness.produce(topic, numbered(100, 100), transactions=11)
    capture(url, journal)
    assert values(journal) == numbered(200)
    assert verify(journal, url).compared == 200
    assert status(journal, url).lag.records == 0


def test_a_lag_is_reported_though_its_age_is_not_known_in_time(witness, topic, url, journal, monkeypatch):
    witness.make(topic)
    witness.produce(topic, [b"a"])
    capture(url, journal)
    witness.produce(topic, [b"b", b"c"])
    monkeypatch.setattr(kafka_lag, "SAMPLE_SECONDS", 0.0)
    assert status(journal, url).lag == Lag(2)


@MOSTLY_PLAIN
def test_every_partition_is_captured_in_its_order(witness, topic, url, journal):
    witness.make(topic, partitions=5)
    for partition in range(5):
        witness.produce(topic, numbered(300, partition * 300), partition=partition)
    capture(url, journal)
    found = [int(value) for value in values(journal)]
    for partition in range(5):
        assert [n for n in found if n // 300 == partition] == list(range(partition * 300, partition * 300 + 300))
    assert verify(journal, url).compared == 1500


def test_one_partition_can_be_captured_alone(witness, topic, url, journal):
    witness.make(topic, partitions=2)
    witness.produce(topic, [b"a"], partition=0)
    witness.produce(topic, [b"b"], partition=1)
    capture(url + "?partition=1", journal)
    assert values(journal) == [b"b"]


def test_several_topics_go_into_one_journal_with_their_names(witness, topic, url, journal):
    for name in ("a", "b"):
        witness.make(f"{topic}.{name}")
        witness.produce(f"{topic}.{name}", [f"{name}{number}".encode() for number in range(100)])
    capture(f"{url}.a,{topic}.b", journal)
    with jlog.Reader(journal) as reader:
        found = [(dict(record.headers)["jlog.kafka.topic"].decode(), record.value) for record in reader]
    for name in ("a", "b"):
        expected = [f"{name}{number}".encode() for number in range(100)]
        assert [value for topic_of, value in found if topic_of == f"{topic}.{name}"] == expected
        assert verify(journal, f"{url}.{name}").compared == 100


def test_a_pattern_names_topics_and_never_jlogs_own(witness, topic, url, journal, tmp_path):
    for name in ("a", "b"):
        witness.make(f"{topic}.{name}")
        witness.produce(f"{topic}.{name}", [name.encode()])
    with jlog.Writer(tmp_path / "source") as writer:
        writer.append(b"c")
    Mirror(tmp_path / "source", f"{url}.c", until_end=True).run()
    capture(f"{url}.*", journal)
    assert sorted(values(journal)) == [b"a", b"b", b"c"]
    with pytest.raises(jlog.JournalNotFound, match=r"no topic of .* matches"):
        capture(f"{url}.nothing*", tmp_path / "other")


def test_later_partitions_are_captured_from_their_beginning(witness, topic, url, journal):
    from confluent_kafka.admin import NewPartitions

    witness.make(topic)
    witness.produce(topic, [b"a"])
    capture(url, journal, start="end")
    witness.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    wait_until(lambda: witness.partitions(topic) == 2)
    witness.produce(topic, [b"b"], partition=1)
    capture(url, journal, start="end")
    assert values(journal) == [b"b"]


@PLAIN_AND_SECURED
def test_a_journal_goes_to_kafka_and_back_the_same(tmp_path, witness, topic, url, journal):
    records = 5000
    with jlog.Writer(tmp_path / "source") as writer:
        writer.extend(
            [None if n % 9 == 0 else b"%d" % n for n in range(records)],
            keys=[None if n % 5 == 0 else b"k%d" % (n % 7) for n in range(records)],
            headers=[[("n", b"%d" % n), ("none", None)] if n % 3 == 0 else None for n in range(records)],
        )
    Mirror(tmp_path / "source", url, until_end=True).run()
    capture(url, journal)
    assert fields_of_journal(journal) == fields_of_journal(tmp_path / "source")
    Mirror(journal, f"{url}.again", until_end=True).run()
    assert witness.fields(f"{topic}.again") == witness.fields(topic)


@MOSTLY_PLAIN
def test_a_follower_captures_what_comes_and_ends_when_told(witness, topic, url, journal):
    witness.make(topic)
    following = Capture(url, journal)
    thread = threading.Thread(target=following.run)
    thread.start()
    try:
        witness.produce(topic, [b"0"])
        wait_until(lambda: following.stats.records == 1)
        witness.produce(topic, [b"1"])
        wait_until(lambda: following.stats.records == 2)
        assert values(journal) == [b"0", b"1"]
    finally:
        following.stop()
        thread.join()


def test_a_new_capture_begins_where_it_is_told(witness, topic, url, tmp_path):
    from datetime import datetime, timezone

    witness.make(topic, retention_ms=-1)
    witness.produce(topic, [{"value": b"%d" % n, "timestamp": 1_700_000_000_000 + n} for n in range(10)])
    capture(url, tmp_path / "end", start="end")
    capture(url, tmp_path / "offset", start=7)
    at = datetime.fromtimestamp(1_700_000_000.008, timezone.utc)
    capture(url, tmp_path / "time", start=at)
    assert [values(tmp_path / name) for name in ("end", "offset", "time")] == [
        [],
        [b"7", b"8", b"9"],
        [b"8", b"9"],
    ]
    assert verify(tmp_path / "time", url).compared == 2


def test_others_may_write_to_the_journal_but_no_second_capture(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, [b"theirs"])
    running = Capture(url, journal)
    try:
        running.step(timeout=5)
        with jlog.Writer(journal) as writer:
            writer.append(b"mine")
        with pytest.raises(jlog.JournalLocked, match="another capture"):
            Capture(url, journal)
        witness.produce(topic, [b"theirs again"])
        assert running.step(timeout=5) == 1
    finally:
        running.close()
    assert values(journal) == [b"theirs", b"mine", b"theirs again"]
    assert verify(journal, url).ok


def test_a_topic_that_is_not_there_is_not_made_by_reading_it(witness, topic, url, journal):
    with pytest.raises(jlog.JournalNotFound):
        capture(url, journal)
    assert not witness.exists(topic)


def test_a_topic_that_was_made_again_stops_it(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    capture(url, journal)
    witness.delete(topic)
    witness.make(topic)
    witness.produce(topic, numbered(20, 100))
    with pytest.raises(TopicChanged, match=f"SINK {topic} begin"):
        capture(url, journal)
    assert values(journal) == numbered(10)
    Capture(url, journal).set_position("begin", topic)
    capture(url, journal)
    assert values(journal) == numbered(10) + numbered(20, 100)


@MOSTLY_PLAIN
def test_a_topic_made_again_under_a_running_capture_stops_it(witness, topic, url, journal):
    """No fetch tells it: the new topic answers, at offsets that belong to the old one."""
    witness.make(topic)
    witness.produce(topic, numbered(10))
    running = Capture(url, journal)
    try:
        assert running.step(timeout=5) == 10
        witness.delete(topic)
        witness.make(topic)
        witness.produce(topic, numbered(20, 100))
        with pytest.raises(TopicChanged):
            keep_stepping(running)
    finally:
        running.close()
    assert values(journal) == numbered(10)


def test_retention_that_overtakes_it_is_told_with_the_range(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    capture(url, journal)
    witness.produce(topic, numbered(10, 10))
    witness.remove_before(topic, 15)
    with pytest.raises(jlog.PositionLost, match="offsets 10 to 14") as caught:
        capture(url, journal)
    assert caught.value.first_sequence == 15
    events = []
    stats = capture(url, journal, skip_missing=True, on_event=events.append)
    assert stats.missing == 5
    assert "offsets 10 to 14" in events[0]
    assert values(journal) == numbered(10) + numbered(5, 15)


def test_retention_of_what_was_captured_is_not_a_loss(witness, topic, url, journal):
    """This holds also for the end of the last transaction, which comes after the last record."""
    witness.make(topic)
    for first in (0, 10, 20):
        witness.produce(topic, numbered(10, first), transactions=10)
        assert capture(url, journal).records == 10
        witness.remove_before(topic, -1)
    assert values(journal) == numbered(30)


@MOSTLY_PLAIN
def test_retention_that_overtakes_a_running_capture_is_told(witness, topic, url, journal):
    """The capture has fetched a few of many small batches when those after them are removed."""
    witness.make(topic)
    witness.produce(topic, [bytes(1000)] * 200, transactions=1)
    little = {"queued.min.messages": 1, "queued.max.messages.kbytes": 2, "fetch.message.max.bytes": 2000}
    running = Capture(url, journal, rate=10, config=little)
    try:
        captured = running.step(timeout=5)
        assert 0 < captured < 100
        witness.remove_before(topic, 300)
        with pytest.raises(jlog.PositionLost, match=r"offsets \d+ to 299 of partition 0"):
            keep_stepping(running)
    finally:
        running.close()
    assert len(values(journal)) == running.stats.records < 200


def keep_stepping(running):
    for _ in range(1000):
        running.step(timeout=1)


def test_a_function_makes_none_one_or_several_records_of_each(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, [b"drop", b"twice", b"once"])

    def change(record):
        return {b"drop": None, b"twice": [record, record], b"once": b"changed"}[record.value]

    capture(url, journal, function=change)
    assert values(journal) == [b"twice", b"twice", b"changed"]
    with pytest.raises(jlog.JournalError, match="transform"):
        verify(journal, url)


def test_the_lag_is_told_from_either_side(witness, topic, url, journal):
    witness.make(topic, retention_ms=-1)
    messages = [{"value": bytes(1000), "timestamp": 1_700_000_000_000} for _ in range(50)]
    witness.produce(topic, messages[:10])
    running = Capture(url, journal)
    try:
        running.step(timeout=5)
        assert status(journal, url).lag.records == 0
        witness.produce(topic, [dict(message) for message in messages])
        for lag in (running.lag(), status(journal, url).lag):
            assert lag.records == 50
            assert 25_000 < lag.bytes < 100_000
            assert lag.seconds > 1_000_000
    finally:
        running.close()


# --- verify ---------------------------------------------------------------------------------------------------------


def test_verify_finds_what_differs_in_any_field(witness, topic, url, journal, tmp_path):
    witness.make(topic, retention_ms=-1)
    message = {"value": b"v", "key": b"k", "headers": [("h", b"1")], "timestamp": 1_700_000_000_000}
    witness.produce(topic, [dict(message) for _ in range(5)])
    capture(url, tmp_path / "captured")
    state = jlog.Journal(tmp_path / "captured").state()
    changes = [
        {},
        {"values": b"w"},
        {"keys": b"l"},
        {"headers": [("h", b"2")]},
        {"timestamps_us": 1_700_000_000_001_000},
    ]
    with jlog.Writer(journal) as writer:
        for offset, change in enumerate(changes):
            origin = [("jlog.kafka.partition", b"0"), ("jlog.kafka.offset", b"%d" % offset)]
            record = {
                "values": b"v",
                "keys": b"k",
                "headers": [("h", b"1")],
                "timestamps_us": 1_700_000_000_000_000,
            }
            record |= change
            record["headers"] = [*record["headers"], *origin]
            values_of = record.pop("values")
            writer.extend([values_of], **{name: [value] for name, value in record.items()}, state=state)
    found = verify(journal, url)
    assert (found.ok, found.compared, found.differences) == (False, 1, 4)
    assert [example["what"] for example in found.examples] == ["value", "key", "headers", "timestamp"]


def test_verify_finds_what_is_on_one_side_only(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, numbered(3))
    capture(url, journal, start=1)
    state = {**jlog.Journal(journal).state()}
    with jlog.Writer(journal) as writer:
        origin = [("jlog.kafka.partition", b"0"), ("jlog.kafka.offset", b"99")]
        writer.extend([b"never there"], headers=[origin], state=state)
    found = verify(journal, url)
    assert [example["what"] for example in found.examples] == ["only in the journal"]
    assert found.compared == 2


def test_verify_sees_no_difference_in_removed_records(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    capture(url, journal)
    witness.remove_before(topic, 4)
    found = verify(journal, url)
    assert (found.ok, found.compared, found.gone) == (True, 6, 4)


def test_verify_of_nothing_that_was_ever_mirrored_is_an_error(witness, topic, url, journal):
    witness.make(topic)
    jlog.Journal.create(journal)
    for ask in (verify, status):
        with pytest.raises(jlog.JournalError, match="nothing was ever mirrored"):
            ask(journal, url)


@pytest.mark.parametrize("partitions", [1, 3])
def test_verify_of_a_mirror_compares_what_is_left_on_both_sides(witness, topic, url, journal, partitions):
    with jlog.Writer(journal, precommit=4 << 10, segment_bytes=4 << 10) as writer:
        writer.extend(numbered(1000))
        writer.roll()
        writer.extend(numbered(9000, 1000))
    with jlog.Reader(journal, "keeps all"):
        Mirror(journal, url, until_end=True, partitions=partitions).run()
        assert verify(journal, url).compared == 10_000
        witness.remove_before(topic, 500)
        found = verify(journal, url)
        assert (found.ok, found.compared, found.gone) == (True, 9500, 500)
    jlog.Journal(journal).remove_subscriber("keeps all")
    assert jlog.Journal(journal).first_sequence == 1000
    found = verify(journal, url)
    assert (found.ok, found.compared, found.gone) == (True, 9000, 500)


@MOSTLY_PLAIN
def test_a_group_is_told_the_offsets(witness, topic, url, journal, processes):
    """For tools that watch groups. A group that does not take them ends nothing."""
    witness.make(topic, partitions=2)
    witness.produce(topic, numbered(10))
    group = f"{topic}.group"
    running = processes("from-kafka", "--group", group, url, journal)
    wait_until(lambda: offsets_of(witness, group, topic) == {0: 10, 1: 0})
    witness.produce(topic, numbered(10, 10), partition=1)
    wait_until(lambda: offsets_of(witness, group, topic) == {0: 10, 1: 10})
    assert running.end() == (0, "")
    assert values(journal) == numbered(20)


def offsets_of(witness, group, topic):
    asked = witness.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    return {at.partition: at.offset for at in asked.result(HUNG_SECONDS).topic_partitions if at.topic == topic}
