"""Shares out the messages of a topic by Kafka's share groups (KIP-932), as jlog.Worker shares out the records of a journal."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from jlog.errors import JournalError, LeaseLost, SubscriberNotFound
from jlog.kafka.client.cluster import ANSWER_SECONDS, Cluster
from jlog.kafka.client.errors import BrokerError, code_of, told
from jlog.kafka.client.records import KafkaRecord
from jlog.kafka.client.settings import Config, Settings
from jlog.kafka.client.url import parse
from jlog.kafka.topic.partition import Opened
from jlog.positions.names import check_name, check_new_name
from jlog.system.arguments import check_count, check_timeout
from jlog.typed.codec import Codec, Decoder
from jlog.working.taking import Taking

_log = logging.getLogger("jlog")

SLICE_SECONDS = 0.2  # longest wait in one piece, so that Ctrl-C is heard, and an ack in another thread waits no longer
START, ISOLATION = "share.auto.offset.reset", "share.isolation.level"  # settings of a share group
STARTS = {"begin": "earliest", "end": "latest"}
ACCEPT, RELEASE, REJECT = 1, 2, 3
# Options of jlog.Worker that Kafka has no counterpart of, or that belong to the group at the brokers.
LACKING = {
    "order": "a share group keeps no order of keys",
    "backoff": "a share group delays nothing",
    "dead_letters": "the brokers drop what is rejected",
    "max_attempts": "set the group's share.delivery.count.limit",
    "lease": "set the group's share.record.lock.duration.ms",
    "window": "set the group's share.partition.max.record.locks",
    "lock_timeout": "there is no lock to wait for",
}


class TopicTask(KafkaRecord):
    """A message that this worker has taken, and that no other one gets until the group's lock of it runs out."""

    __slots__ = ("_worker", "attempt")

    def __init__(self, message: Any, worker: TopicWorker) -> None:
        super().__init__(message, decoder=worker.decoder)
        self._worker = worker
        self.attempt: int = message.delivery_count() or 1

    def begin(self) -> None:
        """Does nothing: the brokers count each handing out."""

    def ack(self, *, durable: bool = False) -> None:  # noqa: ARG002 - the brokers have it when this returns
        """Finishes the message. A second call does nothing. Raises LeaseLost if its lock has run out meanwhile."""
        self._worker.end([self], ACCEPT)

    def nack(self, *, delay: float | None = None, reason: str = "") -> None:  # noqa: ARG002 - the brokers keep no reason
        """Gives the message back after a failed attempt, to be handed out again at once."""
        if delay is not None:
            raise ValueError(
                "a share group of Kafka cannot delay a message; leave delay out, or mirror the topic into a journal"
            )
        self._worker.end([self], RELEASE)

    def release(self) -> None:
        """Does what nack() does: the brokers count each handing out."""
        self._worker.end([self], RELEASE)

    def reject(self, reason: str = "") -> None:  # noqa: ARG002 - the brokers keep no reason
        """Finishes the message for good, without success. The brokers keep no dead letter."""
        self._worker.end([self], REJECT)

    def extend(self, lease_seconds: float) -> NoReturn:
        raise JournalError(
            f"the client cannot extend a lock by {lease_seconds} s; set share.record.lock.duration.ms of the group to the time "
            "that the work needs"
        )

    def __enter__(self) -> TopicTask:  # noqa: PYI034
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.ack()
            return
        self.release_quietly()

    def release_quietly(self) -> None:
        """Does what release() does. Where that fails the brokers give the message back, once its lock has run out."""
        with suppress(JournalError, OSError):
            self.release()


