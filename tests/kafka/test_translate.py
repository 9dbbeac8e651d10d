"""Readers that move between a journal and the topic beside it: none misses a record."""

from __future__ import annotations

import random
import subprocess
import time

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

import jlog
from jlog.kafka import Capture, Mirror, Standby, promote, translate
from kafka.processes import TOOL
from kafka.witness import numbered
from patience import HUNG_SECONDS

KEEP = jlog.Retention(delete_read=False)
NOW_US = int(time.time() * 1e6)


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


def fill(journal, count, first=0, *, same_times=False):
    chosen = random.Random(first)
    with jlog.Writer(journal, retention=KEEP) as writer:
        for number in range(first, first + count):
            key = chosen.choice([None, b"%d" % (number % 11)])
            writer.append(b"%d" % number, key=key, timestamp_us=NOW_US if same_times else NOW_US + 1000 * number)


def mirror(journal, url, **options):
    return Mirror(journal, url, until_end=True, **options).run()


def consumer_of(witness, group):
    return Consumer(
        {
            "bootstrap.servers": witness.address,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
        }
    )


def goes_on(witness, topic, group, *, take=None):
    """What a real member of the group gets, up to the ends of all partitions; after `take` records it commits and ends."""
    consumer = consumer_of(witness, group)
    found, ended, count = [], set(), witness.partitions(topic)
    deadline = time.monotonic() + HUNG_SECONDS
    try:
        consumer.subscribe([topic])
        while len(ended) < count and (take is None or len(found) < take):
            assert time.monotonic() < deadline
            for message in consumer.consume(1 if take else 1000, 0.2):
                if message.error() is None:
                    found.append(int(message.value()))
                    if take is not None:
                        consumer.commit(message, asynchronous=False)
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended.add(message.partition())
    finally:
        consumer.close()
    return found


def reads(journal, name):
    with jlog.Reader(journal, name, create=False) as reader:
        return [int(value) for value in reader.values()]


def set_offsets(witness, topic, group, offsets):
    consumer = consumer_of(witness, group)
    consumer.commit(offsets=[TopicPartition(topic, *at) for at in offsets.items()], asynchronous=False)
    consumer.close()


WAYS = [{"sequence_header": True}, {}]


@pytest.mark.parametrize("options", WAYS, ids=["by sequence", "by comparing"])
def test_a_subscriber_goes_on_as_a_group(witness, topic, journal, url, options):
    """In several partitions, with the ends of transactions between the records."""
    for part in range(4):
        fill(journal, 500, 500 * part)
        mirror(journal, url, partitions=3, **options)
    for name, sequence in {"begin": 0, "middle": 777, "end": 2000}.items():
        jlog.Journal(journal).add_subscriber(f"{topic}.{name}", sequence)
        (found,) = translate(journal, url, [f"{topic}.{name}"], to="groups")
        assert (found.exact, found.again, found.missing) == (True, 0, 0)
        if name != "begin":
            assert sorted(goes_on(witness, topic, f"{topic}.{name}")) == list(range(sequence, 2000))


@pytest.mark.parametrize("options", WAYS, ids=["by sequence", "by comparing"])
def test_a_group_goes_on_as_a_subscriber(witness, topic, journal, url, options):
    fill(journal, 2000)
    mirror(journal, url, partitions=3, **options)
    jlog.Journal(journal).add_subscriber(topic, "end")
    translate(journal, url, [topic], to="groups")
    fill(journal, 1000, 2000)
    mirror(journal, url, **options)
    read = goes_on(witness, topic, topic, take=700)
    (found,) = translate(journal, url, [topic], to="subscribers")
    after = reads(journal, topic)
    assert set(read) | set(after) >= set(range(2000, 3000))
    assert found.exact
    assert len(set(read) & set(after)) <= found.again


def test_of_one_partition_nothing_is_seen_again(witness, topic, journal, url):
    fill(journal, 100)
    mirror(journal, url)
    jlog.Journal(journal).add_subscriber(topic, 40)
    translate(journal, url, [topic], to="groups")
    read = goes_on(witness, topic, topic, take=25)
    (found,) = translate(journal, url, [topic], to="subscribers")
    assert (found.sequence, found.again) == (65, 0)
    assert read + reads(journal, topic) == list(range(40, 100))


def test_where_records_were_left_out_times_decide(witness, topic, journal, url):
    """It cannot be compared which records are in the topic. Some are seen again, none is missing."""
    witness.make(topic, max_message_bytes=2000)
    fill(journal, 500)
    with jlog.Writer(journal) as writer:
        writer.append(bytes(5000), timestamp_us=NOW_US + 500_000)
    fill(journal, 500, 501)
    mirror(journal, url, refused="skip")
    jlog.Journal(journal).add_subscriber(topic, 300)
    (found,) = translate(journal, url, [topic], to="groups")
    after = goes_on(witness, topic, topic)
    assert not found.exact
    assert set(after) >= set(range(300, 1001)) - {500}
    assert len([number for number in after if number < 300]) <= found.again


def test_a_subscriber_ahead_of_the_mirror_sees_again_what_is_not_mirrored_yet(witness, topic, journal, url):
    fill(journal, 100)
    mirror(journal, url)
    fill(journal, 50, 100)
    jlog.Journal(journal).add_subscriber(topic, 130)
    (found,) = translate(journal, url, [topic], to="groups")
    assert found.again == 30
    mirror(journal, url)
    assert goes_on(witness, topic, topic) == list(range(100, 150))


