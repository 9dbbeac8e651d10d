"""A journal mirrored to a topic, looked at by a plain consumer."""

from __future__ import annotations

import json
import threading
import time

import pytest
from confluent_kafka import Producer

import jlog
from jlog.kafka import Mirror, RecordRefused, TopicChanged, status, verify
from jlog.kafka.client import table
from jlog.kafka.client.partitioner import murmur2
from jlog.kafka.status import find_pair
from kafka.secured import MOSTLY_PLAIN, PLAIN_AND_SECURED
from kafka.witness import fields_of_journal, numbered
from patience import HUNG_SECONDS, wait_until

KEYS = [None, b"", b"a", b"key", b"another key"]


@pytest.fixture
def writer(journal):
    with jlog.Writer(journal) as writer:
        yield writer


def mirror(journal, url, **options):
    """To the end; returns what it did."""
    return Mirror(journal, url, until_end=True, **options).run()


@PLAIN_AND_SECURED
def test_a_record_becomes_a_message_with_all_that_it_has(writer, journal, url, witness, topic):
    writer.append(
        b"value",
        key=b"key",
        headers=[("h", b"1"), ("h", None), ("empty", b"")],
        timestamp_us=1_700_000_000_123_456,
    )
    writer.append(None, key=b"tombstone")
    writer.append(b"")
    writer.append(b"old", timestamp_us=-5_000)
    witness.make(topic, retention_ms=-1)
    stats = mirror(journal, url)
    assert witness.fields(topic) == fields_of_journal(journal)
    assert (stats.records, stats.bytes) == (4, len(b"value" + b"old"))


def test_a_time_too_early_for_kafka_becomes_its_first_time(writer, journal, url, witness, topic):
    writer.append(b"value", timestamp_us=999)
    witness.make(topic, retention_ms=-1)
    mirror(journal, url)
    assert [fields.milliseconds for fields in witness.fields(topic)] == [1]
    assert verify(journal, url).ok


def test_headers_that_a_capture_has_added_are_left_out(writer, journal, url, witness, topic):
    writer.append(b"value", headers=[("mine", b"1"), ("jlog.kafka.offset", b"7"), ("jlog.kafka.partition", b"0")])
    mirror(journal, url)
    assert [fields.headers for fields in witness.fields(topic)] == [(("mine", b"1"),)]


@MOSTLY_PLAIN
def test_the_second_time_it_goes_on_where_it_was(writer, journal, url, witness, topic):
    writer.extend(numbered(1000))
    assert mirror(journal, url).records == 1000
    assert mirror(journal, url).records == 0
    writer.extend(numbered(500, 1000))
    assert mirror(journal, url).records == 500
    assert witness.values(topic) == numbered(1500)


def test_a_topic_that_is_not_there_is_made_as_asked_for(writer, journal, url, witness, topic):
    writer.append(b"value")
    mirror(journal, url, partitions=3, replication_factor=1)
    assert witness.partitions(topic) == 3


def test_no_topic_is_made_when_none_may_be(writer, journal, url, witness, topic):
    writer.append(b"value")
    with pytest.raises(jlog.JournalNotFound, match="create"):
        mirror(journal, url, create=False)
    assert not witness.exists(topic)
    assert jlog.Journal(journal).subscribers() == {}, "it would hold back what nobody reads"


@MOSTLY_PLAIN
def test_a_key_goes_where_javas_producer_puts_it(writer, journal, url, witness, topic):
    """The order of a key's records stays."""
    records = 5000
    writer.extend(numbered(records), keys=[KEYS[number % len(KEYS)] for number in range(records)])
    mirror(journal, url, partitions=4)
    where = {}
    for number, messages in enumerate(witness.messages(topic)):
        for message in messages:
            where.setdefault(message.key(), set()).add(number)
        values = [int(message.value()) for message in messages if message.key() == b"key"]
        assert values == sorted(values)
    del where[None]
    assert where == {key: {(murmur2(key) & 0x7FFFFFFF) % 4} for key in KEYS if key is not None}
    assert verify(journal, url).compared == records


