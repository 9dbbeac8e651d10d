"""Brokers that are behind, topics that vanish between two questions, and tables that are deleted: no flow is misled."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from kafka_broker import Broker

import jlog
from jlog.flow.ends import Retry
from jlog.kafka import BrokerError, Capture, Fenced, Mirror, Standby, TopicChanged, positions, verify
from jlog.kafka.client import topology
from jlog.kafka.client.cluster import Cluster, Topic
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.table import read_table
from jlog.kafka.client.url import parse
from jlog.kafka.ends.parts import Parts
from kafka.processes import fill, stored
from kafka.test_command import run
from kafka.test_topology import capture, values
from kafka.witness import Witness, numbered
from patience import wait_until


def moved(flow, count):
    while flow.stats.records < count:
        flow.step(timeout=0.1)


def run_once_answered(make):
    """Creates a flow and runs it, again and again where a broker that was asked first is away."""
    while True:
        with suppress(BrokerError):
            return make().run()


# --- Brokers that are behind ----------------------------------------------------------------------------------------


def test_a_table_is_read_to_the_end_that_was_acknowledged(witness, topic, url, monkeypatch):
    """A broker that has just become the leader first hands out less. Here the last row comes late."""
    witness.make(topic, cleanup_policy="compact")
    witness.produce(topic, [{"value": b'"old"', "key": b"row"}])
    monkeypatch.setattr(Cluster, "ends_of", lambda *_, **__: {(topic, 0): 2})
    late = threading.Timer(1.0, witness.produce, (topic, [{"value": b'"new"', "key": b"row"}]))
    late.start()
    assert read_table(Cluster(Settings(parse(url))), topic) == {"row": "new"}
    late.join()


def test_a_broker_that_knows_fewer_partitions_is_behind(witness, topic, url, journal, monkeypatch):
    """A topic never loses partitions: keys stay where they are."""
    witness.make(topic, partitions=3)
    fill(journal, 10)
    mirror = Mirror(journal, url)
    moved(mirror, 10)
    found = mirror.sink.cluster.topic(topic)
    fill(journal, 10, 10)
    monkeypatch.setattr(mirror.sink.cluster, "find", lambda _: Topic(topic, found.id, 2, found.replicas))
    moved(mirror, 20)
    mirror.close()
    assert mirror.stats.retries == 0
    assert verify(journal, url).compared == 20


@pytest.mark.parametrize("what", ["asking for the settings", "asking for the offsets"])
def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again(witness, topic, url, monkeypatch, what):
    answer, unknown = Cluster.answer, ["once", "twice"]

    def answered_late(self, future, asked, *more, **needs):
        if asked.startswith(what) and unknown:
            raise jlog.JournalNotFound(unknown.pop())
        return answer(self, future, asked, *more, **needs)

    monkeypatch.setattr(Cluster, "answer", answered_late)
    cluster = Cluster(Settings(parse(url)))
    with pytest.raises(jlog.JournalNotFound):
        cluster.config(topic)
    witness.make(topic, cleanup_policy="compact")
    unknown[:] = ["once", "twice"]
    assert cluster.config(topic)["cleanup.policy"] == "compact"
    assert cluster.ends_of([(topic, 0)]) == {(topic, 0): 0}
    assert not unknown


def test_a_topic_that_is_made_is_found_although_one_broker_does_not_know_it_yet(url, topic, monkeypatch):
    find, answers = Cluster.topic, [False, False, True, False]

    def in_turns(self, name):
        if answers and not answers.pop(0):
            raise jlog.JournalNotFound(name)
        return find(self, name)

    monkeypatch.setattr(Cluster, "topic", in_turns)
    found, made = Cluster(Settings(parse(url))).ensure(topic)
    assert (found.name, made) == (topic, True)


# --- A tail that the brokers have lost ------------------------------------------------------------------------------


class Unclean:
    """Three brokers, and a topic whose records an unclean election takes: one of its two replicas was away when they came."""

    def __init__(self, directory: Path) -> None:
        self.first = Broker(directory / "1").start()
        self.witness = Witness(self.first.address)
        self.topic = self.witness.unique("unclean")
        self.witness.produce(f"{self.topic}.other", [b""], transactions=1)  # the first broker coordinates all transactions
        self.second = Broker(directory / "2", joins=self.first).start()
        self.third = Broker(directory / "3", joins=self.second).start()
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        self.url = self.witness.make(self.topic, replicas=[2, 3], **config)

    def keep_from_one(self) -> None:
        """The records to come are in one replica alone."""
        self.third.kill()

    def elect(self) -> None:
        """Makes the replica without them the leader."""
        self.second.kill()
        self.third.start()

    def close(self) -> None:
        for broker in (self.third, self.second, self.first):
            broker.kill()


@pytest.fixture
def unclean(_jars, tmp_path):
    found = Unclean(tmp_path / "brokers")
    yield found
    found.close()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("more", "said", "skip_missing"), [(0, "have lost its tail", False), (20, "have other records there", True)]
)
def test_a_tail_that_an_unclean_election_has_lost_ends_a_capture(unclean, journal, more, said, skip_missing):
    """While it runs and at each start. Where the partition has got as many other records, its offsets alone do not show it."""
    unclean.witness.produce(unclean.topic, numbered(10))
    running = Capture(unclean.url, journal, skip_missing=skip_missing)
    moved(running, 10)
    unclean.keep_from_one()
    unclean.witness.produce(unclean.topic, numbered(5, 10), transactions=5)
    while positions(unclean.url, journal)[0].position < 16:  # after the end of the transaction
        running.step(timeout=0.1)
    unclean.elect()
    unclean.witness.produce(unclean.topic, numbered(more, 1000))
    with pytest.raises(TopicChanged, match=said):
        running.run()
    with pytest.raises(TopicChanged, match=said):
        run_once_answered(lambda: Capture(unclean.url, journal, until_end=True, skip_missing=skip_missing))
    assert values(journal) == sorted(numbered(15))


@pytest.mark.exhaustive
@pytest.mark.parametrize(("more", "said"), [(0, "have lost its tail"), (20, "have other records there")])
def test_a_tail_that_an_unclean_election_has_lost_ends_a_standby(unclean, journal, tmp_path, more, said):
    """The flow ends while it runs, and at each start."""
    jlog.Journal.create(journal)
    table = Settings(parse(unclean.url)).names.table(unclean.topic, jlog.Journal(journal).uuid)
    unclean.witness.make(table, replicas=[1], cleanup_policy="compact")

    mirror = Mirror(journal, unclean.url, standby=True)

    def send(count):
        fill(journal, count, sent := mirror.stats.records)
        moved(mirror, sent + count)

    send(10)
    running = Standby(unclean.url, tmp_path / "standby")
    moved(running, 10)
    unclean.keep_from_one()
    send(5)
    moved(running, 15)
    unclean.elect()
    send(more)
    with pytest.raises(TopicChanged, match=said):
        running.run()
    with pytest.raises(TopicChanged, match=said):
        run_once_answered(lambda: Standby(unclean.url, tmp_path / "standby", until_end=True))
    mirror.close()
    assert values(tmp_path / "standby") == sorted(numbered(15))


CHECKS_A_CLUSTER = """
import sys
from contextlib import suppress
from jlog.flow.ends import Retry
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import parse

