"""A plain client of Kafka's, which knows nothing of jlog: it creates topics, writes to them, and reads them."""

from __future__ import annotations

import ctypes
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

import jlog
from patience import HUNG_SECONDS, wait_until

ANSWER_SECONDS = 15.0


class Fields(NamedTuple):
    """The fields that a message and a record have in common."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    milliseconds: int


class Witness:
    """address: where it asks. flows_at: the address for jlog, if that is another listener of the same broker."""

    def __init__(self, address: str, flows_at: str = "") -> None:
        self.address = address
        self.flows_at = flows_at or address
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    @staticmethod
    def unique(name: str) -> str:
        return f"{re.sub('[^a-z0-9]+', '-', name.lower())[:60]}-{secrets.token_hex(3)}"

    def url(self, topic: str) -> str:
        return f"kafka://{self.flows_at}/{topic}"

    # --- Topics -----------------------------------------------------------------------------------------------------

    def make(self, topic: str, partitions: int = 1, replicas: Sequence[int] = (), **config: Any) -> str:
        """replicas: the nodes of its one partition, with the leader first."""
        given = {name.replace("_", "."): str(value) for name, value in config.items()}
        if replicas:
            new = NewTopic(topic, 1, replica_assignment=[list(replicas)], config=given)
        else:
            new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=given)
        wait_until(lambda: self._create(new))
        wait_until(lambda: self.exists(topic))
        if partitions > 1:
            wait_until(lambda: self.has_leaders(topic, partitions))
        return self.url(topic)

    def has_leaders(self, topic: str, partitions: int) -> bool:
        """A busy broker takes a while to lead hundreds of partitions. Another client asks, since one that knew an earlier topic
        of this name asks for the leaders of that one for ever."""
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
        admin = AdminClient({"bootstrap.servers": self.address})
        try:
            return all(answer.result(HUNG_SECONDS) for answer in admin.list_offsets(asked).values())
        except KafkaException:
            return False

    def _create(self, new: NewTopic) -> bool:
        """Asked again where a busy broker does not answer in time: it may have done it."""
        try:
            self.admin.create_topics([new], request_timeout=ANSWER_SECONDS)[new.topic].result(HUNG_SECONDS)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return True
            fenced = code == KafkaError.INVALID_REPLICATION_FACTOR and "fenced" in error.args[0].str()  # it has just started
            if code not in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT) and not fenced:
                raise
            return False
        return True

    def exists(self, topic: str) -> bool:
        return topic in self.topics()

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(HUNG_SECONDS)
        wait_until(lambda: not self.exists(topic))

    def topics(self) -> list[str]:
        return sorted(self.admin.list_topics(timeout=HUNG_SECONDS).topics)

    def partitions(self, topic: str) -> int:
        return len(self.admin.list_topics(timeout=HUNG_SECONDS).topics[topic].partitions)

    def config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        found = self.admin.describe_configs([resource])[resource].result(HUNG_SECONDS)
        return {name: entry.value for name, entry in found.items()}

    def configure(self, topic: str, **config: Any) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        for name, value in config.items():
            entry = ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            resource.add_incremental_config(entry)
        self.admin.incremental_alter_configs([resource])[resource].result(HUNG_SECONDS)

    def remove_before(self, topic: str, offset: int, partition: int = 0) -> None:
        """Removes records as retention does."""
        at = TopicPartition(topic, partition, offset)
        self.admin.delete_records([at])[at].result(HUNG_SECONDS)

    def end(self, topic: str, partition: int = 0) -> int:
        at = TopicPartition(topic, partition)
        return self.admin.list_offsets({at: OffsetSpec.latest()})[at].result(HUNG_SECONDS).offset

    # --- Messages ---------------------------------------------------------------------------------------------------

    def produce(self, topic: str, messages: Iterable[Any], *, partition: int = 0, transactions: int = 0) -> None:
        """Each is a value, or keywords of Producer.produce; `transactions`: so many of them in each."""
        conf = {"bootstrap.servers": self.address, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000}
        if transactions:
            conf["transactional.id"] = secrets.token_hex(8)
        failed: list[Any] = []
        conf["on_delivery"] = lambda error, _: failed.append(error) if error else None
        producer = Producer(conf)
        if transactions:
            producer.init_transactions(HUNG_SECONDS)
        for number, message in enumerate(messages):
            if transactions and number % transactions == 0:
                if number:
                    producer.commit_transaction(HUNG_SECONDS)
                producer.begin_transaction()
            given = message if isinstance(message, dict) else {"value": message}
            producer.produce(topic, partition=given.pop("partition", partition), **given)
            producer.poll(0)
        if transactions:
            producer.commit_transaction(HUNG_SECONDS)
        assert producer.flush(HUNG_SECONDS) == 0
        assert not failed, failed

    def produce_with_header(self, topic: str, value: bytes, name: bytes) -> None:
        """With a header of any name, as clients in other languages send them: Python's takes only text."""
        (library,) = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka*")
        client = ctypes.CDLL(str(library))
        client.rd_kafka_conf_new.restype = client.rd_kafka_new.restype = ctypes.c_void_p
        conf = ctypes.c_void_p(client.rd_kafka_conf_new())
        client.rd_kafka_conf_set(conf, b"bootstrap.servers", self.address.encode(), None, ctypes.c_size_t(0))
        producer = ctypes.c_void_p(client.rd_kafka_new(0, conf, None, ctypes.c_size_t(0)))
        of_topic, of_value, of_flags, of_header, end, copies = 1, 4, 7, 9, 0, 2
        size = ctypes.c_size_t(len(value))
        sent = [of_topic, topic.encode(), of_value, value, size, of_flags, copies]
        header = [of_header, name, b"1", ctypes.c_ssize_t(1)]
        assert client.rd_kafka_producev(producer, *sent, *header, end) == 0
        assert client.rd_kafka_flush(producer, int(1000 * ANSWER_SECONDS)) == 0
        client.rd_kafka_destroy(producer)

    def produce_and_abort(self, topic: str, values: Iterable[bytes]) -> None:
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": secrets.token_hex(8)})
        producer.init_transactions(HUNG_SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(HUNG_SECONDS) == 0
        producer.abort_transaction(HUNG_SECONDS)

    def stream(self, topic: str, *, committed: bool = True) -> Iterator[Any]:
        """From the beginning of each partition to its end as it is now."""
        count = self.partitions(topic)
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "witness",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 5,
                "log_level": 0,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
            ended: set[int] = set()
            deadline = time.monotonic() + HUNG_SECONDS
            while len(ended) < count:
                assert time.monotonic() < deadline, f"topic {topic} could not be read to its end"
                for message in consumer.consume(10_000, 0.1):
                    error = message.error()
                    if error is None:
                        yield message
                        deadline = time.monotonic() + HUNG_SECONDS
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
                    else:
                        assert error.retriable() or error.code() == KafkaError._TRANSPORT, error
        finally:
            consumer.close()

    def messages(self, topic: str, *, committed: bool = True) -> list[list[Any]]:
        """The messages of each partition."""
        found: list[list[Any]] = [[] for _ in range(self.partitions(topic))]
        for message in self.stream(topic, committed=committed):
            found[message.partition()].append(message)
        return found

    def check_numbered(self, topic: str, count: int) -> None:
        """The topic's one partition has the values of numbered(count), each once and in order."""
        expected = 0
        for message in self.stream(topic):
            assert message.value() == b"%d" % expected, f"{message.value()!r} where {expected} should be"
            expected += 1
        assert expected == count

    def values(self, topic: str, *, committed: bool = True) -> list[bytes | None]:
        """The values of a topic with one partition."""
        (only,) = self.messages(topic, committed=committed)
        return [message.value() for message in only]

    def fields(self, topic: str) -> list[Fields]:
        """The fields of all messages, one partition after the other."""
        return [fields_of_message(message) for messages in self.messages(topic) for message in messages]


def fields_of_message(message: Any) -> Fields:
    return Fields(message.value(), message.key(), tuple(message.headers() or ()), message.timestamp()[1])


def fields_of_journal(path: Any, *, with_ours: bool = False) -> list[Fields]:
    """The fields as a topic shows them; headers that begin with jlog.kafka. only `with_ours`."""
    with jlog.Reader(path) as reader:
        return [
            Fields(
                record.value,
                record.key,
                tuple(h for h in record.headers if with_ours or not h[0].startswith("jlog.kafka.")),
                record.timestamp_us // 1000,
            )
            for record in reader
        ]


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]
