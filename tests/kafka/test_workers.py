"""Workers of a topic, by Kafka's share groups: each message goes to one of them, and is finished by itself."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict

import confluent_kafka
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka_broker import Broker

import jlog
import jlog.kafka
from patience import HUNG_SECONDS

COUNT = 20


@pytest.fixture
def group(topic):
    return f"group-{topic}"


def fill(witness, topic, count=COUNT, partitions=1):
    url = witness.make(topic, partitions=partitions)
    for partition in range(partitions):
        with jlog.open_writer(f"{url}?partition={partition}") as writer:
            writer.extend([b"%d" % number for number in range(count)], [b"k"] * count)
    return url


def finish_all(worker, count):
    """Takes and finishes so many messages; returns their values and attempts."""
    found = []
    while len(found) < count:
        tasks = worker.take(7, timeout=HUNG_SECONDS)
        assert tasks
        found += [(task.value, task.attempt) for task in tasks]
        worker.ack(tasks)
    return found


def configure(witness, group, setting, value):
    resource = ConfigResource(ResourceType.GROUP, group)
    resource.add_incremental_config(ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET))
    witness.admin.incremental_alter_configs([resource])[resource].result(HUNG_SECONDS)


def test_two_workers_share_the_messages_of_all_partitions(witness, topic, group):
    url = fill(witness, topic, partitions=2)
    with jlog.open_worker(url, group) as one, jlog.open_worker(url, group) as other:
        found = []
        while len(found) < 2 * COUNT:
            for worker in (one, other):
                tasks = worker.take(100, timeout=0.5)
                found += [(task.partition, task.sequence) for task in tasks]
                worker.ack(tasks)
    assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(COUNT)]


def test_what_failed_comes_again_and_what_was_rejected_does_not(witness, topic, group):
    url = fill(witness, topic, 4)
    with jlog.open_worker(url, group) as worker:
        tasks = worker.take(4, timeout=HUNG_SECONDS)
        assert [(task.value, task.key, task.attempt) for task in tasks] == [(b"%d" % i, b"k", 1) for i in range(4)]
        tasks[0].ack()
        tasks[0].nack()  # it is finished: this does nothing
        tasks[1].reject("broken")
        with pytest.raises(ZeroDivisionError), tasks[2]:
            1 / 0  # noqa: B018
        with tasks[3]:
            pass
        (again,) = worker.take(4, timeout=HUNG_SECONDS)
        assert (again.value, again.attempt) == (b"2", 2)
        again.ack()
        assert worker.take(timeout=0.5) == []


def test_what_a_closed_worker_had_comes_again(witness, topic, group):
    url = fill(witness, topic)
    with jlog.open_worker(url, group) as worker:
        first = worker.take(3, timeout=HUNG_SECONDS)
        first[0].ack()
    with pytest.raises(jlog.JournalClosed):
        first[1].ack()
    with jlog.open_worker(url, group) as worker:
        assert sorted(int(value) for value, _ in finish_all(worker, COUNT - 1)) == list(range(1, COUNT))


def test_the_next_messages_come_when_those_before_are_finished(witness, topic, group):
    url = fill(witness, topic, 2)
    with jlog.open_worker(url, group) as worker:
        tasks = worker.take(2, timeout=HUNG_SECONDS)
        with pytest.raises(jlog.JournalError, match="2 that this worker has"):
            worker.take(timeout=0)
        worker.ack(tasks)
        assert worker.take(timeout=0) == []


def test_a_lock_that_ran_out_is_told(witness, topic, group):
    url = fill(witness, topic, 1)
    configure(witness, group, "share.record.lock.duration.ms", "15000")
    with jlog.open_worker(url, group) as late:
        (task,) = late.take(timeout=HUNG_SECONDS)
        with jlog.open_worker(url, group) as other:
            (again,) = other.take(timeout=HUNG_SECONDS)
            assert again.attempt == 2
            with pytest.raises(jlog.LeaseLost) as lost:
                task.ack()
            assert lost.value.tasks == [task]
            again.ack()


def test_a_group_that_begins_at_the_end_sees_what_comes_later(witness, topic, group):
    url = fill(witness, topic)
    with pytest.raises(jlog.SubscriberNotFound):
        jlog.open_worker(url, group, create=False)
    with jlog.open_worker(url, group, start="end") as worker, jlog.open_writer(url) as writer:
        found = []
        until = time.monotonic() + HUNG_SECONDS
        while not found and time.monotonic() < until:  # it begins at the end as that is when the group has begun
            writer.append(b"late")
            writer.flush()
            found = worker.take(timeout=1)
        assert found[0].value == b"late"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"order": "key"}, "keeps no order of keys"),
        ({"dead_letters": "dead"}, "the brokers drop what is rejected"),
        ({"max_attempts": 3}, "share.delivery.count.limit"),
        ({"lease": 3}, "share.record.lock.duration.ms"),
        ({"start": 5}, "begins at 'begin' or 'end'"),
    ],
)
def test_what_share_groups_lack_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        jlog.open_worker("kafka://127.0.0.1:9/topic", "group", **options)


def test_run_calls_a_function_in_threads_until_stop_and_what_failed_comes_again(witness, topic, group):
    url = fill(witness, topic)
    attempts = defaultdict(list)
    with jlog.open_worker(url, group) as worker:

        def handle(task):
            attempts[task.value].append(task.attempt)
            if sum(map(len, attempts.values())) == COUNT + 1:
                worker.stop()
            if task.attempt == 1 and task.value == b"3":
                raise ValueError("once")

        worker.run(handle, threads=3)
        assert worker.take(timeout=0) == []  # it is stopped
    assert {value: len(found) for value, found in attempts.items()} == {b"%d" % i: 1 + (i == 3) for i in range(COUNT)}
    with jlog.open_worker(url, group) as worker:
        assert worker.take(timeout=1) == []


def test_run_gives_back_what_is_not_finished_after_its_grace(witness, topic, group):
    url = fill(witness, topic, 1)
    goes_on = threading.Event()
    with jlog.open_worker(url, group) as worker:

        def handle(task):
            worker.stop()
            goes_on.wait(HUNG_SECONDS)

        threading.Thread(target=worker.run, args=(handle,), kwargs={"grace": 0.1}).start()
        with jlog.open_worker(url, group) as other:
            (task,) = other.take(timeout=HUNG_SECONDS)
            task.ack()
        goes_on.set()


def test_coroutines_share_a_worker_with_a_codec(witness, topic, group):
    url = fill(witness, topic)
    found = []

    async def work(worker):
        async for task in worker.tasks_async():
            found.append(task.decoded)
            task.ack()
            if len(found) == COUNT:
                worker.stop()

    async def work_together():
        with jlog.open_worker(url, group, codec=jlog.typed.json(int)) as worker:
            await asyncio.gather(*(work(worker) for _ in range(3)))

    asyncio.run(work_together())
    assert sorted(found) == list(range(COUNT))


def test_a_partition_is_refused_and_so_is_a_delay(witness, topic, group):
    url = fill(witness, topic, 1)
    with pytest.raises(ValueError, match="leave \\?partition out"):
        jlog.open_worker(f"{url}?partition=0", group)
    with jlog.open_worker(url, group) as worker:
        (task,) = worker.take(timeout=HUNG_SECONDS)
        with pytest.raises(ValueError, match="cannot delay"):
            task.nack(delay=3)
        with pytest.raises(jlog.JournalError, match="cannot extend"):
            task.extend(3)
        task.ack()


def test_an_older_client_is_told(witness, topic, group, monkeypatch):
    url = fill(witness, topic, 1)
    monkeypatch.delattr(confluent_kafka, "ShareConsumer")
    with pytest.raises(jlog.JournalError, match="or newer"):
        jlog.open_worker(url, group)


class WithoutShareGroups(Broker):
    """Formats its storage as an older cluster has it."""

    def _format(self):
        self.format_anew("--feature", "share.version=0")


@pytest.mark.usefixtures("_jars")
def test_brokers_without_share_groups_are_told(tmp_path, topic, group):
    with WithoutShareGroups(tmp_path / "broker") as broker:
        url = f"kafka://{broker.address}/{topic}"
        jlog.kafka.create_journal(url)
        with jlog.open_worker(url, group) as worker, pytest.raises(jlog.JournalError, match="no share groups"):
            worker.take(timeout=HUNG_SECONDS)
