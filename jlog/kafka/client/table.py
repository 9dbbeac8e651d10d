"""A compacted topic of one partition, used as a table of the newest value of each key."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from jlog.errors import JournalError
from jlog.kafka.client.background import answer_of
from jlog.kafka.client.cluster import ANSWER_SECONDS, COMPACTED, Cluster, Topic
from jlog.kafka.client.errors import BrokerError, told
from jlog.kafka.client.streams import Stream

SEEN_SECONDS = 2.0


def ensure_table(cluster: Cluster, name: str, replication_factor: int | None) -> Topic:
    """Creates the table if there is none, and returns it. Raises BrokerError if a topic of this name is not
    compacted: retention would remove its rows."""
    topic, _ = cluster.ensure(name, replication_factor=replication_factor, config=COMPACTED)
    policy = cluster.config(name).get("cleanup.policy", "compact")
    if topic.partitions != 1 or policy != "compact":
        raise BrokerError(
            f"{cluster.settings.servers}: topic {name} keeps positions, and has {topic.partitions} partitions and "
            f"cleanup.policy={policy}; it must have 1 and compact: set it so, or delete the topic"
        )
    return topic


def write_row(cluster: Cluster, name: str, key: str, row: object, what: str) -> None:
    """Writes the row into the table, outside of any transaction, and returns when the brokers have it. row: None removes it.
    what: the purpose, for an error."""
    failed: list[Any] = []
    value = None if row is None else json.dumps(row).encode()
    with told(what, cluster.settings, f"Write on topic {name}"):
        # A row that is written twice is the same. To be idempotent, a producer needs a right to write to begin with, and
        # without one it breaks instead of saying which. A time limit that the user gives is for records.
        conf = cluster.settings.for_producer(
            linger_ms=0,
            message_timeout_ms=round(ANSWER_SECONDS * 1000),
            enable_idempotence=False,
            enable_gapless_guarantee=False,  # which needs it
        )
        # Successes are not reported (delivery.report.only.error).
        producer = Producer({**conf, "on_delivery": lambda error, _: failed.append(error)})
        # Otherwise the client asks for the topic's leader by itself, half a second later.
        answer_of(partial(producer.list_topics, name, ANSWER_SECONDS), cluster.stop)
        producer.produce(name, value, key.encode())
        until = time.monotonic() + ANSWER_SECONDS
        while producer.flush(cluster.stop.slice()) and time.monotonic() < until:
            pass
        is_late = len(producer) > 0 or (failed and failed[0].code() == KafkaError._MSG_TIMED_OUT)
        if is_late or failed:
            producer.purge()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT) if is_late else failed[0])


def check_prefix(cluster: Cluster, name: str) -> None:
    """Raises JournalError if a table that does not exist is there under another prefix, as far as this user sees it."""
    others = cluster.settings.names.with_other_prefix(name, cluster.names())
    if others:
        prefix = cluster.settings.names.prefix
        raise JournalError(
            f"{cluster.settings.servers}: there is no topic {name}, but {', '.join(others)} has these positions under another "
            f"prefix than {prefix!r}. Give that prefix (-X prefix=…), or delete that topic to begin anew"
        )


def wait_until_seen(cluster: Cluster, name: str) -> None:
    """Returns once readers of committed records see every transaction that was committed before this call: the brokers confirm
    one to its producer a moment earlier. Returns after SEEN_SECONDS at the latest, as where a killed producer has left a
    transaction open."""
    table = [(name, 0)]
    end, until = cluster.ends_of(table, committed=False)[name, 0], time.monotonic() + SEEN_SECONDS
    while cluster.ends_of(table)[name, 0] < end and time.monotonic() < until:
        time.sleep(0.01)


def read_table(cluster: Cluster, name: str, *, committed: bool = True, begin: int = 0) -> dict[str, Any]:
    """Returns the rows, which are JSON, as the last committed transaction has left them, without those that were removed.
    committed: False also takes the rows of transactions that were aborted or are still open, and those after the first of
    these. begin: leaves out the rows before this offset."""
    rows: dict[str, bytes] = {}
    # For a moment a broker that has just become the leader hands out fewer rows than its predecessor has acknowledged.
    end = cluster.ends_of([(name, 0)], committed=committed)[name, 0]
    isolation = "read_committed" if committed else "read_uncommitted"
    # Offset 0 is asked for at once; OFFSET_BEGINNING costs the client half a second. The rest is the table if offset 0 is gone.
    how = {"auto_offset_reset": "earliest", "fetch_wait_max_ms": 10, "isolation_level": isolation}
    for message in Stream(cluster, name, 0, begin, end, **how):
        key, value = (message.key() or b"").decode(), message.value()
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return {key: json.loads(value) for key, value in rows.items()}
