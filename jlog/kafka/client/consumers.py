"""Consumers that read partitions from explicit offsets: by librdkafka's C calls, or by confluent_kafka where these cannot be
had."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from jlog._core.kafka.client import ClientError
from jlog._core.kafka.consumer import Consumer as CoreConsumer
from jlog.kafka.client.core import errors_told, is_text, raised_as_kafka, texts_of
from jlog.kafka.client.library import library
from jlog.kafka.client.settings import Settings

OnCommit = Callable[["KafkaError | None"], None]


class At(NamedTuple):
    """Where a partition is read."""

    topic: str
    partition: int
    offset: int  # of the next message
    leader_epoch: int = -1  # of the last message; -1: not known


class Event(NamedTuple):
    """What came between messages: the end of a partition, or an error."""

    error: KafkaError
    topic: str  # "" where it is of none
    partition: int
    offset: int


class Messages(Protocol):
    """Messages in order, each with the methods of confluent_kafka.Message."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: Any, /) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...

    @property
    def value_bytes(self) -> int: ...

    def cut(self, count: int) -> None:
        """Leaves out all but the first `count` messages."""

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Returns, for each topic and partition, the offset behind its last message, and the leader epoch of that one, or
        -1."""


class TopicConsumer(Protocol):
    """Reads partitions, and is no member of a group."""

    def assign(self, places: Collection[At]) -> None:
        """Reads these partitions from now on, and no others. What was fetched ahead is forgotten."""

    def consume(self, count: int, seconds: float) -> tuple[Messages, list[tuple[int, Event]]]:
        """Waits up to `seconds` for a message, and returns up to `count` of those that are there then. Each event comes with
        the number of messages before it."""

    def commit(self, places: Collection[At]) -> None:
        """Tells these offsets to the group, and does not wait for that."""

    def close(self) -> None: ...


def open_consumer(settings: Settings, group: str | None, on_commit: OnCommit) -> TopicConsumer:
    """Returns a consumer. group: the one that commit() tells offsets. on_commit: is called by consume() with what became of a
    commit."""
    conf = settings.for_consumer() | ({} if group is None else {"group.id": group})
    calls = library()
    if calls is None or not is_text(conf):
        return PlainConsumer(conf, on_commit)
    with raised_as_kafka():
        return NativeConsumer(CoreConsumer(calls, texts_of(conf)), conf["error_cb"], conf["logger"], on_commit)


class NativeConsumer:
    """Calls librdkafka, and makes no Python object for a message before it is asked for."""

    def __init__(
        self,
        consumer: CoreConsumer,
        on_error: Callable[[KafkaError], None],
        logger: logging.Logger,
        on_commit: OnCommit,
    ) -> None:
        self._consumer = consumer
        self._on_error = on_error
        self._logger = logger
        self._on_commit = on_commit
        self._commit_error = 0

    def assign(self, places: Collection[At]) -> None:
        with raised_as_kafka():
            self._consumer.assign(places)

    def consume(self, count: int, seconds: float) -> tuple[Messages, list[tuple[int, Event]]]:
        with raised_as_kafka():
            found = self._consumer.consume(count, seconds)
        self._hear()
        return found, [
            (before, Event(KafkaError(event.code, event.reason), event.topic or "", event.partition, event.offset))
            for before, event in found.events
        ]

    def _hear(self) -> None:
        """Hands on what the client has told meanwhile."""
        for error in errors_told(self._consumer, self._logger):
            self._on_error(error)
        code = self._consumer.commit_error
        if code != self._commit_error:
            self._commit_error = code
            self._on_commit(KafkaError(code) if code else None)

    def commit(self, places: Collection[At]) -> None:
        with raised_as_kafka():
            self._consumer.commit(places)

    def close(self) -> None:
        with suppress(ClientError, ValueError):
            self._consumer.assign(())  # a message that is kept keeps the client too, which must not fetch on
        self._consumer.close()


class PlainConsumer:
    """Calls confluent_kafka, which makes Python objects for each message."""

    def __init__(self, conf: dict[str, Any], on_commit: OnCommit) -> None:
        self._consumer = Consumer(conf | {"on_commit": lambda error, _offsets: on_commit(error)})
        self._several = False

    def assign(self, places: Collection[At]) -> None:
        self._several = len(places) > 1
        self._consumer.assign([_partition(at) for at in places])

    def consume(self, count: int, seconds: float) -> tuple[Messages, list[tuple[int, Event]]]:
        got = self._consumer.consume(1, seconds)
        if got and count > 1:
            got += self._consumer.consume(count - 1, 0)
        events = []
        if any(map(Message.error, got)):
            fetched, got = got, []
            for message in fetched:
                error = message.error()
                if error is None:
                    got.append(message)
                else:
                    event = Event(error, message.topic() or "", message.partition(), message.offset())
                    events.append((len(got), event))
        return PlainMessages(got, self._several), events

    def commit(self, places: Collection[At]) -> None:
        self._consumer.commit(offsets=[_partition(at) for at in places], asynchronous=True)

    def close(self) -> None:
        self._consumer.close()


class PlainMessages(list[Message]):
    """Messages of confluent_kafka. several: they may come from several partitions."""

    def __init__(self, messages: Iterable[Message] = (), several: bool = False) -> None:
        super().__init__(messages)
        self._several = several

    @property
    def value_bytes(self) -> int:
        return sum(map(len, self))

    def cut(self, count: int) -> None:
        del self[count:]

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        several = self if self._several else self[-1:]
        last = {(message.topic(), message.partition()): message for message in several}
        return {
            place: (message.offset() + 1, -1 if message.leader_epoch() is None else message.leader_epoch())
            for place, message in last.items()
        }


def _partition(at: At) -> TopicPartition:
    if at.leader_epoch < 0:
        return TopicPartition(at.topic, at.partition, at.offset)
    return TopicPartition(at.topic, at.partition, at.offset, leader_epoch=at.leader_epoch)
