"""Subscribers of a topic: consumer groups, whose committed offset is the position, and the registration of their names."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from jlog.errors import SubscriberBusy, SubscriberNotFound
from jlog.kafka.client.cluster import ANSWER_SECONDS
from jlog.kafka.client.errors import BrokerError, PassingBrokerError, is_without_group, told
from jlog.kafka.topic.partition import Partition

SESSION_SECONDS = 10  # seconds until the broker gives away the name of a process that died
JOIN_SECONDS = 30.0
POLL_SECONDS = 0.1
# Errors while the coordinator of a group is being found, or loads its state.
NOT_YET = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
)
OF_TOPIC = "jlog.topic="  # metadata of an offset: the topic's id comes after it
NOT_A_MEMBER = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS)


Result = TypeVar("Result")


def _patiently(call: Callable[[], Result]) -> Result:
    """Asks again for a while where the coordinator is not ready yet."""
    until = time.monotonic() + ANSWER_SECONDS
    while True:
        try:
            return call()
        except PassingBrokerError as error:
            if error.code not in NOT_YET or time.monotonic() > until:
                raise
        time.sleep(0.1)


def busy(partition: Partition, name: str, why: str = "") -> SubscriberBusy:
    return SubscriberBusy(
        f"{partition.url}: subscriber {name!r} is read by another{why}, which has its name alone until it closes; after a "
        f"crash it is free within {SESSION_SECONDS} s"
    )


def not_found(partition: Partition, name: str, there: Iterable[str]) -> SubscriberNotFound:
    return SubscriberNotFound(f"{partition.url} has no subscriber {name!r}; there: {', '.join(there) or 'none'}")


# --- Positions ------------------------------------------------------------------------------------------------------


def consumer_of(partition: Partition, name: str | None) -> Consumer:
    """Creates a consumer of the group, which does not join it."""
    with told("the settings", partition.settings):
        group = {} if name is None else {"group_id": name}
        return Consumer(partition.settings.for_consumer(**group))


def committed(consumer: Consumer, partition: Partition, name: str) -> int | None:
    """Returns the committed offset; None where the group has none for this partition. Raises TopicChanged where it belongs to
    an earlier topic."""

    def ask() -> Any:
        with told("asking for a group's position", partition.settings, f"Read on group {name}"):
            try:
                (at,) = consumer.committed([TopicPartition(partition.name, partition.number)], ANSWER_SECONDS)
            except KafkaException:
                said = consumer.poll(0)
                if said is not None and is_without_group(said.error()):  # the call itself only times out
                    raise KafkaException(said.error()) from None
                raise
            if at.error is not None:
                raise KafkaException(at.error)
            return at

    at = _patiently(ask)
    if at.offset == OFFSET_INVALID:
        return None
    metadata = at.metadata or ""  # other tools have their own
    if metadata.startswith(OF_TOPIC) and metadata != OF_TOPIC + partition.topic.id:
        raise partition.changed()
    return int(at.offset)


def commit(consumer: Consumer, partition: Partition, name: str, offset: int) -> None:
    """Commits the offset, with the topic's id, since an offset means nothing in another topic. Returns when the brokers have
    it."""
    at = TopicPartition(partition.name, partition.number, offset, OF_TOPIC + partition.topic.id)

    def ask() -> None:
        with told("committing a position", partition.settings, f"Read on group {name}"):
            (done,) = consumer.commit(offsets=[at], asynchronous=False)
            if done.error is not None:
                raise KafkaException(done.error)

    try:
        _patiently(ask)
    except BrokerError as error:
        if error.code in NOT_A_MEMBER:
            raise busy(partition, name, " consumer, a member of the group") from None
        raise


def subscribers_of(partition: Partition) -> dict[str, int]:
    """Returns the groups that have committed an offset in this partition."""
    names = [name for name in _group_names(partition) if not name.startswith(_registration(partition, ""))]
    asked = {name: _ask_position(partition, name) for name in names}  # all in parallel, since a cluster may have many
    found = {name: _position_of(partition, name, asked[name]) for name in sorted(names)}
    return {name: offset for name, offset in found.items() if offset is not None}


def _ask_position(partition: Partition, name: str) -> Any:
    wanted = ConsumerGroupTopicPartitions(name, [TopicPartition(partition.name, partition.number)])
    return partition.cluster.ask("list_consumer_group_offsets", [wanted])[name]


def _position_of(partition: Partition, name: str, asked: Any) -> int | None:
    first = iter([asked])

    def ask() -> Any:
        future = next(first, None) or _ask_position(partition, name)
        return partition.cluster.answer(future, f"asking for the position of group {name}")

    for at in _patiently(ask).topic_partitions:
        if at.error is None and at.offset != OFFSET_INVALID:
            return int(at.offset)
    return None


def _group_names(partition: Partition) -> list[str]:
    future = partition.cluster.ask("list_consumer_groups")
    return [group.group_id for group in partition.cluster.answer(future, "listing groups").valid]


def remove(partition: Partition, name: str) -> None:
    """Removes the whole group, with its offsets in other topics too."""

    def ask() -> None:
        answers = partition.cluster.ask("delete_consumer_groups", [name])
        partition.cluster.answer(answers[name], f"deleting group {name}", needs=f"Delete on group {name}")

    _patiently(ask)


# --- Names ----------------------------------------------------------------------------------------------------------


def _registration(partition: Partition, name: str) -> str:
    """Names the group that registers a reader. It is not the subscriber's own group: that one has offsets of all partitions,
    which its coordinator would assign to its members."""
    return partition.settings.names.registration(partition.name, partition.number, name)


def is_busy(partition: Partition, name: str) -> bool:
    return bool(_members(partition, _registration(partition, name)))


def _members(partition: Partition, group: str) -> list[Any]:
    def ask() -> list[Any]:
        answers = partition.cluster.ask("describe_consumer_groups", [group])
        needs = f"Read on group {group}"
        return list(partition.cluster.answer(answers[group], f"asking for group {group}", needs=needs).members)

    try:
        return _patiently(ask)
    except PassingBrokerError as error:
        if error.code == KafkaError.GROUP_ID_NOT_FOUND:
            return []
        raise


class Registration:
    """Holds a subscriber's name until close(), or until this process dies or does not answer for SESSION_SECONDS. If two ask at
    the same time, both may be refused. A thread answers the brokers meanwhile."""

    def __init__(self, partition: Partition, name: str) -> None:
        self._partition = partition
        self._name = name
        self._group = _registration(partition, name)
        self._joined = False
        self._lost = False
        self._closing = False
        if _members(partition, self._group):
            raise busy(partition, name, " Reader")
        conf = partition.settings.for_consumer(
            group_id=self._group,
            session_timeout_ms=SESSION_SECONDS * 1000,
            heartbeat_interval_ms=SESSION_SECONDS * 1000 // 4,
            max_poll_interval_ms=86_400_000,
        )
        with told("the settings", partition.settings):
            self._consumer = Consumer(conf)
        try:
            self._join()
        except BaseException:
            self._consumer.close()
            raise
        self._thread = threading.Thread(target=self._answer, name=f"jlog {self._group}", daemon=True)
        self._thread.start()

    def _join(self) -> None:
        with told("registering a reader", self._partition.settings, f"Read on group {self._group}"):
            self._consumer.subscribe([self._partition.name], on_assign=self._assigned, on_lost=self._is_lost)
            until = time.monotonic() + JOIN_SECONDS
            while not self._joined:
                message = self._consumer.poll(0.1)
                if message is not None and message.error() is not None and not message.error().retriable():
                    raise KafkaException(message.error())
                if time.monotonic() > until:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if len(_members(self._partition, self._group)) > 1:
            raise busy(self._partition, self._name, " Reader")

    def _assigned(self, consumer: Consumer, _partitions: Any) -> None:
        consumer.assign([])  # it is a member, and reads nothing
        self._joined = True

    def _is_lost(self, _consumer: Consumer, _partitions: Any) -> None:
        self._lost = True

    def _answer(self) -> None:
        while not self._closing and not self._lost:
            # The client tries again by itself; _is_lost hears of a lost session.
            with suppress(KafkaException):
                self._consumer.poll(POLL_SECONDS)

    def check(self) -> None:
        """Raises SubscriberBusy where the name may have been given to another process."""
        if self._lost:
            raise busy(self._partition, self._name, " Reader, since this one did not answer for too long")

    def close(self) -> None:
        self._closing = True
        self._thread.join()
        self._consumer.close()