at_once = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20}
cluster = Cluster(Settings(parse(sys.argv[1]), at_once))


def is_there():
    with suppress(Retry):
        cluster.check("topic")
        return True


while not is_there():
    pass
print("checked", flush=True)
while True:
    is_there()
"""


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_jars")
def test_a_broker_that_lists_no_brokers_ends_no_process(tmp_path):
    """This broker does not list itself either, since it is silent for longer than its controller waits. librdkafka aborts a
    process that asks for the cluster then."""
    with Broker(tmp_path, session_seconds=1, settings={"broker.heartbeat.interval.ms": "3000"}) as broker:
        command = [sys.executable, "-c", CHECKS_A_CLUSTER, f"kafka://{broker.address}/topic"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout.readline() == b"checked\n"
                begun = fencings(broker)
                wait_until(lambda: fencings(broker) >= begun + 3 or process.poll() is not None)
                assert process.poll() is None
            finally:
                process.kill()


def fencings(broker):
    return broker.log.read_text().count("Fencing broker 1 ")


# --- The watcher ----------------------------------------------------------------------------------------------------


def test_a_watcher_outlives_any_error(witness, topic, url, monkeypatch):
    witness.make(topic)
    monkeypatch.setattr(topology, "LOOK_EVERY", 0.05)
    monkeypatch.setattr(Cluster, "topics", lambda *_: 1 / 0)
    watcher = topology.Watcher(Settings(parse(url)), [topic])
    watcher.start()
    wait_until(lambda: watcher.latest)
    assert isinstance(watcher.latest.error, Retry)
    monkeypatch.undo()
    wait_until(lambda: topic in watcher.latest.topics)
    watcher.close()


# --- Topics that vanish ---------------------------------------------------------------------------------------------


def test_a_topic_that_vanishes_between_two_questions_is_left_out(witness, topic, broker, journal, monkeypatch):
    names = [f"{topic}.{letter}" for letter in "ab"]
    for name in names:
        witness.make(name)
        witness.produce(name, numbered(10))
    find = Parts.topics

    def then_delete(self):
        found = find(self)
        if witness.exists(names[1]):
            witness.delete(names[1])
        return found

    monkeypatch.setattr(Parts, "topics", then_delete)
    assert capture(f"kafka://{broker.address}/{topic}.*", journal).records == 10


def test_what_an_unknown_partition_means_depends_on_the_topic(witness, topic, url, journal):
    """The client says the same of a broker that is behind, and of a topic that was created again with fewer partitions."""
    witness.make(topic)
    fill(journal, 10)
    mirror = Mirror(journal, url)
    moved(mirror, 10)

    def meaning():
        unknown = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return mirror.sink._transactions.what_failed(unknown, "producing")

    assert isinstance(meaning(), Retry)
    witness.delete(topic)
    assert isinstance(gone := meaning(), TopicChanged)
    assert "was deleted. What was moved is not in it" in str(gone)
    witness.make(topic)
    assert isinstance(changed := meaning(), TopicChanged)
    assert "was deleted and created again" in str(changed)
    assert "positions set" in str(changed)
    mirror.close()


def test_a_pattern_of_many_topics_takes_few_requests(witness, topic, broker, journal, monkeypatch):
    """A request for each of a thousand topics would take longer than a transaction."""
    names = [f"{topic}.{number}" for number in range(30)]
    for name in names:
        witness.make(name)
        witness.produce(name, numbered(1))
    asked = []
    for question in ("topic", "topics", "_offsets_of"):
        kept = getattr(Cluster, question)
        monkeypatch.setattr(Cluster, question, lambda self, *a, kept=kept, **b: asked.append(1) or kept(self, *a, **b))
    # With a transaction for all of them: on a busy machine each message may come alone, and each commit asks once.
    found = Capture(f"kafka://{broker.address}/{topic}.*", journal, until_end=True, linger=5.0)
    begun = len(asked)
    assert found.run().records == 30
    assert len(asked) - begun < 30
    begun = len(asked)
    assert len(found.lag().parts) == 30
    assert len(asked) - begun < 30


def test_a_mirror_whose_table_is_deleted_ends(witness, topic, url, journal):
    """Otherwise the flow would not know any more where it is."""
    fill(journal, 10)
    mirror = Mirror(journal, url)
    moved(mirror, 10)
    witness.delete(mirror.sink.table)
    with pytest.raises(TopicChanged, match="where this mirror stores its position"):
        mirror.run()
    fill(journal, 10, 10)
    Mirror(journal, url, until_end=True).run()
    witness.check_numbered(topic, 20)


def test_a_topic_that_is_gone_with_its_table_is_told_at_the_next_start(witness, topic, url, journal):
    """Nothing is left there that says which records were in it."""
    fill(journal, 10)
    mirror = Mirror(journal, url, until_end=True)
    mirror.run()
    for name in (topic, mirror.sink.table):
        witness.delete(name)
    fill(journal, 10, 10)
    events: list[str] = []
    Mirror(journal, url, until_end=True, on_event=events.append).run()
    assert witness.values(topic) == numbered(10, 10)
    assert len(events) == 1
    assert "going on with record 10, where subscriber kafka:" in events[0]


# --- Positions ------------------------------------------------------------------------------------------------------


def test_a_position_that_is_set_fences_a_mirror_elsewhere(witness, topic, url, journal):
    fill(journal, 10)
    elsewhere = Mirror(journal, url)
    moved(elsewhere, 10)
    Mirror(journal, url, subscriber="another").set_position(5)
    fill(journal, 10, 10)
    with pytest.raises(Fenced, match="has taken over"):
        moved(elsewhere, 20)
    elsewhere.close()
    assert witness.values(topic) == numbered(10)
    Mirror(journal, url, until_end=True).run()
    assert witness.values(topic) == [*numbered(10), *numbered(15, 5)]


def test_a_restored_backup_of_a_capture_goes_on_where_it_was(witness, topic, url, journal, tmp_path):
    """The positions are in the journal, and so as old as its records."""
    witness.make(topic, partitions=2)
    for partition in (0, 1):
        witness.produce(topic, numbered(10, 100 * partition), partition=partition)
    capture(url, journal)
    jlog.Journal(journal).backup(tmp_path / "backup")
    for partition in (0, 1):
        witness.produce(topic, numbered(10, 100 * partition + 10), partition=partition)
    capture(url, journal)
    restored = tmp_path / "restored"
    shutil.copytree(tmp_path / "backup", restored)
    assert stored(url, restored) == {f"{topic}/0": 10, f"{topic}/1": 10}
    assert capture(url, restored).records == 20
    assert values(restored) == values(journal) == sorted([*numbered(20), *numbered(20, 100)])


def test_positions_without_room_end_a_capture_before_it_appends(witness, topic, broker, journal):
    """The names of topics are long, so that a few partitions suffice."""
    names = [f"{topic}.{number}.{'long' * 40}" for number in range(30)]
    for name in names:
        witness.make(name, partitions=40)
    witness.produce(names[0], numbered(10))
    with jlog.Writer(journal) as writer:
        writer.extend([b"there"], state={b"%d" % number: bytes(1000) for number in range(60)})
    with pytest.raises(jlog.JournalError, match="there is no room for the positions"):
        capture(f"kafka://{broker.address}/{topic}.*", journal)
    assert values(journal) == [b"there"]


def test_a_dry_run_warns_of_a_topic_with_times_of_its_own(witness, topic, url, journal):
    witness.make(topic, message_timestamp_type="LogAppendTime")
    fill(journal, 10)
    _, out, said = run("mirror", "to-kafka", "--dry-run", journal, url)
    assert "LogAppendTime" in out.decode() + said
