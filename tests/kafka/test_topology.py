"""Topics and brokers that change under a flow, also while it is idle."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka.admin import NewPartitions
from kafka_broker import free_port
from prometheus_client import CollectorRegistry, generate_latest

import jlog
from jlog.flow.metrics import FlowCollector
from jlog.kafka import Capture, Mirror, TopicChanged, status, verify
from jlog.kafka.client.partitioner import partition_of_key
from jlog.kafka.ends.topic_sink import TopicSink
from kafka.processes import captured, fill, position, stored
from kafka.web import answer
from kafka.witness import Witness, numbered
from patience import HUNG_SECONDS, wait_until


def values(journal):
    with jlog.Reader(journal) as reader:
        return sorted(reader.values())


def add_partitions(witness, topic, count):
    witness.admin.create_partitions([NewPartitions(topic, count)])[topic].result(HUNG_SECONDS)
    wait_until(lambda: witness.partitions(topic) == count)


def capture(url, journal, **options):
    return Capture(url, journal, until_end=True, **options).run()


# --- Partitions -----------------------------------------------------------------------------------------------------


def test_an_added_partition_is_captured_while_it_runs(witness, topic, url, journal, processes):
    witness.make(topic)
    witness.produce(topic, numbered(100))
    running = processes("from-kafka", "--start", "end", url, journal)
    wait_until(lambda: stored(url, journal))
    add_partitions(witness, topic, 3)
    witness.produce(topic, numbered(1000, 100), partition=2)
    wait_until(lambda: captured(journal) == 1000)
    assert running.end() == (0, "")
    assert values(journal) == sorted(numbered(1000, 100))
    assert verify(journal, url).compared == 1000


def test_a_partition_added_meanwhile_begins_at_0(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, numbered(100))
    capture(url, journal, start="end")
    add_partitions(witness, topic, 2)
    witness.produce(topic, numbered(1000), partition=1)
    found = verify(journal, url)
    assert (found.ok, found.compared, found.not_captured) == (True, 0, 1000)
    assert status(journal, url).lag.records == 1000
    assert capture(url, journal, start="end").records == 1000
    assert verify(journal, url).ok


def test_removed_records_of_an_added_partition_are_told(witness, topic, url, journal):
    """The capture does not begin with the records that retention has left."""
    witness.make(topic)
    capture(url, journal)
    add_partitions(witness, topic, 2)
    witness.produce(topic, numbered(1000), partition=1)
    witness.remove_before(topic, 400, partition=1)
    with pytest.raises(jlog.PositionLost, match="offsets 0 to 399 of partition 1"):
        capture(url, journal)
    stats = capture(url, journal, skip_missing=True)
    assert (stats.missing, stats.records) == (400, 600)


# --- Topics ---------------------------------------------------------------------------------------------------------


def test_an_idle_capture_ends_when_its_topic_is_deleted(witness, topic, url, journal, processes):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    running = processes("from-kafka", url, journal)
    wait_until(lambda: captured(journal) == 10)
    witness.delete(topic)
    code, said = running.wait()
    assert (code, "was deleted" in said) == (1, True)


def test_an_idle_mirror_ends_when_its_topic_is_deleted(witness, topic, url, journal, processes):
    fill(journal, 10)
    running = processes("to-kafka", journal, url)
    wait_until(lambda: position(journal) == 10)
    witness.delete(topic)
    code, said = running.wait()
    assert (code, "was deleted" in said) == (1, True)


def test_an_idle_capture_ends_when_its_topic_is_remade(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    running = Capture(url, journal)
    while running.stats.records < 10:
        running.step(timeout=0.1)
    witness.delete(topic)
    witness.make(topic)
    with pytest.raises(TopicChanged):
        running.run()


def test_topics_of_a_pattern_come_and_go(witness, topic, broker, journal, processes):
    first, second, left_out = f"{topic}.a", f"{topic}.b", f"{topic}.test"
    witness.make(first)
    witness.produce(first, numbered(10))
    url = f"kafka://{broker.address}/{topic}.*"
    running = processes("from-kafka", "--start", "end", "--exclude", "*.test", url, journal)
    wait_until(lambda: stored(url, journal))
    for name in (left_out, second):
        witness.make(name)
        witness.produce(name, numbered(20, 100))
    wait_until(lambda: captured(journal) == 20)
    witness.delete(first)
    wait_until(lambda: list(stored(url, journal)) == [f"{second}/0"])
    witness.produce(second, numbered(5, 200))
    wait_until(lambda: captured(journal) == 25)
    code, said = running.end()
    assert (code, f"{first} was deleted" in said) == (0, True)
    assert values(journal) == sorted(numbered(20, 100) + numbered(5, 200))


def test_a_topic_that_was_left_out_for_a_while_goes_on_where_it_was(witness, topic, broker, journal):
    names = [f"{topic}.a", f"{topic}.b"]
    url = f"kafka://{broker.address}/{topic}.*"
    for name in names:
        witness.make(name)
        witness.produce(name, numbered(10))
    capture(url, journal)
    witness.produce(names[0], numbered(10, 10))
    capture(url, journal, exclude=[names[1]])
    witness.produce(names[1], numbered(10, 10))
    capture(url, journal)
    assert sorted(values(journal)) == sorted(numbered(20) * 2)


# --- Brokers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["to-kafka", "from-kafka"])
def test_a_dead_broker_is_seen_while_nothing_moves(fragile_broker, journal, processes, direction):
    witness = Witness(fragile_broker.address)
    topic = witness.unique(direction)
    url = witness.make(topic)
    port = free_port()
    if direction == "to-kafka":
        fill(journal, 10)
        running = processes("to-kafka", "--metrics", f"127.0.0.1:{port}", journal, url)
        wait_until(lambda: position(journal) == 10)
    else:
        witness.produce(topic, numbered(10))
        running = processes("from-kafka", "--metrics", f"127.0.0.1:{port}", url, journal)
        wait_until(lambda: captured(journal) == 10)
    wait_until(lambda: answer(port, "/readyz") == (200, "ok\n"))
    fragile_broker.kill()
    wait_until(lambda: answer(port, "/readyz")[0] == 503)
    text = answer(port, "/metrics")[1]
    assert 'up{mirror="' in text
    assert [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("jlog_mirror_up{")] == ["0.0"]
    wait_until(lambda: " 0.0" not in next(x for x in answer(port, "/metrics")[1].splitlines() if "retries_total{" in x))
    assert answer(port, "/healthz") == (200, "ok\n")
    fragile_broker.start()
    wait_until(lambda: answer(port, "/readyz") == (200, "ok\n"))
    code, said = running.end()
    assert (code, "trying again" in said) == (0, True)


def test_an_answer_waits_for_no_broker(journal, url, monkeypatch):
    """A lag that never comes holds up the thread that asks for it, and not the answers."""
    fill(journal, 10)
    mirror = Mirror(journal, url)
    wait_until(mirror.step)
    asked, answered = threading.Event(), threading.Event()
    monkeypatch.setattr(mirror, "lag", lambda: asked.set() or answered.wait())
    registry, collector = CollectorRegistry(), FlowCollector({"mirror": mirror})
    registry.register(collector)
    wait_until(asked.is_set)
    assert 'jlog_mirror_up{mirror="mirror"} 1.0' in generate_latest(registry).decode()
    assert collector.not_ready() == []
    collector.close()
    monkeypatch.undo()
    answered.set()
    mirror.close()


def test_the_lag_of_each_partition_is_told(witness, topic, url, journal, processes):
    witness.make(topic, partitions=2)
    witness.produce(topic, numbered(10))
    port = free_port()
    running = processes("from-kafka", "--rate", 1, "--metrics", f"127.0.0.1:{port}", url, journal)

    def lags():
        lines = answer(port, "/metrics")[1].splitlines()
        return [line.rpartition("}")[2].strip() for line in lines if line.startswith("jlog_mirror_partition_lag_records{")]

    wait_until(lambda: len(lags()) == 2)
    assert lags()[1] == "0.0"
    assert 0 < float(lags()[0]) <= 10
    running.end()


# --- Comparing ------------------------------------------------------------------------------------------------------


def test_records_of_others_are_counted_by_verify(witness, topic, url, journal):
    witness.make(topic)
    witness.produce(topic, numbered(10))
    capture(url, journal)
    fill(journal, 3)
    found = verify(journal, url)
    assert (found.ok, found.compared, found.foreign) == (True, 10, 3)


@pytest.mark.parametrize("direction", ["mirror", "capture"])
def test_times_of_a_log_append_time_topic_are_not_compared(witness, topic, url, journal, direction):
    from jlog.kafka import Mirror

    witness.make(topic, message_timestamp_type="LogAppendTime")
    if direction == "mirror":
        with jlog.Writer(journal) as writer:
            writer.extend(numbered(10), timestamps_us=[round((time.time() - 3600) * 1e6)] * 10)
        Mirror(journal, url, until_end=True).run()
    else:
        witness.produce(topic, numbered(10))
        capture(url, journal)
    found = verify(journal, url)
    assert (found.ok, found.compared) == (True, 10)
    assert found.times_compared == (direction == "capture")


# --- Journals -------------------------------------------------------------------------------------------------------


def test_positions_of_a_thousand_partitions_have_room(witness, topic, broker, journal):
    names = [f"{topic}.{number}" for number in range(2)]
    for name in names:
        witness.make(name, partitions=500)
        witness.produce(name, numbered(10), partition=499)
    url = f"kafka://{broker.address}/{','.join(names)}"
    assert capture(url, journal).records == 20
    witness.produce(names[1], numbered(10), partition=7)
    assert capture(url, journal).records == 10
    assert len(stored(url, journal)) == 1000


def test_a_full_journal_holds_a_capture_back(witness, topic, url, journal, processes):
    """The capture goes on once there is room."""
    witness.make(topic)
    witness.produce(topic, [b"%04d" % n + bytes(1000) for n in range(1000)], transactions=100)
    retention = jlog.Retention(limit_bytes=200_000)
    jlog.Journal.create(journal, segment_bytes=20_000, retention=retention)
    with jlog.Reader(journal, "reader") as reader:
        running = processes("from-kafka", "--rate", 2000, url, journal)
        read = 0
        while read < 1000:
            for _ in reader.follow(timeout=0.1):
                read += 1
                if read % 100 == 0:
                    reader.commit()
            reader.commit()
            assert running.is_running
        code, said = running.end()
    assert (code, "the flow waits for room" in said) == (0, True)


# --- Keys -----------------------------------------------------------------------------------------------------------


def test_keys_change_their_partition_at_one_record(witness, topic, url, journal, processes):
    """All records before it went by the old number of partitions, and all after it by the new one."""
    witness.make(topic, partitions=2)
    with jlog.Writer(journal) as writer:
        writer.extend(numbered(40_000), keys=[b"%d" % (n % 97) for n in range(40_000)])
    running = processes("to-kafka", "--rate", 8000, journal, url)
    wait_until(lambda: position(journal) > 4000)
    add_partitions(witness, topic, 5)
    wait_until(lambda: position(journal) == 40_000)
    code, said = running.end()
    assert (code, "has 5 partitions now, and had 2" in said) == (0, True)
    found = verify(journal, url)
    assert (found.ok, found.compared) == (True, 40_000)
    by_two, by_five = ({int(one.value()) for one in witness.stream(topic) if placed(one, count)} for count in (2, 5))
    assert by_two | by_five == set(range(40_000))
    assert max(by_two - by_five) < min(by_five - by_two)


def test_partitions_added_while_a_mirror_begins_do_not_end_it(witness, topic, url, journal, monkeypatch):
    witness.make(topic)
    fill(journal, 10)
    own_row = TopicSink._own_row

    def then_add(self, found, known):
        if known.partitions == 1:
            add_partitions(witness, topic, 3)
        return own_row(self, found, known)

    monkeypatch.setattr(TopicSink, "_own_row", then_add)
    said = []
    assert Mirror(journal, url, until_end=True, on_event=said.append).run().records == 10
    assert "has 3 partitions now, and had 1" in said[0]
    assert verify(journal, url).ok


def placed(message, partitions):
    """Returns whether the message is where its key belongs with so many partitions."""
    return partition_of_key(message.key(), partitions, "murmur2_random") == message.partition()