@pytest.mark.parametrize("partitioner", ["consistent", "consistent_random", "fnv1a", "fnv1a_random", "murmur2"])
def test_keys_go_where_another_partitioner_puts_them(writer, journal, url, partitioner):
    """The command `verify` knows of it."""
    writer.extend(numbered(1000), keys=[b"%d" % (number % 97) for number in range(1000)])
    mirror(journal, url, partitions=5, config={"partitioner": partitioner})
    found = verify(journal, url)
    assert (found.ok, found.compared) == (True, 1000)


def test_keys_that_go_anywhere_cannot_be_compared(writer, journal, url):
    writer.extend(numbered(10), keys=[b"k"] * 10)
    mirror(journal, url, partitions=2, config={"partitioner": "random"})
    with pytest.raises(jlog.JournalError, match="partitioner=random"):
        verify(journal, url)


def test_verify_knows_when_a_keys_records_changed_partition(writer, journal, url, witness, topic):
    witness.make(topic, partitions=3)
    for first, target in ((0, url), (1000, url + "?partition=2"), (2000, url)):
        writer.extend(numbered(1000, first), keys=[b"%d" % (number % 97) for number in range(1000)])
        mirror(journal, target)
    assert verify(journal, url).compared == 3000


def test_a_url_with_a_partition_sends_all_there(writer, journal, url, witness, topic):
    witness.make(topic, partitions=3)
    writer.extend(numbered(100), keys=[b"%d" % number for number in range(100)])
    mirror(journal, url + "?partition=2")
    assert [len(messages) for messages in witness.messages(topic)] == [0, 0, 100]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("record", [b"k", None]),
        ("none", [None, None]),
        ("header:user", [None, b"u"]),
        (lambda record: record.value, [b"a", b"b"]),
    ],
    ids=["record", "none", "header", "function"],
)
def test_the_key_is_what_was_chosen(writer, journal, url, witness, topic, key, expected):
    writer.append(b"a", key=b"k")
    writer.append(b"b", headers=[("user", b"u")])
    mirror(journal, url, key=key)
    assert [fields.key for fields in witness.fields(topic)] == expected


@MOSTLY_PLAIN
def test_a_follower_mirrors_what_is_appended_and_ends_when_told(writer, journal, url, witness, topic):
    following = Mirror(journal, url)
    thread = threading.Thread(target=following.run)
    thread.start()
    try:
        writer.append(b"0")
        wait_until(lambda: following.stats.records == 1)
        writer.append(b"1")
        wait_until(lambda: following.stats.records == 2)
        assert following.stats.transactions == 2
    finally:
        following.stop()
        thread.join()
    assert witness.values(topic) == [b"0", b"1"]


@MOSTLY_PLAIN
def test_one_step_is_one_transaction(writer, journal, url, witness, topic):
    stepping = Mirror(journal, url)
    try:
        assert stepping.step() == 0
        writer.extend(numbered(10))
        assert stepping.step() == 10
        assert witness.values(topic) == numbered(10)
        assert stepping.step() == 0
    finally:
        stepping.close()


def test_the_subscriber_follows_the_mirrors_commits(writer, journal, url, topic):
    writer.extend(numbered(10))
    stepping = Mirror(journal, url)
    try:
        assert jlog.Journal(journal).subscribers()[f"kafka:{topic}"].sequence == 0
        stepping.step()
        assert jlog.Journal(journal).subscribers()[f"kafka:{topic}"].sequence == 10
    finally:
        stepping.close()


def test_records_are_durable_before_the_mirror_commits_them(writer, journal, url):
    """A mirror that died between its two commits goes on at the topic's, which no power loss takes from the journal."""
    writer.extend(numbered(100))
    with jlog.Reader(journal, durable_only=True) as durable:
        assert list(durable) == []
        mirror(journal, url)
        assert len(list(durable)) == 100


