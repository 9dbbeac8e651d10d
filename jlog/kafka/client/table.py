"""A compacted topic of one partition, used as a table of the newest value of each key."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from jlog.errors import JournalError
from jlog.flow.stop import Stop
from jlog.kafka.client.cluster import ANSWER_SECONDS, COMPACTED, Cluster, Topic
from jlog.kafka.client.errors import BrokerError, is_without_group, told

ROWS_AT_ONCE = 1_000


def ensure_table(cluster: Cluster, name: str, replication_factor: int | None, create: bool = True) -> tuple[Topic, bool]:
    """Makes the table where there is none. Returns also whether it did. Raises BrokerError where a topic of this name is not
    compacted: retention would remove its rows."""
    topic, made = cluster.ensure(name, replication_factor=replication_factor, config=COMPACTED, create=create)
    policy = cluster.config(name).get("cleanup.policy", "compact")
    if topic.partitions != 1 or policy != "compact":
        raise BrokerError(
            f"{cluster.settings.servers}: topic {name} keeps positions, and has {topic.partitions} partitions and "
            f"cleanup.policy={policy}; it must have 1 and compact: set it so, or delete the topic"
        )
    return topic, made


def check_prefix(cluster: Cluster, name: str) -> None:
    """Raises JournalError where a table that does not exist is there behind another prefix, as far as this user sees it."""
    others = cluster.settings.names.with_other_prefix(name, cluster.names())
    if others:
        prefix = cluster.settings.names.prefix
        raise JournalError(
            f"{cluster.settings.servers}: there is no topic {name}, but there is {', '.join(others)}, with the positions of "
            f"the same under another prefix than {prefix!r}. Give that one (-X prefix=…), or delete the topic to begin anew"
        )


def read_table(cluster: Cluster, name: str, stop: Stop, *, committed: bool = True, begin: int = 0) -> dict[bytes, bytes]:
    """Returns the rows as the last committed transaction has left them, without those whose value is null. committed: False
    also takes the rows of transactions that were aborted or are still open, and those behind the first of these. begin: leaves
    out the rows before this offset."""
    settings, rows = cluster.settings, dict[bytes, bytes]()
    # For a moment a broker that has just become the leader hands out fewer rows than its predecessor has acknowledged.
    end = cluster.ends_of([(name, 0)], committed=committed)[name, 0]
    with told(f"reading topic {name}", settings, f"Read on topic {name}"):
        # Offset 0 is asked for at once; OFFSET_BEGINNING costs the client half a second. Where offset 0 is gone, the rest is
        # the table.
        isolation = "read_committed" if committed else "read_uncommitted"
        conf = settings.for_consumer(auto_offset_reset="earliest", fetch_wait_max_ms=10, isolation_level=isolation)
        consumer = Consumer(conf)
        try:
            consumer.assign([TopicPartition(name, 0, begin)])
            until = time.monotonic() + ANSWER_SECONDS
            while True:
                for message in consumer.consume(1, stop.slice()) + consumer.consume(ROWS_AT_ONCE, 0):
                    error = message.error()
                    if error is not None:
                        if is_without_group(error):
                            continue
                        if error.code() != KafkaError._PARTITION_EOF:
                            raise KafkaException(error)
                        if message.offset() >= end:
                            return rows
                        continue
                    until = time.monotonic() + ANSWER_SECONDS
                    key, value = message.key() or b"", message.value()
                    if value is None:
                        rows.pop(key, None)
                    else:
                        rows[key] = value
                if time.monotonic() > until:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        finally:
            consumer.close()
