"""Reads partitions from explicit offsets, and says what the client's events between the messages mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from jlog.kafka.client.background import let_go
from jlog.kafka.client.errors import TIMED_OUT, is_without_group
from jlog.kafka.client.settings import Settings


class Meaning(Enum):
    END = auto()  # the partition was read to its end: the event's offset
    GONE = auto()  # the next message cannot be fetched any more: retention was faster, or the topic is another one
    LOST_TAIL = auto()  # the brokers have other records at the offset to read next than were there (KIP-320)
    PASSING = auto()  # the client connects again by itself, or misses a group that it does not need
    FAILED = auto()


def meaning_of(error: KafkaError, *, has_group: bool = False) -> Meaning:
    """has_group: offsets are committed to a group, and the client has to find its coordinator."""
    code, truncation = error.code(), KafkaError(KafkaError._LOG_TRUNCATION)
    if code == KafkaError._PARTITION_EOF:
        return Meaning.END
    if code in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
        # A lost tail is told as a reset of the offset, with the reason only in the text.
        return Meaning.LOST_TAIL if code == truncation.code() or truncation.str() in error.str() else Meaning.GONE
    is_passing = code in TIMED_OUT or (is_without_group(error) and not has_group)
    return Meaning.PASSING if is_passing else Meaning.FAILED


def fetch(consumer: Consumer, most: int, seconds: float) -> list[Any]:
    """Returns messages and events. It waits for the first one."""
    return [*consumer.consume(1, seconds), *consumer.consume(most, 0)]


@contextmanager
def reading(
    settings: Settings, places: Iterable[tuple[str, int, int]], **how: Any
) -> Iterator[Callable[[int, float], list[Any]]]:
    """Reads from these places: topic, partition and offset. Yields fetch() without its consumer. how: settings of that."""
    consumer = Consumer(settings.for_consumer(**how))
    try:
        consumer.assign([TopicPartition(*place) for place in places])
        yield lambda most, seconds: fetch(consumer, most, seconds)
    finally:
        let_go([consumer])