def test_without_a_subscriber_only_what_is_synced_is_mirrored(writer, journal, url, witness, topic):
    writer.extend(numbered(100))
    writer.sync()
    writer.extend(numbered(100, 100))
    assert mirror(journal, url, subscriber=None).records == 100
    assert jlog.Journal(journal).subscribers() == {}
    writer.sync()
    assert mirror(journal, url, subscriber=None).records == 100
    assert witness.values(topic) == numbered(200)


def test_the_position_in_the_topic_decides(writer, journal, url, witness, topic):
    """The subscriber's position does not count."""
    writer.extend(numbered(100))
    with jlog.Reader(journal, "holds everything"):
        mirror(journal, url)
    jlog.Journal(journal).set_subscriber(f"kafka:{topic}", "begin")
    assert mirror(journal, url).records == 0
    jlog.Journal(journal).remove_subscriber(f"kafka:{topic}")
    assert mirror(journal, url, subscriber="another").records == 0
    assert witness.values(topic) == numbered(100)


def test_positions_have_a_compacted_topic_of_their_own(writer, journal, url, witness, topic):
    writer.append(b"value")
    mirror(journal, url)
    table = f"jlog.mirror.{topic}.{jlog.Journal(journal).uuid}"
    assert witness.config(table)["cleanup.policy"] == "compact"
    rows = {message.key(): json.loads(message.value()) for message in witness.messages(table)[0]}
    assert rows[jlog.Journal(journal).uuid.encode()]["sequence"] == 1


def test_two_journals_go_to_one_topic(tmp_path, url, witness, topic):
    for name in ("a", "b"):
        with jlog.Writer(tmp_path / name) as writer:
            writer.extend([f"{name}{number}".encode() for number in range(100)])
        mirror(tmp_path / name, url)
    assert sorted(witness.values(topic)) == sorted(f"{name}{number}".encode() for name in "ab" for number in range(100))


def test_a_new_mirror_begins_where_it_is_told(writer, journal, url, witness, topic):
    writer.extend(numbered(10))
    mirror(journal, url, start=7)
    assert witness.values(topic) == [b"7", b"8", b"9"]
    assert verify(journal, url).compared == 3


def test_it_goes_on_where_it_is_told_whatever_was_before(writer, journal, url, witness, topic):
    writer.extend(numbered(10))
    mirror(journal, url)
    Mirror(journal, url).set_position(8)
    assert mirror(journal, url).records == 2
    assert mirror(journal, url).records == 0
    assert witness.values(topic) == [*numbered(10), b"8", b"9"]


def test_a_rate_is_kept(writer, journal, url):
    writer.extend(numbered(300))
    limited = Mirror(journal, url, rate=100, until_end=True)
    while limited.stats.records < 300:
        limited.step(timeout=0.1)
        assert limited.stats.records <= 300
    limited.close()
    # 300 records of which each takes a hundredth of a second: no transaction holds half a second of them or more.
    assert limited.stats.transactions >= 5


def test_a_function_makes_none_one_or_several_records_of_each(writer, journal, url, witness, topic):
    writer.extend(numbered(4), keys=[b"k"] * 4)

    def change(record):
        number = int(record.value)
        made = {
            0: None,
            1: b"one",
            2: [b"two", b"two again"],
            3: jlog.NewRecord.like(record, value=b"three", key=None),
        }
        return made[number]

    assert mirror(journal, url, function=change).records == 4
    assert [(fields.value, fields.key) for fields in witness.fields(topic)] == [
        (b"one", b"k"),
        (b"two", b"k"),
        (b"two again", b"k"),
        (b"three", None),
    ]


def test_a_function_that_raises_stops_it_at_that_record(writer, journal, url, witness, topic):
    writer.extend([b"1", b"2", b"x", b"4"])
    with pytest.raises(RecordRefused, match=r"record 2 .*ValueError") as caught:
        mirror(journal, url, function=lambda record: b"%d" % (2 * int(record.value)))
    assert caught.value.sequence == 2
    assert isinstance(caught.value.__cause__, ValueError)
    assert witness.values(topic) == [b"2", b"4"]


