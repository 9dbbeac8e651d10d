"""Reads one partition from one offset to another, message by message."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from jlog.kafka.client.background import let_go
from jlog.kafka.client.cluster import ANSWER_SECONDS, Cluster
from jlog.kafka.client.errors import TIMED_OUT, is_without_group, told
from jlog.kafka.client.records import time_us_of

if TYPE_CHECKING:
    from jlog.kafka.client.cluster import Topic

AT_ONCE = 1_000
QUEUED_KILOBYTES = 8_192


class Stream:
    """Iterates over the committed messages of one partition from offset `first` up to `end`. `next` may be put back.

    how: settings of the consumer.
    """

    def __init__(self, cluster: Cluster, topic: str, partition: int, first: int, end: int, **how: Any) -> None:
        self._settings = cluster.settings
        self._stop = cluster.stop
        self._place = TopicPartition(topic, partition, first)
        self._end = end
        self._how = how
        self._messages = self._read() if first < end else iter(())
        self._back: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._back.pop() if self._back else next(self._messages)

    def put_back(self, message: Any) -> None:
        self._back.append(message)

    def _read(self) -> Iterator[Any]:
        with told(f"reading topic {self._place.topic}", self._settings, f"Read on topic {self._place.topic}"):
            conf = self._settings.for_consumer(queued_max_messages_kbytes=QUEUED_KILOBYTES, **self._how)
            consumer = Consumer(conf)
            try:
                consumer.assign([self._place])
                until = time.monotonic() + ANSWER_SECONDS
                while time.monotonic() < until:
                    for message in consumer.consume(1, self._stop.slice()) + consumer.consume(AT_ONCE, 0):
                        error = message.error()
                        if error is None:
                            if message.offset() >= self._end:
                                return
                            yield message
                        elif error.code() == KafkaError._PARTITION_EOF:
                            if message.offset() >= self._end:
                                return
                        elif is_without_group(error):
                            continue
                        elif error.code() not in TIMED_OUT:
                            raise KafkaException(error)
                        until = time.monotonic() + ANSWER_SECONDS
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            finally:
                let_go([consumer])


class OpenTransaction(NamedTuple):
    """A transaction that hides a partition's records from its first one on. seconds: the age of that one, None if it has no
    time. The client cannot ask the brokers whose it is; `kafka-transactions.sh find-hanging` does."""

    partition: int
    offset: int
    seconds: float | None


def open_transactions(cluster: Cluster, topic: Topic, hidden_from: Mapping[int, int]) -> list[OpenTransaction]:
    """Returns the first open transaction of each partition that has one."""
    found = []
    for partition, offset in sorted(hidden_from.items()):
        first = next(Stream(cluster, topic.name, partition, offset, offset + 1, isolation_level="read_uncommitted"), None)
        time_us = None if first is None else time_us_of(first)
        found.append(OpenTransaction(partition, offset, None if time_us is None else round(time.time() - time_us / 1e6, 3)))
    return found
