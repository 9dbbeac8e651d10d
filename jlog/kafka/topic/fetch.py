"""Fetches the messages of one partition, and finds its end."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from jlog.errors import JournalNotFound
from jlog.kafka.client.cluster import ANSWER_SECONDS
from jlog.kafka.client.errors import as_ours, told
from jlog.kafka.client.partitions import Meaning, fetch, meaning_of
from jlog.kafka.topic.partition import Partition

AT_ONCE = 1_000


class Fetch:
    """Hands out messages from the offset of the last seek() on. `eof` is the offset of the partition's end once all messages
    before it were handed out; it is after the ends of transactions."""

    def __init__(self, partition: Partition, consumer: Consumer) -> None:
        self._partition = partition
        self._consumer = consumer
        self._broken: Exception | None = None
        self.eof: int | None = None
        with told("asking for the partition's leader", partition.settings):
            consumer.list_topics(partition.name, ANSWER_SECONDS)  # otherwise the client asks a second later

    def seek(self, offset: int) -> None:
        with told("beginning to read", self._partition.settings):
            self._consumer.assign([TopicPartition(self._partition.name, self._partition.number, offset)])
        self._at = offset
        self._broken = None
        self.eof = None

    def get(self, timeout: float) -> list[Any]:
        """Returns messages in order, none if none came in time. Raises PositionLost, TopicChanged or BrokerError, once all
        messages before the error were handed out."""
        if self._broken is not None:
            raise self._broken
        found: list[Any] = []
        with told("reading", self._partition.settings):
            fetched = fetch(self._consumer, AT_ONCE, timeout)
        for message in fetched:
            error = message.error()
            if error is None:
                found.append(message)
                self._at = message.offset() + 1
                self.eof = None
                continue
            meaning = meaning_of(error)
            if meaning is Meaning.END:
                self.eof = max(self._at, message.offset())
            elif meaning is not Meaning.PASSING:
                self._broken = self._what(error, meaning)
                break
        if self._broken is not None and not found:
            raise self._broken
        return found

    def _what(self, error: KafkaError, meaning: Meaning) -> Exception:
        partition = self._partition
        if meaning is not Meaning.FAILED:
            try:
                partition.check_same()
                first = partition.first()
            except Exception as other:  # noqa: BLE001 - raised once the messages before it are handed out
                return other
            return partition.lost(first) if self._at < first else partition.changed()
        found = as_ours(KafkaException(error), "reading", partition.settings, f"Read on topic {partition.name}")
        return partition.changed() if isinstance(found, JournalNotFound) else found
