"""Captures by librdkafka's C calls: the same journal as with the Python client, and no message is lost or kept."""

from __future__ import annotations

import gc
import os
import sys
from itertools import permutations, product

import pytest
from confluent_kafka import Producer

import jlog
from elsewhere import python
from jlog._core.kafka.consumer import Consumer, held
from jlog.kafka import Capture, RecordRefused, TopicChanged
from jlog.kafka.client import clients
from jlog.kafka.client.clients import library
from kafka.secured import MOSTLY_PLAIN, PLAIN_AND_SECURED
from kafka.witness import numbered
from patience import HUNG_SECONDS

WAYS = ["native", "python"]
TIME = 1_700_000_000_123
STRANGE = [
    {"value": None, "key": b"tombstone"},
    {"value": b"", "key": b""},
    {"value": None, "key": None},
    {"value": b"null in a header", "headers": [("a", None), ("a", b""), ("a", b"1"), ("a", b"1")]},
    {"value": b"names", "headers": [("", b"empty"), ("ünïcode \U0001f40d", bytes(range(256)))]},
    {"value": b"time", "timestamp": TIME},
    {"value": b"time 0", "timestamp": 1},
    {"value": b"many", "headers": [(f"header {number}", b"%d" % number) for number in range(300)]},
    {"value": bytes(300_000), "key": bytes(300_000), "headers": [("large", bytes(300_000))]},
]


@pytest.fixture
def go(monkeypatch):
    """Chooses the way of the next captures."""

    def by(way):
        monkeypatch.setattr(clients, "library", library if way == "native" else lambda: None)

    return by


@pytest.fixture(params=WAYS)
def way(request, go):
    go(request.param)
    return request.param


@pytest.fixture
def consumer(broker):
    opened = open_consumer(broker.address)
    yield opened
    opened.close()


def open_consumer(address):
    settings = {"bootstrap.servers": address, "group.id": "test", "auto.offset.reset": "error", "enable.auto.commit": "false"}
    return Consumer(library(), settings)


def fetch(consumer, topic, count):
    consumer.assign([(topic, 0, 0, -1)])
    batches = []
    while sum(map(len, batches)) < count:
        batches.append(consumer.fetch(count, HUNG_SECONDS))
        assert not batches[-1].events
    return batches


def records_of(journal):
    with jlog.Reader(journal) as reader:
        return [(record.value, record.key, record.headers, record.timestamp_us) for record in reader]


def place_of(record):
    """Returns what sorts the records of several partitions, which come in any order."""
    headers = dict(record[2])
    return headers.get("jlog.kafka.topic", b""), headers["jlog.kafka.partition"], int(headers["jlog.kafka.offset"])


def check_ways_agree(url, tmp_path, go):
    """Returns the records, which are the same by both ways."""
    journals = []
    for way in WAYS:
        go(way)
        Capture(url, tmp_path / way, until_end=True).run()
        journals.append((sorted(records_of(tmp_path / way), key=place_of), jlog.Journal(tmp_path / way).state()))
    assert journals[0] == journals[1]
    return journals[0][0]


def test_the_library_is_there():
    """Otherwise the tests of both ways would be of one."""
    assert library() is not None