@MOSTLY_PLAIN
def test_a_record_that_is_too_large_stops_it_after_those_before(writer, journal, url, witness, topic):
    witness.make(topic, max_message_bytes=10_000)
    writer.extend([*numbered(500), bytes(20_000), b"after"])
    with pytest.raises(RecordRefused, match=r"record 500 .*max\.message\.bytes=10000") as caught:
        mirror(journal, url)
    assert caught.value.sequence == 500
    assert witness.values(topic) == numbered(500)
    assert jlog.Journal(journal).subscribers()[f"kafka:{topic}"].sequence == 500


def test_large_records_among_small_ones_fit_as_long_as_each_does(writer, journal, url, witness, topic):
    """The client fails a whole batch that is larger than the topic allows."""
    witness.make(topic, max_message_bytes=10_000)
    values = [bytes(9_000 if number % 10 == 0 else 100) for number in range(300)]
    writer.extend(values)
    mirror(journal, url, config={"compression.type": "none"})
    assert witness.values(topic) == values


def test_a_record_that_the_topic_refuses_is_skipped_if_wished(writer, journal, url, witness, topic):
    witness.make(topic, max_message_bytes=10_000)
    writer.extend([b"0", bytes(20_000), b"1"])
    events = []
    stats = mirror(journal, url, refused="skip", on_event=events.append)
    assert witness.values(topic) == [b"0", b"1"]
    assert (stats.records, stats.refused) == (3, 1)
    assert "record 1 is refused" in events[0]
    assert verify(journal, url).left_out == 1


FAR_AHEAD_US = 4_102_444_800_000_000


def test_a_time_that_the_topic_does_not_allow_is_refused(writer, journal, url, witness, topic):
    writer.extend([b"0", b"1", b"2"], timestamps_us=[None, FAR_AHEAD_US, None])
    with pytest.raises(RecordRefused, match=r"record 1 .*message\.timestamp\.after\.max\.ms"):
        mirror(journal, url)
    assert witness.values(topic) == [b"0"]


@MOSTLY_PLAIN
def test_a_record_that_only_the_broker_refuses_is_found(writer, journal, url, witness, topic):
    """The broker refuses the batch that it is in. Just below the limit nothing says so before."""
    witness.make(topic, max_message_bytes=10_000)
    large = {"value": bytes(9_400), "headers": [("h", bytes(9_400))]}
    values = numbered(40)
    values[17] = large["value"]
    writer.extend(values, headers=[large["headers"] if value is large["value"] else None for value in values])
    stats = mirror(journal, url, refused="skip", config={"compression.type": "none"})
    assert (stats.records, stats.refused) == (40, 1)
    assert witness.values(topic) == [value for value in values if value is not large["value"]]


def test_a_record_without_key_is_refused_by_a_compacted_topic(writer, journal, url, witness, topic):
    witness.make(topic, cleanup_policy="compact")
    writer.append(b"a", key=b"k")
    writer.append(b"b")
    with pytest.raises(RecordRefused, match=r"record 1 "):
        mirror(journal, url)
    assert witness.values(topic) == [b"a"]


@MOSTLY_PLAIN
def test_dead_letters_have_their_own_topic_and_say_why(writer, journal, url, witness, topic):
    witness.make(topic, max_message_bytes=10_000)
    writer.append(b"0")
    writer.append(bytes(20_000), key=b"k", headers=[("h", b"1")])
    writer.append(b"ahead", timestamp_us=FAR_AHEAD_US)
    writer.append(b"1")
    stats = mirror(journal, url, refused="dead-letter", dead_letter=f"{topic}.refused")
    assert stats.refused == 2
    assert witness.values(topic) == [b"0", b"1"]
    large, ahead = witness.fields(f"{topic}.refused")
    assert (large.value, large.key, large.headers[0]) == (bytes(20_000), b"k", ("h", b"1"))
    assert b"max.message.bytes" in dict(large.headers)["jlog.refused"]
    assert dict(large.headers)["jlog.record"] == f"{journal}: record 1".encode()
    assert ahead.value == b"ahead"


