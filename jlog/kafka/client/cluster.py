"""Finds, creates and watches topics at their brokers. Every request has a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from jlog.errors import JournalNotFound
from jlog.flow.stop import Stop
from jlog.kafka.client.background import answer_of, let_go, when_done
from jlog.kafka.client.errors import (
    LEADER_UNKNOWN,
    TIMED_OUT,
    BrokerError,
    PassingBrokerError,
    TopicChanged,
    UnsettledBrokers,
    code_of,
    told,
)
from jlog.kafka.client.settings import Settings

T = TypeVar("T")

ANSWER_SECONDS = 10.0
KNOWN_TOPIC = "__consumer_offsets"  # every cluster has it that has ever had a group
TOPICS_SAID = 500  # characters of their names in an error
UNREACHABLE_SECONDS = 3.0  # at the start, where a wrong address is more likely than a broker that is coming back
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),  # the least: records in the newest segment are never compacted
    "min.cleanable.dirty.ratio": "0.1",
}


@dataclass(frozen=True)
class Topic:
    """Identity and size of a topic. `id` changes when the topic is deleted and created again."""

    name: str
    id: str
    partitions: int
    replicas: int
    leaderless: tuple[int, ...] = ()  # partitions that cannot be read or written now

    def check_has(self, partition: int) -> None:
        """Raises ValueError where the topic has no such partition."""
        if partition >= self.partitions:
            raise ValueError(f"topic {self.name} has the partitions 0 to {self.partitions - 1}; {partition} is not one of them")


def _topic_of(name: str, found: Any) -> Topic:
    replicas = max((len(partition.replicas) for partition in found.partitions), default=0)
    leaderless = tuple(partition.id for partition in found.partitions if partition.leader is None or partition.leader.id < 0)
    return Topic(name, str(found.topic_id), len(found.partitions), replicas, leaderless)


def without_leader(name: str, partitions: Sequence[int]) -> str:
    several = "s" if len(partitions) > 1 else ""
    return f"partition{several} {', '.join(map(str, partitions))} of topic {name} {'have' if several else 'has'} no leader"


def check_same(where: str, topic: Topic | None, topic_id: str, after: str) -> Topic:
    """Returns the topic. Raises TopicChanged where it is gone, or is not the one of this id. after: as in TopicChanged."""
    if topic is None:
        raise TopicChanged.deleted(where, after)
    if topic.id != topic_id:
        raise TopicChanged.created_again(where, after)
    return topic


class Cluster:
    """Asks the brokers of one cluster. Raises BrokerError where they refuse for good, PassingBrokerError where they do not
    answer."""

    def __init__(self, settings: Settings, stop: Stop | None = None) -> None:
        self.settings = settings
        self.stop: Stop = stop or Stop()
        self._admin: AdminClient | None = None
        self._closed = 0  # times

    def __del__(self) -> None:
        self.close()

    def ask(self, method: str, *arguments: Any, **how: Any) -> Any:
        """Calls this method of the client, in another thread. Its result is futures, which answer() takes."""
        return self._answer_of(method, *arguments, request_timeout=ANSWER_SECONDS, **how)

    def _answer_of(self, method: str, *arguments: Any, **how: Any) -> Any:
        return answer_of(partial(self._call, self._closed, method, *arguments, **how), self.stop)

    def _call(self, closed: int, method: str, *arguments: Any, **how: Any) -> Any:
        admin = self._admin
        if admin is None:
            with told("the settings", self.settings):
                self._admin = admin = AdminClient(self.settings.for_admin())
            if closed != self._closed:  # close() came while the client was created, and nobody waits for the answer
                self._forget_client()
        return getattr(admin, method)(*arguments, **how)

    def answer(self, future: Any, what: str, unreachable_seconds: float = ANSWER_SECONDS, *, needs: str = "") -> Any:
        """Waits for the answer, and looks at whether to stop meanwhile. unreachable_seconds: how long to wait where no broker
        takes a connection. needs: the right that it takes."""
        with told(what, self.settings, needs):
            try:
                return self._wait(future, unreachable_seconds)
            except KafkaException as error:
                if code_of(error) in (*TIMED_OUT, *LEADER_UNKNOWN):
                    self._forget_client()
                raise

    def _wait(self, future: Any, unreachable_seconds: float) -> Any:
        begun = time.monotonic()
        self.settings.heard_nothing()
        done = when_done(future)
        while not done.acquire(timeout=self.stop.slice()):
            if self._admin is not None:
                self._admin.poll(0)  # learns why no broker can be reached
            patience = UNREACHABLE_SECONDS if self.settings.refused else ANSWER_SECONDS
            patience = unreachable_seconds if self.settings.unreachable else patience
            if time.monotonic() > begun + patience:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = future.exception()
        if error is not None:
            # A copy: a traceback of the original would have this frame, which has the future, which has the original. Such a
            # cycle keeps the frames of all callers until the garbage collector runs.
            raise type(error)(*error.args)
        return future.result()

    def _twice(self, question: Callable[[], T]) -> T:
        """Asks again where nobody answers, but not all brokers are gone: the client may have asked one that has just died."""
        try:
            return question()
        except PassingBrokerError as error:
            if error.code not in TIMED_OUT or self.settings.unreachable:
                raise
        return question()

    def _forget_client(self) -> None:
        """Drops the client. It keeps asking the broker that it has once chosen, though that one is dead and others live;
        and it keeps the leader's epoch that it has heard of, though brokers refuse it."""
        clients, self._admin = [self._admin], None
        let_go(clients)

    def close(self) -> None:
        """Drops the client. A client that waits for the garbage collector may be freed in a thread of librdkafka's, which ends
        the process."""
        self._closed += 1
        self._forget_client()

    def check(self, topic: str = KNOWN_TOPIC) -> None:
        """Raises PassingBrokerError where no broker answers a question for this topic. Whatever one says of it is an answer.

        A question for the cluster would need no topic. But librdkafka (at least up to 2.16) aborts the process where a broker
        that has just started knows no brokers yet: `Assertion 'rko_result' failed`."""
        try:
            self._twice(
                lambda: self.answer(
                    self.ask("describe_topics", TopicCollection([topic]))[topic], "asking for the cluster", UNREACHABLE_SECONDS
                )
            )
        except JournalNotFound:
            pass
        except BrokerError as error:
            if error.code <= 0:  # of the client itself
                raise

    # --- Topics -----------------------------------------------------------------------------------------------------

    def find(self, name: str) -> Topic | None:
        try:
            return self.topic(name)
        except JournalNotFound:
            return None

    def topic(self, name: str) -> Topic:
        """Finds the topic. Raises JournalNotFound where there is none."""
        found = self.topics([name])
        if name not in found:
            where = f"kafka://{self.settings.servers}/{name}"
            raise JournalNotFound(f"{where}: there is no such topic; `jlogtool create {where}` creates it", where)
        return found[name]

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        """Finds these topics. The result lacks those that do not exist."""
        return self._twice(lambda: self._topics(names)) if names else {}

    def _topics(self, names: Sequence[str]) -> dict[str, Topic]:
        found = {}
        for name, answer in self.ask("describe_topics", TopicCollection(list(names))).items():
            with suppress(JournalNotFound):
                described = self.answer(answer, f"asking for topic {name}", needs=f"Describe on topic {name}")
                found[name] = _topic_of(name, described)
        return found

    def names(self) -> list[str]:
        """Lists the names of all topics, without those that Kafka keeps for itself."""
        with told("listing topics", self.settings):
            found = self._answer_of("list_topics", timeout=ANSWER_SECONDS).topics
        return sorted(name for name in found if not name.startswith("__"))

    def ensure(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] = {},
        create: bool = True,
    ) -> tuple[Topic, bool]:
        """Finds the topic, or creates it if `create` allows that. Returns also whether it was created."""
        found = self.find(name)
        if found is not None:
            return found, False
        if not create:
            where = f"kafka://{self.settings.servers}/{name}"
            message = f"{where}: there is no such topic, and none was to be created; `jlogtool create {where}` creates it"
            raise JournalNotFound(message, where)
        self.create(name, partitions, replication_factor, config)
        return self._when_known(name), True

    def create(self, name: str, partitions: int, replication_factor: int | None, config: Mapping[str, str]) -> bool:
        """Creates the topic, and returns when the brokers know it. Returns False if another process was first."""
        if partitions < 1:
            raise ValueError(f"a topic must have at least 1 partition, not {partitions}")
        new = NewTopic(name, num_partitions=partitions, replication_factor=replication_factor or -1, config=dict(config))
        answers, created = self.ask("create_topics", [new]), True
        try:
            self.answer(answers[name], f"creating topic {name}", needs=f"Create on topic {name}")
        except PassingBrokerError as error:
            if error.code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            created = False
        self._when_known(name)
        return created

    def _when_known(self, name: str) -> Topic:
        """Waits until the broker that answers knows a topic that was created. The brokers hear of it one after the other."""
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            found = self.find(name)
            if found is not None:
                return found
            if time.monotonic() > until:
                raise UnsettledBrokers(f"{self.settings.servers}: creating topic {name}: no broker knows it yet")
            self.stop.wait(0.05)

    def delete(self, name: str) -> None:
        answers = self.ask("delete_topics", [name])
        self.answer(answers[name], f"deleting topic {name}", needs=f"Delete on topic {name}")

    def config(self, name: str) -> dict[str, str]:
        """Returns the settings of a topic, with the brokers' defaults; nothing where this user may not ask."""
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            try:
                return self._config(name)
            except BrokerError as error:
                if error.code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    return {}
                raise
            except JournalNotFound:
                if time.monotonic() > until or not self._others_know([name]):
                    raise
            self.stop.wait(0.1)

    def _others_know(self, names: Sequence[str]) -> bool:
        """Returns whether the topics exist, though one broker has said that it does not know them. That broker is late."""
        return len(self.topics(names)) == len(names)

    def _config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        answers = self.ask("describe_configs", [resource])
        found = self.answer(answers[resource], f"asking for the settings of topic {name}")
        return {key: entry.value for key, entry in found.items()}

    def why_late(self, name: str) -> str:
        """Finds out why deliveries are not acknowledged, as far as possible: the client only says that they timed out."""
        self._forget_client()
        try:
            answers = self.ask("describe_topics", TopicCollection([name]))
            found = self.answer(answers[name], f"asking for topic {name}", UNREACHABLE_SECONDS)
            needed = int(self.config(name).get("min.insync.replicas", 1))
        except JournalNotFound:
            return f"topic {name} is gone"
        except BrokerError:
            return f"the brokers do not answer ({self.settings.last_said or 'no reason is known'})"
        leaderless = _topic_of(name, found).leaderless
        if leaderless:
            return f"{without_leader(name, leaderless)}, and can take no record"
        few = [partition.id for partition in found.partitions if len(partition.isr) < needed]
        if few:
            return f"partitions {few} of topic {name} have fewer replicas in sync than min.insync.replicas={needed}"
        return f"topic {name} took longer than its time limit to acknowledge"

    # --- Offsets ----------------------------------------------------------------------------------------------------

    def first_of(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Returns the first offsets of partitions of several topics."""
        return self._offsets_of(places, OffsetSpec.earliest())

    def ends_of(self, places: Iterable[tuple[str, int]], *, committed: bool = True) -> dict[tuple[str, int], int]:
        """Returns the ends of partitions of several topics, after the last transaction that is complete; committed=False: after
        all records. A broker that has just become the leader is asked again until it knows what its predecessor has
        acknowledged."""
        return self._offsets_of(places, OffsetSpec.latest(), committed=committed)

    def first_offsets(self, topic: Topic, partitions: Iterable[int] | None = None) -> dict[int, int]:
        return self._offsets(topic, OffsetSpec.earliest(), partitions)

    def end_offsets(self, topic: Topic, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """Returns the end of each partition, after the last transaction that is complete."""
        return self._offsets(topic, OffsetSpec.latest(), partitions)

    def hidden_from(self, topic: Topic) -> dict[int, int]:
        """Returns the partitions in which an open transaction hides records from readers, with the offset where it begins. Both
        ends are asked for, first the one of all records: a transaction that is committed in between hides nothing."""
        places = [(topic.name, partition) for partition in range(topic.partitions) if partition not in topic.leaderless]
        written = self.ends_of(places, committed=False)
        return {partition: end for (name, partition), end in self.ends_of(places).items() if end < written[name, partition]}

    def offsets_at(self, topic: Topic, timestamp_us: int, partitions: Iterable[int] | None = None) -> dict[int, int]:
        """Returns the offset of the first record at or after this time in each partition; the end where all are earlier."""
        milliseconds = -(-timestamp_us // 1000)  # a record's time is kept to the millisecond, rounded down
        found = self._offsets(topic, OffsetSpec.for_timestamp(max(0, milliseconds)), partitions)
        ends = self.end_offsets(topic, partitions)
        return {partition: ends[partition] if offset < 0 else offset for partition, offset in found.items()}

    def _offsets(self, topic: Topic, spec: OffsetSpec, partitions: Iterable[int] | None) -> dict[int, int]:
        wanted = range(topic.partitions) if partitions is None else partitions
        found = self._offsets_of([(topic.name, partition) for partition in wanted], spec)
        return {partition: offset for (_, partition), offset in found.items()}

    def _offsets_of(
        self, places: Iterable[tuple[str, int]], spec: OffsetSpec, *, committed: bool = True
    ) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(*place): spec for place in places}
        if not asked:
            return {}
        names = sorted({one.topic for one in asked})
        topics = ", ".join(names)[:TOPICS_SAID]
        what, needs = f"asking for the offsets of topic {topics}", f"Describe on topic {topics}"
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            answers = self.ask("list_offsets", asked, isolation_level=isolation)
            try:
                found = {
                    (one.topic, one.partition): int(self.answer(answer, what, needs=needs).offset)
                    for one, answer in answers.items()
                }
                if OFFSET_INVALID not in found.values():
                    return found
                # Where a broker goes away, the client leaves out the partitions that it has asked that one for.
                with told(what, self.settings):
                    raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            except PassingBrokerError as error:
                if error.code not in LEADER_UNKNOWN or time.monotonic() > until:
                    raise
            except JournalNotFound:
                if time.monotonic() > until or not self._others_know(names):
                    raise
            self.stop.wait(0.1)