@pytest.mark.parametrize("options", WAYS, ids=["by sequence", "by comparing"])
def test_records_that_the_topic_no_longer_has_are_not_passed_over(witness, topic, journal, url, options):
    fill(journal, 100)
    mirror(journal, url, **options)
    jlog.Journal(journal).add_subscriber(topic, 40)
    witness.remove_before(topic, 60)
    with pytest.raises(jlog.PositionLost, match="up to 20 records"):
        translate(journal, url, [topic], to="groups")
    (found,) = translate(journal, url, [topic], to="groups", skip_missing=True)
    assert found.missing == 20
    assert goes_on(witness, topic, topic) == list(range(60, 100))


@pytest.mark.parametrize("options", WAYS, ids=["by sequence", "by comparing"])
def test_records_that_the_journal_no_longer_has_are_not_passed_over(witness, topic, journal, url, options):
    with jlog.Writer(journal, segment_bytes=4096, retention=KEEP) as writer:
        for number in range(1000):
            writer.append(b"%d" % number)
    mirror(journal, url, **options)
    set_offsets(witness, topic, topic, {0: 10})
    jlog.Journal(journal).add_subscriber("late", 900)
    with jlog.Writer(journal, retention=jlog.Retention()) as writer:
        writer.roll()
    jlog.Journal(journal).clean()
    first = jlog.Journal(journal).first_sequence
    assert first > 10
    with pytest.raises(jlog.PositionLost, match="records that"):
        translate(journal, url, [topic], to="subscribers")
    (found,) = translate(journal, url, [topic], to="subscribers", skip_missing=True)
    assert found.sequence == first
    assert found.missing >= first - 10


@pytest.mark.parametrize("options", WAYS, ids=["by sequence", "by comparing"])
def test_of_a_compacted_topic_nothing_is_missed(witness, topic, journal, url, options):
    """What compaction has removed has a newer record of its key behind it."""
    witness.make(topic, cleanup_policy="compact", segment_ms=1, min_cleanable_dirty_ratio=0.01, max_compaction_lag_ms=1)
    with jlog.Writer(journal, retention=KEEP) as writer:
        for number in range(300):
            writer.append(b"%d" % number, key=b"%d" % (number % 7), timestamp_us=NOW_US + 1000 * number)
    mirror(journal, url, **options)
    jlog.Journal(journal).add_subscriber(topic, 200)
    translate(journal, url, [topic], to="groups", skip_missing=True)
    assert set(goes_on(witness, topic, topic)) >= set(range(293, 300))


def test_a_captured_journal_and_its_topic(witness, topic, journal, url):
    witness.make(topic, partitions=3)
    for partition in range(3):
        witness.produce(topic, numbered(200, 200 * partition), partition=partition, transactions=10)
    Capture(url, journal, until_end=True).run()
    with jlog.Reader(journal, topic) as reader:
        read = [int(record.value) for record in reader.read(250)]
        reader.commit()
    (found,) = translate(journal, url, [topic], to="groups")
    assert (found.exact, found.again, found.missing) == (True, 0, 0)
    read += goes_on(witness, topic, topic, take=100)
    (found,) = translate(journal, url, [topic], to="subscribers")
    after = reads(journal, topic)
    assert set(read) | set(after) == set(range(600))
    assert len(set(read) & set(after)) <= found.again


def test_a_captured_journal_without_its_first_records(witness, topic, journal, url):
    witness.make(topic)
    for part in range(5):
        witness.produce(topic, numbered(200, 200 * part))
        Capture(url, journal, until_end=True, segment_bytes=4096, retention=KEEP).run()
    set_offsets(witness, topic, topic, {0: 10})
    jlog.Journal(journal).add_subscriber("late", 900)
    with jlog.Writer(journal, retention=jlog.Retention()) as writer:
        writer.roll()
    jlog.Journal(journal).clean()
    first = jlog.Journal(journal).first_sequence
    assert first > 10
    with pytest.raises(jlog.PositionLost, match=f"up to {first - 10} records"):
        translate(journal, url, [topic], to="subscribers")


def test_after_a_takeover_the_records_of_the_first_mirror_count_too(witness, topic, journal, url, tmp_path):
    fill(journal, 200)
    jlog.Journal(journal).add_subscriber(topic, 40)
    mirror(journal, url, partitions=2, standby=True)
    second = tmp_path / "second"
    Standby(url, second, until_end=True).run()
    promote(url, second)
    fill(second, 100, 200)
    mirror(second, url, standby=True)
    (found,) = translate(second, url, [topic], to="groups")
    assert (found.exact, found.missing) == (True, 0)
    assert sorted(goes_on(witness, topic, topic, take=10) + goes_on(witness, topic, topic)) == list(range(40, 300))


def test_a_mirror_that_began_later_has_not_sent_what_is_before(witness, topic, journal, url):
    fill(journal, 100)
    mirror(journal, url, start=50, sequence_header=True)
    jlog.Journal(journal).add_subscriber(topic, 40)
    with pytest.raises(jlog.PositionLost, match="up to 10 records"):
        translate(journal, url, [topic], to="groups")


def test_the_command(witness, topic, journal, url):
    fill(journal, 100)
    mirror(journal, url)
    jlog.Journal(journal).add_subscriber(topic, 40)
    command = [*TOOL, "mirror", "translate", str(journal), url, topic, "--to"]

    def run(*options):
        return subprocess.run([*command, *options], capture_output=True, text=True, timeout=HUNG_SECONDS)

    assert '"0": 40' in run("groups", "--dry-run", "--json").stdout
    done = run("subscribers")
    assert (done.returncode, "no group" in done.stderr) == (1, True)
    assert "0:40" in run("groups").stdout
    assert run("subscribers").returncode == 0