def test_a_dead_letter_that_is_too_large_says_how_large_it_was(writer, journal, url, witness, topic):
    for name in (topic, f"{topic}.refused"):
        witness.make(name, max_message_bytes=10_000)
    writer.append(bytes(9_400), key=bytes(5_000))
    writer.append(b"small", key=bytes(20_000))
    writer.append(b"", headers=[("h", bytes(20_000))])
    writer.append(b"1")
    stats = mirror(journal, url, refused="dead-letter", dead_letter=f"{topic}.refused")
    assert (stats.refused, witness.values(topic)) == (3, [b"1"])
    found = witness.fields(f"{topic}.refused")
    assert [(fields.value, len(fields.key or b"")) for fields in found] == [
        (None, 5_000),
        (None, 0),
        (None, 0),
    ]
    assert [dict(fields.headers)["jlog.bytes"] for fields in found] == [b"14400", b"20005", b"20001"]


def test_a_topic_that_refuses_dead_letters_too_ends_it(writer, journal, url, witness, topic):
    witness.make(topic, max_message_bytes=10_000)
    witness.make(f"{topic}.refused", cleanup_policy="compact")
    writer.extend([b"0", bytes(20_000), b"1"])
    with pytest.raises(RecordRefused, match=r"record 1 is refused: .*\.refused"):
        mirror(journal, url, refused="dead-letter", dead_letter=f"{topic}.refused")
    assert witness.values(topic) == [b"0"]


def test_dead_letters_and_positions_wait_for_a_full_queue_too(writer, journal, url, witness, topic):
    witness.make(topic, max_message_bytes=10_000)
    values = [bytes(20_000) if number % 10 == 9 else b"%d" % number for number in range(100)]
    writer.extend(values)
    stats = mirror(
        journal,
        url,
        refused="dead-letter",
        dead_letter=f"{topic}.refused",
        config={"queue.buffering.max.messages": 1},
    )
    assert (stats.records, stats.refused) == (100, 10)
    assert witness.values(topic) == [value for value in values if len(value) < 10]


@pytest.mark.parametrize("beside", ["keys", "headers"])
def test_keys_and_headers_count_towards_a_transactions_size(writer, journal, url, beside):
    large = {"keys": bytes(100_000), "headers": [("h", bytes(100_000))]}[beside]
    for _ in range(8):
        writer.extend([b""] * 100, **{beside: [large] * 100})
    stats = mirror(journal, url)
    assert stats.transactions > 1
    assert (stats.records, stats.bytes) == (800, 0)


def test_a_topic_that_was_made_again_stops_it(writer, journal, url, witness, topic):
    writer.extend(numbered(10))
    mirror(journal, url)
    witness.delete(topic)
    witness.make(topic)
    writer.extend(numbered(10, 10))
    with pytest.raises(TopicChanged, match="positions set SOURCE SINK begin"):
        mirror(journal, url)
    assert witness.values(topic) == []
    Mirror(journal, url).set_position("begin")
    mirror(journal, url)
    assert witness.values(topic) == numbered(20)
    assert verify(journal, url).compared == 20


@MOSTLY_PLAIN
def test_a_topic_made_again_under_a_running_mirror_stops_it(writer, journal, url, witness, topic):
    running = Mirror(journal, url)
    try:
        writer.extend(numbered(10))
        running.step()
        witness.delete(topic)
        witness.make(topic)
        writer.extend(numbered(10, 10))
        with pytest.raises(TopicChanged):
            running.step()
    finally:
        running.close()
    assert witness.values(topic) == []


def test_a_topic_deleted_under_a_running_mirror_stays_deleted(writer, journal, url, witness, topic):
    """The mirror stops."""
    running = Mirror(journal, url)
    try:
        writer.extend(numbered(10))
        running.step()
        witness.delete(topic)
        writer.extend(numbered(10, 10))
        with pytest.raises(TopicChanged, match="was deleted"):
            running.step()
    finally:
        running.close()
    assert not witness.exists(topic)


