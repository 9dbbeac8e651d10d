"""A compacted topic of one partition, used as a table of the newest value of each key."""

from __future__ import annotations

import json
import time
from typing import Any

from jlog.errors import JournalError
from jlog.kafka.client.cluster import COMPACTED, Cluster, Topic
from jlog.kafka.client.errors import BrokerError
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
