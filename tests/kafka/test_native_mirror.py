"""Mirrors by librdkafka's C calls send what the Python client sends, and their clients end."""

from __future__ import annotations

import os

import pytest
from confluent_kafka import KafkaException

import jlog
from jlog._core.kafka.producer import Producer as CoreProducer
from jlog.kafka import Mirror
from jlog.kafka.client import clients
from jlog.kafka.client.clients import library, open_consumer, open_producer
from jlog.kafka.client.native import NativeConsumer, NativeProducer
from jlog.kafka.client.python import PythonConsumer, PythonProducer
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse
from kafka.secured import MOSTLY_PLAIN
from patience import wait_until

pytestmark = pytest.mark.kafka

RECORDS = [
    (b"plain", None, (), 1_700_000_000_000_999),
    (None, b"tombstone", (), 1_700_000_000_001_000),
    (b"", b"", (), 1_700_000_000_002_000),
    (b"with headers", b"key", (("a", b"1"), ("a", None), ("", b""), ("ä", b"\0\xff")), 1_700_000_000_003_000),
    (b"captured", None, (("jlog.kafka.offset", b"7"), ("own", b"x")), 1_700_000_000_004_000),
    (b"before 1970", None, (), -1),
    (b"1970", b"key", (), 0),
    (b"large", b"k" * 10_000, (("n" * 300, b"v" * 5_000),), 1_700_000_000_005_000),
]


def sent(journal, witness, topic, **options):
    """Returns the messages of each partition."""
    witness.make(topic, partitions=3, retention_ms=-1)  # some of the records are old
    Mirror(journal, witness.url(topic), subscriber=None, until_end=True, **options).run()
    return [[(m.value(), m.key(), m.headers(), m.timestamp()) for m in messages] for messages in witness.messages(topic)]


@MOSTLY_PLAIN
@pytest.mark.parametrize("options", [{}, {"key": "none"}, {"standby": True}, {"sequence_header": True}])
def test_both_ways_send_the_same_messages(tmp_path, witness, topic, monkeypatch, options):
    with jlog.Writer(tmp_path / "journal") as writer:
        for value, key, headers, timestamp_us in RECORDS * 300:
            writer.append(value, key=key, headers=headers, timestamp_us=timestamp_us)
        writer.sync()
    native = sent(tmp_path / "journal", witness, f"{topic}-native", **options)
    monkeypatch.setattr(clients, "library", lambda: None)
    python = sent(tmp_path / "journal", witness, f"{topic}-python", **options)
    assert sum(map(len, native)) >= len(RECORDS) * 300
    if options.get("standby"):  # its last message is not a record
        native, python = ([[m for m in part if m[2]] for part in found] for found in (native, python))
    assert native == python


@pytest.mark.parametrize(
    ("given", "native"),
    [
        ({}, True),
        ({"compression.type": "zstd", "security.protocol": "ssl"}, True),
        ({"stats_cb": print}, False),
        ({"sasl.mechanism": "OAUTHBEARER"}, False),
    ],
)
def test_the_settings_choose_the_clients(given, native):
    settings = Settings(parse("kafka://127.0.0.1:9/t"), given)
    producer = open_producer(settings.for_producer(transactional_id="t", transaction_timeout_ms=60_000), print)
    consumer = open_consumer(settings, None, print)
    assert isinstance(producer, NativeProducer if native else PythonProducer)
    assert isinstance(consumer, NativeConsumer if native else PythonConsumer)
    producer.close()
    consumer.close()


def test_a_setting_that_is_none_is_an_error_with_its_name():
    with pytest.raises(KafkaException, match=r"no\.such\.setting"):
        CoreProducer(library(), {"no.such.setting": "1"})


def test_a_client_that_was_never_made_is_let_go():
    with pytest.raises(TypeError, match="library"):
        CoreProducer(None, {})


def test_fifty_clients_leave_no_thread_and_no_descriptor():
    def counted():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    CoreProducer(library(), {"bootstrap.servers": "127.0.0.1:9"}).close()
    before = counted()
    for number in range(50):
        producer = CoreProducer(library(), {"bootstrap.servers": "127.0.0.1:9"})
        if number % 2:
            producer.close()
    del producer
    wait_until(lambda: counted() <= before)


def test_a_child_of_a_fork_refuses_the_client_and_leaves_it_to_its_parent():
    producer = CoreProducer(library(), {"bootstrap.servers": "127.0.0.1:9"})
    child = os.fork()
    if child == 0:
        try:
            producer.poll(0)
        except ValueError:
            producer.close()
            del producer
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    producer.poll(0)
    producer.close()
    with pytest.raises(ValueError, match="closed"):
        producer.poll(0)
