"""Looks at single messages of a topic."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from jlog.kafka.client.cluster import ANSWER_SECONDS
from jlog.kafka.client.errors import TIMED_OUT, is_without_group, told
from jlog.kafka.client.settings import Settings

FETCH_BYTES = 65_536


class Probe:
    """Reads the committed message at an offset, with one client for all of them."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        with told("the settings", settings):
            conf = settings.for_consumer(
                fetch_wait_max_ms=10,
                queued_min_messages=1,
                fetch_message_max_bytes=FETCH_BYTES,
                auto_offset_reset="earliest",
            )
            self._consumer = Consumer(conf)

    def at(self, partition: int, offset: int, end: int) -> Any:
        """Returns the first message from this offset on, and None where there is none before `end`."""
        if offset >= end:
            return None
        with told(f"reading topic {self._topic}", self._settings, f"Read on topic {self._topic}"):
            self._consumer.assign([TopicPartition(self._topic, partition, offset)])
            until = time.monotonic() + ANSWER_SECONDS
            while time.monotonic() < until:
                for message in self._consumer.consume(1, 0.5):
                    error = message.error()
                    if error is None:
                        return message if message.offset() < end else None
                    if error.code() == KafkaError._PARTITION_EOF:
                        return None
                    if error.code() not in TIMED_OUT and not is_without_group(error):
                        raise KafkaException(error)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def close(self) -> None:
        self._consumer.close()
