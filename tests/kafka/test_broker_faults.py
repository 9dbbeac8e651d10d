"""Brokers that are killed, hang, or are away: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import threading
import time

import pytest
from confluent_kafka import Producer
from kafka_broker import POM, SESSION_SECONDS, Broker, jars_of

import exhaustive
import jlog
from jlog.kafka import BrokerError, Capture, Mirror, positions, verify
from jlog.kafka.client import clients
from jlog.kafka.ends.topic_source import TopicSource
from jlog.kafka.topic import writer as topic_writer
from jlog.urls import open_reader, open_writer
from kafka.processes import captured, fill, position, run_to_end, running
from kafka.witness import Witness, numbered
from patience import HUNG_SECONDS, wait_until

# Shorter than the broker is away. Those of jlog and the client, which they stand for, are of up to a minute.
SHORT = {"transaction.timeout.ms": 4000, "message.timeout.ms": 3000, "socket.timeout.ms": 2000}
AWAY_SECONDS = float(os.environ.get("JLOG_BROKER_AWAY", "0"))  # with the client's own timeouts, where it is more


@pytest.fixture
def broker(fragile_broker):
    return fragile_broker


@pytest.fixture
def forgetful_broker(_jars, tmp_path):
    """Forgets a transactional id soon after its last transaction."""
    settings = {"transactional.id.expiration.ms": "1000", "transaction.remove.expired.transaction.cleanup.interval.ms": "200"}
    with Broker(tmp_path / "forgetful", settings=settings) as broker:
        yield broker


@pytest.mark.timeout(300)
def test_a_broker_killed_and_restarted_has_every_record_once(journal, broker, url, witness, topic, processes):
    kills, records = exhaustive.count(1, 2), exhaustive.count(40_000, 100_000)
    fill(journal, records)
    mirror = processes("to-kafka", journal, url, "--rate", 20_000)
    for kill in range(kills):
        wait_until(lambda moved=kill * records // 2: position(journal) > moved)
        broker.kill()
        broker.start()
    wait_until(lambda: position(journal) == records)
    assert mirror.end()[0] == 0
    witness.check_numbered(topic, records)


@pytest.mark.timeout(300)
def test_a_mirror_moves_on_where_the_line_is_too_slow_for_a_whole_transaction(tmp_path, broker, url, witness, topic):
    """The quota lets a third of the records through within the time of a transaction."""
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend([b"%06d" % number + os.urandom(1000) for number in range(4_000)])
    jars = os.pathsep.join(map(str, sorted(jars_of(POM).glob("*.jar"))))
    quota = ["kafka.admin.ConfigCommand", "--alter", "--add-config", "producer_byte_rate=100000"]
    command = ["java", "-Xmx128m", "-cp", jars, *quota, "--bootstrap-server", broker.address, "--entity-type", "clients"]
    subprocess.run([*command, "--entity-name", "slow"], check=True, capture_output=True)
    options = {"transaction.timeout.ms": 6_000, "client.id": "slow"}
    flow = Mirror(tmp_path / "journal", url, config=options, until_end=True)
    stats = flow.run()
    assert stats.records == 4_000
    assert stats.retries > 0
    assert sum(map(len, witness.messages(topic))) == 4_000


@pytest.mark.exhaustive
@pytest.mark.timeout(AWAY_SECONDS + 300)
@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_a_broker_that_is_away_for_long_costs_only_time(journal, broker, url, witness, topic, how):
    events = []
    with jlog.Writer(journal) as writer:
        mirror = Mirror(journal, url, config={} if AWAY_SECONDS else SHORT, on_event=events.append)
        with running(mirror):
            writer.extend(numbered(1000))
            wait_until(lambda: mirror.stats.records == 1000)
            broker.kill() if how == "killed" else broker.pause()
            until = time.monotonic() + AWAY_SECONDS
            writer.extend(numbered(1000, 1000))
            wait_until(lambda: mirror.stats.retries >= 2 and time.monotonic() > until, AWAY_SECONDS + HUNG_SECONDS)
            broker.start() if how == "killed" else broker.resume()
            wait_until(lambda: mirror.stats.records == 2000)
    assert "trying again" in events[0]
    witness.check_numbered(topic, 2000)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("direction", "how"),
    [
        ("to-kafka", "hangs"),
        ("from-kafka", "is gone"),
        exhaustive.only("from-kafka", "hangs"),
        exhaustive.only("to-kafka", "is gone"),
    ],
)
def test_sigterm_ends_it_also_while_the_broker(broker, journal, url, witness, topic, processes, direction, how):
    fill(journal, 20_000)
    run_to_end("to-kafka", journal, url)
    fill(journal, 10_000, 20_000)
    other = journal.with_name("other")
    arguments = (journal, url) if direction == "to-kafka" else (url, other)
    running = processes(direction, *arguments, "--rate", 2_000)
    wait_until(lambda: position(journal) > 20_000 if direction == "to-kafka" else captured(other))
    broker.pause() if how == "hangs" else broker.kill()
    assert running.runs_for(1)
    assert running.end()[0] == 0
    broker.resume() if how == "hangs" else broker.start()
    run_to_end(direction, *arguments)
    witness.check_numbered(topic, 30_000 if direction == "to-kafka" else 20_000)
    if direction == "from-kafka":
        with jlog.Reader(other) as reader:
            assert list(reader.values()) == numbered(20_000)


@pytest.mark.timeout(300)
def test_a_capture_outlives_its_broker(broker, journal, url, witness, topic):
    witness.make(topic)
    witness.produce(topic, numbered(1000), transactions=10)
    capture = Capture(url, journal)
    with running(capture):
        wait_until(lambda: capture.stats.records == 1000)
        broker.kill()
        broker.start()
        witness.produce(topic, numbered(1000, 1000), transactions=10)
        wait_until(lambda: capture.stats.records == 2000)
    with jlog.Reader(journal) as reader:
        assert list(reader.values()) == numbered(2000)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("together", [False, exhaustive.only(True)])
def test_a_transaction_that_ends_under_another_leader_is_not_a_lost_tail(
    broker, journal, url, witness, topic, together, monkeypatch
):
    """Its end then has a newer leader epoch than the last record before it. The client may report both together."""
    if together:
        fetch = TopicSource._fetch
        monkeypatch.setattr(TopicSource, "_fetch", lambda self, *given: time.sleep(1) or fetch(self, *given))
    witness.make(topic)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic, "transaction.timeout.ms": 600_000})
    producer.init_transactions(HUNG_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"0")
    assert producer.flush(HUNG_SECONDS) == 0
    broker.stop()
    broker.start()
    producer.commit_transaction(HUNG_SECONDS)
    assert Capture(url, journal, until_end=True).run().records == 1
    assert positions(url, journal)[0].position == 2
    Witness(broker.address).produce(topic, [b"1"])
    assert Capture(url, journal, until_end=True).run().records == 1


@pytest.mark.timeout(300)
def test_a_broker_that_the_others_took_for_dead_is_asked_again(broker, url, witness, topic):
    """For some moments after its return it knows another epoch of the partition than it reports."""
    witness.make(topic)
    with open_reader(url) as reader:
        for _ in range(exhaustive.count(1, 3)):
            broker.pause()
            time.sleep(SESSION_SECONDS + 1)
            broker.resume()
            until = time.monotonic() + 1
            while time.monotonic() < until:
                assert reader.lag == 0


@pytest.mark.timeout(300)
def test_a_reader_and_a_writer_outlive_their_broker(broker, url, witness, topic):
    with open_writer(url) as writer, open_reader(url) as reader:
        writer.extend(numbered(100))
        writer.flush()
        assert list(reader.values()) == numbered(100)
        broker.kill()
        writer.extend(numbered(100, 100))
        broker.start()
        writer.flush()
        found = []
        for record in reader.follow(timeout=HUNG_SECONDS):
            found.append(record.value)
            if len(found) == 100:
                break
        assert found == numbered(100, 100)
    witness.check_numbered(topic, 200)


def test_a_writer_without_a_broker_says_so_when_it_flushes(broker, url):
    writer = open_writer(url, config={"message.timeout.ms": 2000})
    broker.kill()
    writer.append(b"x")
    with pytest.raises(BrokerError, match="do not answer"):
        writer.close()


def test_a_transaction_without_a_broker_is_the_brokers_error(broker, url, monkeypatch):
    monkeypatch.setattr(topic_writer, "COMMIT_SECONDS", 2.0)
    monkeypatch.setattr(topic_writer, "ABORT_SECONDS", 0.5)
    writer = open_writer(url, transactional=True, config={"message.timeout.ms": 2000})
    writer.extend([b"0"])
    broker.kill()
    with pytest.raises(BrokerError):
        writer.extend([b"1"])
    broker.start()


def test_ctrl_c_ends_a_commit_that_no_broker_answers(broker, url):
    writer = open_writer(url, transactional=True)
    writer.extend([b"0"])
    broker.pause()
    interrupt = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        writer.extend([b"1"])


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_too_few_replicas_are_told_and_nothing_is_lost(journal, broker, url, witness, topic, tmp_path):
    """The client itself says only that deliveries timed out."""
    with jlog.Writer(tmp_path / "other") as other:
        other.append(b"x")
        # What transactions and positions are kept in is made now, and so is the first broker's.
        before = Mirror(tmp_path / "other", witness.make(f"{topic}-before"))
        while not before.stats.records:
            before.step(timeout=0.1)
        before.close()
    with jlog.Writer(journal) as writer, Broker(tmp_path / "second", joins=broker) as second:
        table = f"jlog.mirror.{topic}.{jlog.Journal(journal).uuid}"
        witness.make(table, replicas=[1], cleanup_policy="compact")
        witness.make(topic, replicas=[1, 2], min_insync_replicas=2)
        mirror = Mirror(journal, url, config=SHORT)
        try:
            mirror.step()
            second.kill()
            writer.extend(numbered(10))
            # It may first hear of the broker that is gone alone, until the others know that it is.
            while "min.insync.replicas=2" not in mirror.stats.last_error:
                mirror.step(timeout=0.1)
            assert mirror.stats.records == 0
            second.start()
            while not mirror.stats.records:
                mirror.step(timeout=0.1)
        finally:
            mirror.close()
        witness.check_numbered(topic, 10)
        witness.delete(topic)
    # Until the cluster knows that the second broker is gone, it may put partitions of other tests there.
    wait_until(lambda: len(witness.admin.list_topics(timeout=HUNG_SECONDS).brokers) == 1)


# --- A broker that forgets a transaction ----------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_what_a_broker_has_left_open_is_not_sent_twice(broker, journal, url, witness, topic, monkeypatch):
    """It says that the transaction is complete, and has ended it in no partition, as it does where it is killed between its
    answer to a commit and that: docs/decisions/0006."""
    witness.make(topic, partitions=3)
    fill(journal, 3000)
    mirror = Mirror(journal, url)
    mirror.step(timeout=HUNG_SECONDS)
    fill(journal, 3000, 3000)
    monkeypatch.setattr(mirror.sink, "commit", lambda: mirror.sink._transactions.flush(lambda: None))
    mirror.step(timeout=HUNG_SECONDS)
    mirror.sink._transactions.drop()
    mirror.close()
    assert sum(map(len, witness.messages(topic))) == 3000
    note_complete(witness, mirror.sink.table)
    broker.kill()
    broker.start()
    Mirror(journal, url, until_end=True).run()
    assert sorted(int(one.value()) for one in witness.stream(topic)) == [*range(6000)]
    assert verify(journal, url).ok


def note_complete(witness, transactional_id):
    """Writes the newest row of a transaction once more into the coordinator's topic, with the state CompleteCommit."""
    topic, complete_commit = "__transaction_state", 4
    status_at = struct.calcsize(">hqhi")  # version of the row, producer id, epoch, and timeout
    (row,) = [one for one in witness.stream(topic) if transactional_id.encode() in one.key()][-1:]
    value = bytearray(row.value())
    value[status_at] = complete_commit
    # The brokers let only clients of this name write to topics of their own.
    producer = Producer({"bootstrap.servers": witness.address, "client.id": "__admin_client"})
    failed = []
    producer.produce(topic, bytes(value), row.key(), on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(HUNG_SECONDS) == 0
    assert failed == [None]


@pytest.mark.parametrize("way", ["the core", exhaustive.only("the Python client")])
def test_a_transactional_id_that_the_brokers_have_forgotten_is_told_and_costs_nothing(
    forgetful_broker, journal, monkeypatch, way
):
    if way != "the core":
        monkeypatch.setattr(clients, "library", lambda: None)
    witness = Witness(forgetful_broker.address)
    fill(journal, 10)
    said = []
    mirror = Mirror(journal, witness.url("topic"), on_event=said.append)
    try:
        moved(mirror, 10)
        wait_until(lambda: witness.messages("__transaction_state", committed=False)[0][-1].value() is None)
        fill(journal, 10, 10)
        moved(mirror, 20)
    finally:
        mirror.close()
    assert ["have forgotten the transactional id" in line for line in said] == [True], said
    assert witness.values("topic") == numbered(20)


def moved(flow, count):
    while flow.stats.records < count:
        flow.step(timeout=0.1)
