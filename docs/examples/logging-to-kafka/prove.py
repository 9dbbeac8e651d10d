"""Proves that each line of the journal is in the topic exactly once, and in order."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping

import jlog


def messages(servers: str, topic: str) -> Iterator[tuple[str, str]]:
    """Yields key and value of each committed message, as a consumer gets them that knows nothing of jlog."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings = {"bootstrap.servers": servers, "group.id": topic, "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    try:
        left = set(consumer.list_topics(topic).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            message = consumer.poll()
            if message.error() is None:
                yield message.key().decode(), message.value().decode()
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    finally:
        consumer.close()


def prove(journal: str, servers: str, topic: str, apps: Mapping[str, int | None]) -> None:
    """Compares the topic with the journal, and the journal with what each application has logged: so many lines, where the
    number is known."""
    logged, found = defaultdict(list), defaultdict(list)
    with jlog.Reader(journal) as reader:
        for record in reader:
            logged[(record.key or b"").decode()].append((record.value or b"").decode())
    for name, line in messages(servers, topic):
        found[name].append(line)
    print(f"{sum(map(len, logged.values()))} lines in the journal, {sum(map(len, found.values()))} messages in the topic")
    check(sorted(logged) == sorted(apps), "other processes have logged")
    for name, lines in logged.items():
        check(lines == [f"order {order} accepted" for order in range(len(lines))], f"the journal has lost lines of {name}")
        check(apps[name] in (None, len(lines)), f"the journal has lost the last lines of {name}")
    check(found == logged, "the topic does not have each line once and in order")
    print("each line is in the topic exactly once, in the order of its process")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"FAILED: {otherwise}")