def test_its_positions_cannot_lie_in_a_topic_that_forgets(writer, journal, url, witness, topic):
    writer.append(b"value")
    witness.make(topic)
    witness.make(f"jlog.mirror.{topic}.{jlog.Journal(journal).uuid}", cleanup_policy="delete")
    with pytest.raises(jlog.kafka.BrokerError, match=r"cleanup\.policy"):
        mirror(journal, url)


def test_others_may_write_to_the_topic(writer, journal, url, witness, broker, topic):
    writer.append(b"ours")
    mirror(journal, url)
    producer = Producer({"bootstrap.servers": broker.address})
    producer.produce(topic, b"theirs")
    producer.flush()
    writer.append(b"ours again")
    mirror(journal, url)
    assert witness.values(topic) == [b"ours", b"theirs", b"ours again"]
    found = verify(journal, url)
    assert not found.ok


def test_records_that_an_open_transaction_hides_are_no_differences(writer, journal, url, witness, broker, topic):
    writer.append(b"seen")
    mirror(journal, url)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": f"{topic} of another program"})
    producer.init_transactions(HUNG_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"theirs", timestamp=int(1000 * time.time()) - 60_000)
    producer.flush()
    writer.extend([b"hidden"] * 2)
    mirror(journal, url)
    found = verify(journal, url)
    assert (found.ok, found.compared, found.hidden, found.differences) == (False, 1, 2, 0)
    ((partition, offset, seconds),) = found.open_transactions
    assert (partition, offset, witness.values(topic)) == (0, 2, [b"seen"])  # the end of the first one has offset 1
    assert 60 <= seconds < 60 + HUNG_SECONDS
    assert [one[:2] for one in status(journal, url).open_transactions] == [(0, 2)]
    producer.abort_transaction(HUNG_SECONDS)
    wait_until(lambda: not status(journal, url).open_transactions)
    assert verify(journal, url).compared == 3


def test_the_lag_is_told_from_either_side(writer, journal, url, witness, monkeypatch):
    monkeypatch.setattr(table, "SEEN_SECONDS", HUNG_SECONDS)
    writer.extend([bytes(1000)] * 100, timestamps_us=[1_700_000_000_000_000] * 100)
    running = Mirror(journal, url)
    try:
        running.step()
        assert running.lag() == status(journal, url).lag == jlog.kafka.Lag(0, 0, 0.0)
        writer.extend([bytes(1000)] * 50, timestamps_us=[1_700_000_000_000_000] * 50)
        for lag in (running.lag(), status(journal, url).lag):
            assert lag.records == 50
            assert 25_000 < lag.bytes < 100_000
            assert lag.seconds > 1_000_000
    finally:
        running.close()


def test_the_state_waits_for_a_transaction_whose_end_readers_do_not_see_yet(
    writer, journal, url, witness, broker, topic, monkeypatch
):
    """The brokers confirm a transaction before readers see its end."""
    monkeypatch.setattr(table, "SEEN_SECONDS", HUNG_SECONDS)
    uuid = jlog.Journal(journal).uuid
    of_mirror = f"jlog.mirror.{topic}.{uuid}"
    for name in (topic, of_mirror):
        witness.make(name)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": of_mirror})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(of_mirror, json.dumps({"sequence": 7}), uuid)
    producer.flush()
    late = threading.Timer(0.5, producer.commit_transaction)
    late.start()
    assert find_pair(journal, url).source_positions == {uuid: {"sequence": 7}}
    late.join()


@PLAIN_AND_SECURED
def test_values_in_any_number_of_partitions_are_mirrored_once(writer, journal, url, witness, topic):
    writer.extend(numbered(20_000))
    mirror(journal, url, partitions=3)
    found = [message.value() for messages in witness.messages(topic) for message in messages]
    assert sorted(found) == sorted(numbered(20_000))
    assert [len(messages) > 0 for messages in witness.messages(topic)] == [True] * 3
    assert verify(journal, url).compared == 20_000
