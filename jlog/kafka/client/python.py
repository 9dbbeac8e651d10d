"""A producer and a consumer by the Python client, which creates Python objects for each message. They serve settings that are
functions, and stand in where librdkafka's calls cannot be had."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from jlog.flow.records import Headers
from jlog.kafka.client.names import OFFSET
from jlog.kafka.client.records import NO_UTF8, At, Event, OnCommit, OnFailure, part_of, time_us_of


class PythonProducer(Producer):  # type: ignore[misc]
    """confluent_kafka's producer, with the calls of NativeProducer but for whole batches."""

    def __init__(self, conf: Mapping[str, Any], on_failure: OnFailure) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                on_failure(error, message.topic() or "", None)

        super().__init__({**conf, "on_delivery": delivered})

    def count_partitions(self, topic: str, timeout: float) -> int:
        found = self.list_topics(topic, timeout=timeout).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def close(self) -> None:
        """Does nothing: the client ends with its last reference, and the one that is inherited would wait for deliveries."""


class PythonConsumer:
    """Reads partitions from explicit offsets, and is not a member of a group."""

    def __init__(self, conf: Mapping[str, Any], on_commit: OnCommit) -> None:
        self._consumer = Consumer({**conf, "on_commit": lambda error, _offsets: on_commit(error)})

    def assign(self, places: Collection[At]) -> None:
        """Reads these partitions from now on, and no others. What was fetched ahead is forgotten."""
        self._consumer.assign([client_partition(at) for at in places])

    def consume(self, count: int, seconds: float) -> tuple[PythonMessages, list[tuple[int, Event]]]:
        """Waits up to `seconds` for a message, and returns up to `count` of those that are there then. Each event comes with
        the number of messages before it."""
        fetched = self._consumer.consume(1, seconds)
        if fetched and count > 1:
            fetched += self._consumer.consume(count - 1, 0)
        found, events = PythonMessages(), []
        for message in fetched:
            error = message.error()
            if error is None:
                found.append(message)
            else:
                events.append((len(found), Event(error, message.topic() or "", message.partition(), message.offset())))
        return found, events

    def commit(self, places: Collection[At]) -> None:
        """Commits these offsets for the group, without waiting for it."""
        self._consumer.commit(offsets=[client_partition(at) for at in places], asynchronous=True)

    def close(self) -> None:
        self._consumer.close()


class PythonMessages(list[Any]):
    """Messages of confluent_kafka, with the calls of the core's Messages."""

    @property
    def value_bytes(self) -> int:
        return sum(map(len, self))

    def cut(self, count: int) -> None:
        """Leaves out all but the first `count` messages."""
        del self[count:]

    def ends(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Returns, for each topic and partition, the offset after its last message, and the leader epoch of that one, or
        -1."""
        last = {(message.topic(), message.partition()): message for message in self}
        return {
            place: (message.offset() + 1, -1 if message.leader_epoch() is None else message.leader_epoch())
            for place, message in last.items()
        }

    def add_to(self, body: Any, with_topic: bool, first: int) -> tuple[int, int, str | None]:
        """Adds a record for each message from index `first` on to the body of a journal's writer. Its headers get its place in
        Kafka: partition and offset, and the topic before them if `with_topic`. Stops at a message that cannot become a
        record. Returns the index after the last record, the bytes of the values, and the reason for a stop, or None."""
        messages = self[first:] if first else self
        own: list[Headers | None] = []
        reason = None
        try:
            own.extend(map(Message.headers, messages))
        except (SystemError, UnicodeDecodeError):
            reason = NO_UTF8
        messages = messages[: len(own)]
        parts: dict[tuple[str, int], Headers] = {}
        headers = []
        for message, found in zip(messages, own, strict=True):
            place = message.topic(), message.partition()
            part = parts.get(place)
            if part is None:
                part = parts[place] = part_of(message, with_topic)
            headers.append((*(found or ()), *part, (OFFSET, b"%d" % message.offset())))
        columns = [
            list(map(Message.value, messages)),
            list(map(Message.key, messages)),
            headers,
            list(map(time_us_of, messages)),
        ]
        try:
            body.add_columns(*columns)
        except ValueError:  # of one of them: its time does not fit, for example
            for at in range(len(own)):
                try:
                    body.add_columns(*(column[at : at + 1] for column in columns))
                except ValueError as error:
                    return first + at, sum(map(len, messages[:at])), str(error)
        return first + len(own), sum(map(len, messages)), reason


def client_partition(at: At) -> TopicPartition:
    """Returns the place as the Python client takes it."""
    if at.leader_epoch < 0:
        return TopicPartition(at.topic, at.partition, at.offset)
    return TopicPartition(at.topic, at.partition, at.offset, leader_epoch=at.leader_epoch)
