"""jlog's own producer of record batches: what it does where a broker does not answer, moves, or refuses."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException

import jlog
from jlog.kafka import Mirror, verify
from jlog.kafka.client.producer import make_producer
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse
from jlog.kafka.protocol import messages
from jlog.kafka.protocol.brokers import Brokers
from jlog.kafka.protocol.connection import Connection, Lost
from jlog.kafka.protocol.producer import BatchProducer

RECORDS = 40_000


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "journal"
    with jlog.Writer(path) as writer:
        for begin in range(0, RECORDS, 1000):
            numbers = range(begin, begin + 1000)
            writer.extend([b"%06d" % number + b"x" * 94 for number in numbers], keys=[b"%d" % (n % 50) for n in numbers])
        writer.sync()
    return path


def made(url, topic, **given):
    settings = Settings(parse(url), given)
    failures = []
    producer = make_producer(
        settings,
        settings.for_producer(transactional_id=topic, transaction_timeout_ms=60_000),
        lambda *one: failures.append(one),
    )
    assert isinstance(producer, BatchProducer)
    return producer, failures


def begun(url, topic, **given):
    producer, failures = made(url, topic, **given)
    patiently(producer.init_transactions)
    producer.begin_transaction()
    return producer, failures


def patiently(call):
    until = time.monotonic() + 60
    while True:
        try:
            return call(0.5)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > until:
                raise


@pytest.mark.parametrize("api", ["PRODUCE", "END_TXN", "ADD_PARTITIONS_TO_TXN", "INIT_PRODUCER_ID"])
def test_an_answer_that_is_lost_costs_nothing(journal, witness, topic, url, monkeypatch, api):
    """The broker has done what was asked, and its connection ends before the answer is there."""
    number, ask, lost = getattr(messages, api), Connection.ask, []

    def ask_and_lose(self, request, told=None):
        pending = ask(self, request, told)
        if request.api == number:
            read = pending._read

            def lose(answer):
                found = read(answer)
                if len(lost) < 20:
                    lost.append(found)
                    if len(lost) % 2:
                        raise struct.error("lost by the test")
                return found

            pending._read = lose
        return pending

    monkeypatch.setattr(Connection, "ask", ask_and_lose)
    witness.make(topic, partitions=3)
    mirror = Mirror(journal, url, until_end=True, config={"batch.size": 100_000})
    stats = mirror.run()
    assert len(lost) >= (20 if api == "PRODUCE" else 2)
    assert (stats.records, stats.retries) == (RECORDS, 0)
    assert verify(journal, url).differences == 0
    assert sum(map(len, witness.messages(topic))) == RECORDS


def test_records_that_were_dropped_leave_no_gap(witness, topic, url):
    witness.make(topic, partitions=2)
    producer, failures = begun(url, topic)
    for turn in range(3):
        for number in range(100):
            producer.produce(topic, b"dropped %d" % number, None, number % 2)
        producer.flush(0)
        producer.purge()
        patiently(producer.abort_transaction)
        producer.begin_transaction()
        for number in range(100):
            producer.produce(topic, b"%d %d" % (turn, number), None, number % 2)
        while producer.flush(0.5):
            pass
        patiently(producer.commit_transaction)
        producer.begin_transaction()
    producer.close()
    assert failures == []
    expected = [[b"%d %d" % (turn, number) for turn in range(3) for number in range(part, 100, 2)] for part in (0, 1)]
    assert [[message.value() for message in part] for part in witness.messages(topic)] == expected


def test_an_instance_that_is_fenced_leaves_the_transaction_of_the_newer_one_alone(witness, topic, url):
    witness.make(topic)
    first, _ = begun(url, topic)
    first.produce(topic, b"first", None, 0)
    second, failures = begun(url, topic)
    second.produce(topic, b"second", None, 0)
    while second.flush(0.5):
        pass
    with pytest.raises(KafkaException):
        patiently(first.flush)
    with suppress(KafkaException):
        patiently(first.abort_transaction)
    patiently(second.commit_transaction)
    assert failures == []
    first.close()
    second.close()
    assert [[message.value() for message in part] for part in witness.messages(topic)] == [[b"second"]]


def test_the_record_that_a_broker_refuses_is_named(witness, topic, url):
    """The topic becomes compacted behind the producer's back, and takes no record without a key."""
    witness.make(topic, cleanup_policy="compact")
    producer, failures = begun(url, topic)
    producer.produce(topic, b"fine", b"key", 0)
    producer.produce(topic, b"without a key", None, 0)
    while not failures:
        producer.flush(0.5)
    with pytest.raises(KafkaException):
        patiently(producer.commit_transaction)
    ((error, undelivered),) = failures
    assert error.code() == KafkaError.INVALID_RECORD
    assert undelivered.topic() == topic
    producer.close()