class TopicWorker(Opened, Taking[TopicTask]):
    """One of many workers that share the share group `name` of the topic at `url`, all of its partitions. Each message goes to
    one of them at a time, and is finished by itself.

    The brokers lock a message for the worker that has it, for share.record.lock.duration.ms of the group (30 s). A message
    whose lock has run out, or whose worker died, comes again, until share.delivery.count.limit (5) is reached. The next
    messages are fetched once all those before are finished, also by other threads. Until then take() and tasks() raise
    JournalError, while run() and coroutines wait.

    start: "begin" or "end", where a new group begins.
    create: False raises SubscriberNotFound for a group that no TopicWorker has opened before.
    codec: decodes messages, as a Worker's: `task.decoded` is an object.
    config, config_file: settings of librdkafka.
    others: options of jlog.Worker; a ValueError says what Kafka has in their place.

    After a fork the child's raises JournalClosed. It cannot be pickled.
    """

    _kind = "worker"

    def __init__(
        self,
        url: str,
        name: str,
        *,
        start: str = "begin",
        create: bool = True,
        codec: Codec | None = None,
        config: Config = None,
        config_file: str | os.PathLike[str] | None = None,
        **others: Any,
    ) -> None:
        at = parse(url)
        if at.partition is not None:
            raise ValueError(f"{url}: a share group takes from all partitions of a topic; leave ?partition out")
        for option, value in others.items():
            if option not in LACKING:
                raise TypeError(f"a worker of a topic has no option {option!r}")
            if value is not None and (option, value) != ("order", "any"):
                raise ValueError(f"{url}: {option}={value!r} is for journals: {LACKING[option]}")
        if start not in STARTS:
            raise ValueError(f"{url}: a share group begins at 'begin' or 'end', not at {start!r}")
        super().__init__(at)
        self.name = check_name(name, "subscriber")
        self.decoder = None if codec is None else Decoder(codec, self.path)
        self._topic = at.topic
        self._settings = Settings(at, config, config_file)
        self._lock = threading.Condition(threading.Lock())  # the client takes one call at a time
        self._fetched: deque[Any] = deque()  # messages that the brokers have locked for us, and that nobody has taken
        self._held: set[TopicTask] = set()
        self._source: Any = _Source(self)
        cluster = Cluster(self._settings)
        cluster.topic(self._topic)
        self._begin(cluster, start, create)
        self._client = self._open()

    # --- The group --------------------------------------------------------------------------------------------------

    def _begin(self, cluster: Cluster, start: str, create: bool) -> None:
        """Tells the brokers where the group begins, unless somebody has."""
        group = ConfigResource(ResourceType.GROUP, self.name)
        found = cluster.answer(
            cluster.ask("describe_configs", [group])[group], "asking for a group", needs=f"DescribeConfigs on group {self.name}"
        )
        if START not in found:
            raise _without_share_groups(self.path)
        if not found[START].is_default:
            return
        if not create:
            raise SubscriberNotFound(f"{self.path} has no share group {self.name!r}, and none was to be created")
        check_new_name(self.name, "subscriber")
        for setting, value in ((START, STARTS[start]), (ISOLATION, "read_committed")):
            group.add_incremental_config(ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET))
        answers = cluster.ask("incremental_alter_configs", [group])
        cluster.answer(answers[group], "creating a group", needs=f"AlterConfigs on group {self.name}")

    def _open(self) -> Any:
        if not hasattr(confluent_kafka, "ShareConsumer"):
            raise JournalError(
                f"workers of a topic need confluent-kafka 2.16 or newer, and {confluent_kafka.version()} is installed: "
                "pip install -U 'pyjlog[kafka]'"
            )
        with told("the settings", self._settings):
            client = confluent_kafka.ShareConsumer(self._settings.for_share_group(self.name))
            client.subscribe([self._topic])
        return client

    def __repr__(self) -> str:
        return f"<jlog.kafka.TopicWorker {self.path!r} {self.name}>"

    @property
    def path(self) -> str:
        """URL of the topic."""
        return self._url

    # --- Taking -----------------------------------------------------------------------------------------------------

    def take(self, max_records: int = 1, timeout: float | None = None) -> list[TopicTask]:
        """Takes at least one message, and at most `max_records`. The list is empty only if none came within `timeout` seconds
        (None: waits for ever). Raises JournalError where the next messages have to be fetched, and some before are not
        finished."""
        check_count("max_records", max_records)
        check_timeout("timeout", timeout)
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            left = SLICE_SECONDS if until is None else max(0.0, min(SLICE_SECONDS, until - time.monotonic()))
            tasks = self.next_tasks(max_records, left)
            if tasks or self._source.stopped or (until is not None and time.monotonic() >= until):
                return tasks

    def next_tasks(self, most: int, seconds: float, *, waits: bool = False) -> list[TopicTask]:
        """Takes messages that have been fetched, or fetches some. waits: waits where others have to be finished before."""
        with self._lock:
            self._check_open()
            if waits and self._held and not self._fetched:
                self._lock.wait(seconds)
            elif not self._fetched:
                self._fetch(seconds)
            tasks = [TopicTask(self._fetched.popleft(), self) for _ in range(min(most, len(self._fetched)))]
            self._held.update(tasks)
            return tasks

    def _fetch(self, seconds: float) -> None:
        if self._held:
            raise JournalError(
                f"{self.path}: Kafka hands out the next messages once those before are finished; ack, nack or reject the "
                f"{len(self._held)} that this worker has"
            )
        with told("taking messages", self._settings, f"Read on topic {self._topic} and on group {self.name}"):
            try:
                found = self._client.poll(seconds)
            except KafkaException as error:
                if code_of(error) == KafkaError.UNSUPPORTED_VERSION:
                    raise _without_share_groups(self.path) from None
                raise
            for message in found:
                if message.error() is None:
                    self._fetched.append(message)
                elif not message.error().retriable():
                    raise KafkaException(message.error())

    # --- Finishing --------------------------------------------------------------------------------------------------

    def ack(self, tasks: Iterable[TopicTask], *, durable: bool = False) -> None:  # noqa: ARG002
        """Finishes these tasks. Raises LeaseLost with those of each partition in which the lock of one had run out: the brokers
        take all or none of a partition, and hand them out again."""
        self.end(list(tasks), ACCEPT)

    def end(self, tasks: list[TopicTask], kind: int) -> None:
        """Ends these tasks in one way, those that are still held."""
        with self._lock:
            self._check_open()
            ending = [task for task in tasks if task in self._held]
            if not ending:
                return
            with told("finishing messages", self._settings):
                self._lock.notify_all()
                for task in ending:
                    self._held.discard(task)
                    self._client.acknowledge_offset(task.topic, task.partition, task.sequence, kind)
                answers = self._client.commit_sync(ANSWER_SECONDS)
                refused = {at.partition: error for at, error in answers.items() if error is not None}
                for error in refused.values():
                    if code_of(error) != KafkaError.INVALID_RECORD_STATE:
                        raise error
            if not refused:
                return
            lost = [task for task in ending if task.partition in refused]
            raise LeaseLost(
                f"{self.path}: the locks of {len(lost)} messages ran out before they were finished; set "
                f"share.record.lock.duration.ms of the group {self.name!r} to a longer time, or take fewer at once",
                lost,
            )

    def failed(self, _source: _Source, task: TopicTask, error: BaseException) -> None:
        """Gives back a message whose function has raised."""
        try:
            task.nack(reason=str(error))
        except (JournalError, OSError) as lost:
            _log.warning("%s", lost)

    def close(self) -> None:
        """Gives back what this worker has, and leaves the group. A second close does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._pid != os.getpid():
                return  # a client does not survive a fork
            for message in self._fetched:
                self._client.acknowledge(message, RELEASE)
            for task in self._held:
                self._client.acknowledge_offset(task.topic, task.partition, task.sequence, RELEASE)
            with told("closing", self._settings):
                self._client.close()


class _Source:
    """The source of tasks for run() and for the coroutines of a worker."""

    def __init__(self, worker: TopicWorker) -> None:
        self.policy = worker
        self.stopped = False

    def ring(self) -> None:
        """Does nothing: nobody waits for longer than a slice."""

    def take(self, most: int, deadline: Any, interrupt: Any = None) -> list[TopicTask]:
        """Takes at least one message, unless the deadline is now. Waits where those before are not finished."""
        while not self.stopped and not (interrupt is not None and interrupt.raised):
            left = deadline.left()
            tasks = self.policy.next_tasks(most, SLICE_SECONDS if left is None else 0.0, waits=True)
            if tasks or left is not None:
                return tasks
        return []


def _without_share_groups(path: str) -> BrokerError:
    return BrokerError(
        f"{path}: the brokers have no share groups: use Kafka 4.2 or newer with the feature share.version=1, or mirror the "
        "topic into a journal (`jlogtool mirror from-kafka`), and share out that"
    )
