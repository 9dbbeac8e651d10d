"""A partition without a leader: it is told, and the other partitions go on."""

from __future__ import annotations

import threading
from contextlib import closing, contextmanager

import pytest
from confluent_kafka.admin import NewPartitions, NewTopic
from kafka_broker import Broker

import jlog
from jlog.flow.ends import Retry
from jlog.flow.metrics import FlowCollector
from jlog.kafka import Capture, Mirror, verify
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse
from kafka.processes import captured, fill, running
from kafka.witness import Witness, numbered
from patience import HUNG_SECONDS, wait_until

pytestmark = pytest.mark.timeout(300)


class Two:
    """Two brokers, and a topic with a partition at each of them, without replicas."""

    def __init__(self, directory):
        self.first = Broker(directory / "1").start()
        self.witness = Witness(self.first.address)
        self.topic = "leaderless"
        self.witness.produce("other", [b""], transactions=1)  # the first broker coordinates all transactions
        self.second = Broker(directory / "2", joins=self.first).start()
        self.url = self.make(self.topic, [[1], [2]])
        for partition in range(2):
            self.witness.produce(self.topic, numbered(10), partition=partition)

    def make(self, topic, replicas):
        """Creates a topic with a partition for each of these lists of brokers. Returns its URL."""
        new = NewTopic(topic, len(replicas), replica_assignment=replicas)
        self.witness.admin.create_topics([new])[topic].result(HUNG_SECONDS)
        return self.witness.url(topic)

    def grow(self, topic, replicas):
        """Adds partitions to the topic, and waits until they have leaders."""
        count = self.witness.partitions(topic) + len(replicas)
        new = NewPartitions(topic, count, replica_assignment=replicas)
        self.witness.admin.create_partitions([new])[topic].result(HUNG_SECONDS)
        wait_until(lambda: self.witness.has_leaders(topic, count))

    def close(self):
        for broker in (self.second, self.first):
            broker.kill()


@pytest.fixture(scope="module")
def module_brokers(_jars, tmp_path_factory):
    found = Two(tmp_path_factory.mktemp("brokers"))
    yield found
    found.close()


@pytest.fixture
def two(module_brokers):
    yield module_brokers
    if not module_brokers.second.is_running:
        module_brokers.second.start()


def leaderless(cluster, topic):
    """The partitions of which the brokers know that they have no leader; nothing while they may not have noticed."""
    try:
        return cluster.topic(topic).leaderless
    except Retry:
        return ()


def reason_of(two):
    return f"{two.url}: partition 1 of topic {two.topic} has no leader; the others are read"


@contextmanager
def watched(flow):
    with running(flow), closing(FlowCollector({"flow": flow})) as collector:
        yield collector


def test_a_capture_reads_the_other_partitions_and_says_so(two, tmp_path):
    said = []
    with watched(Capture(two.url, tmp_path / "copy", on_event=said.append)) as collector:
        wait_until(lambda: captured(tmp_path / "copy") == 20)
        two.second.kill()
        wait_until(lambda: collector.not_ready() == [f"flow: {reason_of(two)}"])
        two.witness.produce(two.topic, numbered(10, 10), partition=0)
        wait_until(lambda: captured(tmp_path / "copy") == 30)
        assert reason_of(two) in said
        two.second.start()
        two.witness.produce(two.topic, numbered(10, 10), partition=1)
        wait_until(lambda: captured(tmp_path / "copy") == 40)
        wait_until(lambda: not collector.not_ready())


def test_a_capture_begins_without_a_partition_that_it_knows_and_waits_for_its_end(two, tmp_path):
    Capture(two.url, tmp_path / "copy", until_end=True).run()
    two.second.kill()
    cluster = Cluster(Settings(parse(two.url)))
    wait_until(lambda: leaderless(cluster, two.topic))
    two.witness.produce(two.topic, [b"more"], partition=0)
    before = captured(tmp_path / "copy")
    again = Capture(two.url, tmp_path / "copy", until_end=True)
    with watched(again) as collector:
        # The record can be read before the capture has noted its commit, and says what it does without.
        wait_until(lambda: again.stats.records == 1)
        wait_until(lambda: collector.not_ready() == [f"flow: {reason_of(two)}"])
        assert captured(tmp_path / "copy") == before + 1
        assert again.lag().records == 0
        two.second.start()
        two.witness.produce(two.topic, [b"more"], partition=1)
        wait_until(lambda: not again.is_open)  # it has come to the end
    assert again.stats.records in (1, 2)  # the last one came before or after the end was asked for
    Capture(two.url, tmp_path / "copy", until_end=True).run()
    assert verify(tmp_path / "copy", two.url).ok


def test_a_capture_to_the_end_waits_for_partitions_that_it_has_never_read(two, tmp_path):
    """The first records of an added partition are not skipped either, whatever start says."""
    url = two.make("grown", [[2]])
    two.witness.produce("grown", numbered(10))
    Capture(url, tmp_path / "copy", until_end=True).run()
    two.grow("grown", [[1], [2]])
    for partition in (1, 2):
        two.witness.produce("grown", numbered(10, 10 * partition), partition=partition)
    two.second.kill()
    cluster = Cluster(Settings(parse(url)))
    wait_until(lambda: leaderless(cluster, "grown") == (0, 2))
    capture = Capture(url, tmp_path / "copy", until_end=True, start="end")
    thread = threading.Thread(target=capture.run)
    thread.start()
    wait_until(lambda: "partitions 0, 2 of topic grown have no leader" in capture.stats.problem)
    two.second.start()
    thread.join()
    with jlog.Reader(tmp_path / "copy") as reader:
        assert sorted(reader.values(), key=int) == numbered(30)


def test_a_mirror_says_which_partition_takes_no_record(two, tmp_path):
    fill(tmp_path / "journal", 10)
    table = f"jlog.mirror.{two.topic}.{jlog.Journal(tmp_path / 'journal').uuid}"
    two.witness.make(table, replicas=[1], cleanup_policy="compact")
    said = []
    mirror = Mirror(tmp_path / "journal", two.url, on_event=said.append)
    with watched(mirror) as collector:
        wait_until(lambda: mirror.stats.records == 10)
        two.second.kill()
        reason = f"flow: {two.url}: partition 1 of topic {two.topic} has no leader, and takes no record"
        wait_until(lambda: collector.not_ready() == [reason])
        assert reason.removeprefix("flow: ") in said
        two.second.start()
        wait_until(lambda: not collector.not_ready())
    assert jlog.Journal(tmp_path / "journal").next_sequence == 10
