"""Named checkpoints of topics, which are rows of a compacted topic, jlog.checkpoints. They hold nothing back from retention."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from confluent_kafka import KafkaException, Producer

from jlog.kafka.client.cluster import ANSWER_SECONDS, Cluster, Topic
from jlog.kafka.client.errors import BrokerError, told
from jlog.kafka.client.table import ensure_table, read_table


class Checkpoint(NamedTuple):
    offset: int
    moved_us: int


class Checkpoints:
    """The checkpoints of one partition. Those of an earlier topic of the same name, which was deleted, do not count."""

    def __init__(self, cluster: Cluster, topic: Topic, partition: int) -> None:
        self._cluster = cluster
        self._table = cluster.settings.names.checkpoints
        self._topic = topic
        self._partition = partition

    def all(self) -> dict[str, Checkpoint]:
        if self._cluster.find(self._table) is None:
            return {}
        found = {}
        for key, row in read_table(self._cluster, self._table).items():
            topic, partition, name = json.loads(key)
            if (topic, partition, row["topic_id"]) == (self._topic.name, self._partition, self._topic.id):
                found[name] = Checkpoint(row["offset"], row["moved_us"])
        return dict(sorted(found.items()))

    def put(self, name: str, offset: int) -> None:
        """Creates the checkpoint or moves it. Returns when the brokers have it."""
        ensure_table(self._cluster, self._table, None)
        row = {"offset": offset, "topic_id": self._topic.id, "moved_us": int(time.time() * 1e6)}
        self._write(name, json.dumps(row).encode())

    def remove(self, name: str) -> None:
        self._write(name, None)

    def _write(self, name: str, value: bytes | None) -> None:
        failed: list[Any] = []
        settings = self._cluster.settings
        with told(f"writing to topic {self._table}", settings, f"Write on topic {self._table}"):
            # A checkpoint that is written twice is the same. To be idempotent, a producer needs a right to write to begin with,
            # and without one it breaks instead of saying which.
            conf = settings.for_producer(message_timeout_ms=int(ANSWER_SECONDS * 1000), enable_idempotence=False)
            producer = Producer({**conf, "on_delivery": lambda error, _: failed.append(error)})
            # Otherwise the client asks for the topic's leader by itself, half a second later.
            producer.list_topics(self._table, ANSWER_SECONDS)
            producer.produce(self._table, value, json.dumps([self._topic.name, self._partition, name]).encode())
            left = producer.flush(2 * ANSWER_SECONDS)
            if failed:
                raise KafkaException(failed[0])
        if left:
            raise BrokerError(f"{settings.servers}: writing to topic {self._table}: no broker answers")
