"""Reads one partition from one offset to another, message by message."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from jlog.kafka.client.cluster import ANSWER_SECONDS, Cluster
from jlog.kafka.client.errors import told
from jlog.kafka.client.partitions import Meaning, meaning_of, reading
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
        self._place = topic, partition, first
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
        with told(f"reading topic {self._place[0]}", self._settings, f"Read on topic {self._place[0]}"):
            how = {"queued_max_messages_kbytes": QUEUED_KILOBYTES, **self._how}
            with reading(self._settings, [self._place], **how) as fetch:
                until = time.monotonic() + ANSWER_SECONDS
                while time.monotonic() < until:
                    for message in fetch(AT_ONCE, self._stop.slice()):
                        error = message.error()
                        meaning = None if error is None else meaning_of(error)
                        if meaning is Meaning.PASSING:
                            continue
                        if meaning is not None and meaning is not Meaning.END:
                            raise KafkaException(error)
                        if message.offset() >= self._end:
                            return
                        if meaning is None:
                            yield message
                        until = time.monotonic() + ANSWER_SECONDS
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


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