def test_a_second_instance_fences_the_first(witness, topic, url):
    witness.make(topic)
    first, failures = begun(url, topic)
    first.produce(topic, b"first", None, 0)
    second, _ = begun(url, topic)
    with pytest.raises(KafkaException) as fenced:
        patiently(first.flush)
    assert fenced.value.args[0].code() in (KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)
    with suppress(KafkaException):
        patiently(first.abort_transaction)
    assert failures == []
    second.produce(topic, b"second", None, 0)
    patiently(second.commit_transaction)
    first.close()
    second.close()
    assert [[message.value() for message in part] for part in witness.messages(topic)] == [[b"second"]]


def test_batches_that_nobody_takes_have_bounded_memory(witness, topic, url, monkeypatch):
    witness.make(topic)
    producer, _ = begun(url, topic)
    producer.produce(topic, b"", None, 0)
    producer.flush(10)
    monkeypatch.setattr(Brokers, "pump", lambda self, seconds: None)  # the broker neither reads nor answers
    value = os.urandom(100_000)
    with pytest.raises(KafkaException) as full:  # noqa: PT012 - one of these calls
        for _ in range(2_000):
            producer.produce(topic, value, None, 0)
    assert full.value.args[0].code() == KafkaError._QUEUE_FULL
    assert 64 << 20 <= producer._delivery.waiting_bytes <= 68 << 20
    producer.close()


def test_a_child_of_a_fork_is_refused(witness, topic, url):
    witness.make(topic)
    producer, _ = begun(url, topic)
    child = os.fork()
    if child == 0:
        try:
            producer.poll(0)
        except ValueError:
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    producer.poll(0)
    producer.close()


@pytest.mark.parametrize(
    "given",
    [
        {"compression.type": "zstd"},
        {"security.protocol": "SSL"},
        {"partitioner": "consistent_random"},
        {"debug": "eos"},
        {"request.timeout.ms": 1000},
    ],
)
def test_settings_that_only_librdkafka_knows_are_left_to_it(given):
    settings = Settings(parse("kafka://127.0.0.1:9/t"), given)
    producer = make_producer(settings, settings.for_producer(transactional_id="t", transaction_timeout_ms=60_000), print)
    assert not isinstance(producer, BatchProducer)


def test_old_brokers_are_left_to_librdkafka(witness, topic, url, journal, monkeypatch):
    monkeypatch.setitem(messages.VERSIONS, messages.PRODUCE, 99)
    witness.make(topic)
    settings = Settings(parse(url))
    producer = make_producer(settings, settings.for_producer(transactional_id=topic, transaction_timeout_ms=60_000), print)
    assert not isinstance(producer, BatchProducer)
    assert Mirror(journal, url, until_end=True).run().records == RECORDS


def test_a_server_that_is_no_broker_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        brokers = Brokers(f"127.0.0.1:{server.getsockname()[1]}", "test", 5)
        asking = brokers.refresh(["t"])
        next(asking)
        accepted, _ = server.accept()
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(Lost, match=r"127\.0\.0\.1:\d+: this is no answer of a Kafka broker"):
            brokers.run(asking, 10)
        brokers.close()
        accepted.close()


def test_a_broker_that_does_not_answer_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as server:
        brokers = Brokers(f"127.0.0.1:{server.getsockname()[1]}", "test", 0.3)
        with pytest.raises(Lost, match="no answer within"):
            brokers.run(brokers.refresh(["t"]), 10)
        brokers.close()


def test_an_answer_that_lies_is_an_error():
    """Answers that are cut, or whose lengths lie, are told and never trusted."""
    rng = random.Random(3)
    for read in (
        messages.metadata(["t"]).read,
        messages.find_coordinator("t").read,
        messages.produce("t", 1, {}).read,
        messages.fetch({}, wait_ms=1, max_bytes=1).read,
        messages.api_versions().read,
        messages.init_producer_id("t", 1, messages.NO_PRODUCER).read,
    ):
        for _ in range(2_000):
            data = bytes(rng.choice((0, 0, 0, 1, 127, 128, 255)) for _ in range(rng.randrange(80)))
            with suppress(struct.error):
                read(messages.Answer(memoryview(data)))