@pytest.mark.parametrize("compression", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_both_ways_make_the_same_journal(witness, topic, url, tmp_path, go, compression):
    witness.make(topic, retention_ms=-1, max_message_bytes=4_000_000, compression_type=compression)
    for message in STRANGE:
        witness.produce(topic, [dict(message)])
    found = check_ways_agree(url, tmp_path, go)
    assert [(value, key, headers[:-2]) for value, key, headers, _ in found] == [
        (message["value"], message.get("key"), message.get("headers", [])) for message in STRANGE
    ]


@PLAIN_AND_SECURED
def test_both_ways_make_the_same_journal_of_several_topics_and_transactions(witness, topic, url, tmp_path, go):
    for name in ("a", "b"):
        witness.make(f"{topic}.{name}", partitions=3)
        for partition in range(3):
            witness.produce(f"{topic}.{name}", numbered(200, 1000 * partition), partition=partition, transactions=30)
    witness.produce_and_abort(f"{topic}.a", [b"aborted"] * 10)
    witness.produce(f"{topic}.a", [b"after it"], transactions=1)
    assert len(check_ways_agree(f"{url}.a,{topic}.b", tmp_path, go)) == 1201


def test_both_ways_make_the_same_journal_of_transactions_that_overlap(witness, topic, url, broker, tmp_path, go):
    """Every second one is aborted, and each has several batches between those of the others."""
    witness.make(topic)
    producers = [Producer({"bootstrap.servers": broker.address, "transactional.id": f"{topic}-{one}"}) for one in range(3)]
    for producer in producers:
        producer.init_transactions(HUNG_SECONDS)
    committed = []
    for turn in range(6):
        for producer in producers:
            producer.begin_transaction()
        for number, (part, producer) in product(range(3), enumerate(producers)):
            producer.produce(topic, b"%d %d %d" % (turn, part, number))
            assert producer.flush(HUNG_SECONDS) == 0
            if (turn + part) % 2 == 0:
                committed.append(b"%d %d %d" % (turn, part, number))
        for part, producer in enumerate(producers):
            end = producer.abort_transaction if (turn + part) % 2 else producer.commit_transaction
            end(HUNG_SECONDS)
    assert [record[0] for record in check_ways_agree(url, tmp_path, go)] == committed


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_both_ways_give_the_same_times(witness, topic, url, tmp_path, go, kind):
    witness.make(topic, retention_ms=-1, message_timestamp_type=kind)
    witness.produce(topic, [{"value": b"%d" % time, "timestamp": time} for time in (TIME, 1, -1, TIME + 1)])
    times = [record[3] for record in check_ways_agree(url, tmp_path, go)]
    assert (times == [1000 * time for time in (TIME, 1, -1, TIME + 1)]) is (kind == "CreateTime")


def test_batches_that_are_larger_than_an_answer_come_too(witness, topic, url, tmp_path):
    witness.make(topic, partitions=3)
    for partition in range(3):
        witness.produce(topic, [bytes(20_000)] * 30, partition=partition)
    config = {"fetch.message.max.bytes": 1000, "fetch.max.bytes": 1_000_000}
    Capture(url, tmp_path / "journal", until_end=True, config=config).run()
    assert len(records_of(tmp_path / "journal")) == 90


@pytest.mark.parametrize("transactions", [0, 30], ids=["plain", "transactions"])
@pytest.mark.parametrize("ways", [*permutations(WAYS, 2)], ids="-".join)
def test_it_goes_on_another_way(witness, topic, url, tmp_path, go, ways, transactions):
    """After an update of the client, for example."""
    witness.make(topic)
    for turn, way in enumerate(ways):
        witness.produce(topic, numbered(100, 100 * turn), transactions=transactions)
        go(way)
        Capture(url, tmp_path / "journal", until_end=True).run()
    assert [record[0] for record in records_of(tmp_path / "journal")] == numbered(200)


@MOSTLY_PLAIN
@pytest.mark.usefixtures("way")
def test_one_refused_record_in_three_is_passed_over(witness, topic, url, tmp_path):
    witness.make(topic)
    for number in range(9):
        if number % 3 == 1:
            witness.produce_with_header(topic, b"refused", b"n\xff")
        else:
            witness.produce(topic, [b"%d" % number])
    with pytest.raises(RecordRefused, match="offset 1 is refused: the name of one of its headers is not UTF-8"):
        Capture(url, tmp_path / "journal", until_end=True).run()
    stats = Capture(url, tmp_path / "journal", until_end=True, refused="skip").run()
    assert [record[0] for record in records_of(tmp_path / "journal")] == [b"0", b"2", b"3", b"5", b"6", b"8"]
    assert (stats.refused, held()) == (3, 0)


@pytest.mark.usefixtures("way")
def test_a_function_gets_every_field(witness, topic, url, tmp_path):
    witness.make(topic, retention_ms=-1)
    message = {"value": b"v", "key": b"k", "headers": [("h", b"1"), ("h", None)], "timestamp": TIME}
    witness.produce(topic, [dict(message)])
    got = []
    Capture(url, tmp_path / "journal", until_end=True, function=lambda record: got.append(record) or record).run()
    (record,) = got
    place = [("jlog.kafka.partition", b"0"), ("jlog.kafka.offset", b"0")]
    assert (record.value, record.key, record.timestamp_us) == (b"v", b"k", TIME * 1000)
    assert record.headers == [*message["headers"], *place]
    assert (record.topic, record.partition, record.sequence) == (topic, 0, 0)
    assert records_of(tmp_path / "journal") == [(b"v", b"k", record.headers, TIME * 1000)]


@pytest.mark.usefixtures("way")
def test_all_before_an_error_is_captured(witness, topic, url, tmp_path):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    running = Capture(url, tmp_path / "journal")
    try:
        assert running.step(timeout=HUNG_SECONDS) == 10
        witness.delete(topic)
        with pytest.raises(TopicChanged):
            keep_stepping(running)
    finally:
        running.close()
    assert [record[0] for record in records_of(tmp_path / "journal")] == numbered(10)


def keep_stepping(running):
    while True:
        running.step(timeout=1)


# --- Memory that is librdkafka's ------------------------------------------------------------------------------------


def test_every_message_is_freed_whatever_happens(witness, topic, url, tmp_path, go):
    go("native")
    witness.make(topic)
    witness.produce(topic, [bytes(1000)] * 1000)
    full = Capture(url, tmp_path / "full", retention=jlog.Retention(limit_bytes=200_000))
    assert (full.step(HUNG_SECONDS), full.stats.retries, held()) == (0, 1, 0)
    full.close()
    with pytest.raises(RecordRefused):
        Capture(url, tmp_path / "refused", until_end=True, function=lambda record: record.nothing).run()
    gc.collect()  # the error has references in a circle
    assert held() == 0
    Capture(url, tmp_path / "journal", until_end=True).run()
    assert held() == 0


def test_messages_outlive_their_consumer(witness, topic, consumer):
    witness.make(topic)
    witness.produce(topic, [{"value": b"%d" % number, "headers": [("h", b"1")]} for number in range(100)])
    batches = fetch(consumer, topic, 100)
    assert held() == 100
    consumer.close()
    messages = [message for batch in batches for message in batch]
    del batches
    assert [message.value() for message in messages] == numbered(100)
    assert {message.topic() for message in messages} == {topic}
    kept = messages[50]
    del messages
    assert (kept.value(), kept.headers(), kept.offset()) == (b"50", [("h", b"1")], 50)
    del kept
    assert held() == 0
    with pytest.raises(ValueError, match="closed"):
        consumer.fetch(1, 0)


def test_a_child_of_a_fork_leaves_them_alone(witness, topic, consumer):
    witness.make(topic)
    witness.produce(topic, numbered(100))
    batches = fetch(consumer, topic, 100)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = False
            try:
                consumer.fetch(1, 0)
            except ValueError:
                refused = True
            del batches
            consumer.close()
            status = 0 if refused else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [message.value() for batch in batches for message in batch] == numbered(100)


def test_a_process_ends_with_a_consumer_and_messages_in_use(witness, topic, broker):
    witness.make(topic)
    witness.produce(topic, numbered(100))
    program = f"""
        from kafka.test_native import fetch, open_consumer
        consumer = open_consumer({broker.address!r})
        batches = fetch(consumer, {topic!r}, 100)
    """
    found = python(program, PYTHONPATH=os.pathsep.join(sys.path))
    assert (found.returncode, found.stderr) == (0, "")
