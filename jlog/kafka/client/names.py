"""The names of jlog's own topics and headers in Kafka."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

OURS_PREFIX = "jlog.kafka."  # beginning of the headers that a capture adds
PARTITION, OFFSET, TOPIC = "jlog.kafka.partition", "jlog.kafka.offset", "jlog.kafka.topic"
SEQUENCE, TIMESTAMP = "jlog.kafka.sequence", "jlog.kafka.timestamp_us"  # of the record that a mirror has sent
CHECKPOINTS = "jlog.checkpoints"
_MARKS = "jlog.mirror."
_TOPIC_NAME_MAX = 249


def positions_topic(topic: str, identity: str) -> str:
    """Names the table in which a mirror to `topic` stores its source position, which is its transactional id too. Each mirror
    has its own table, so that no open transaction of another one hides its rows."""
    name = f"{_MARKS}{topic}.{identity}"
    if len(name) <= _TOPIC_NAME_MAX:
        return name
    return f"{_MARKS}{hashlib.sha256(name.encode()).hexdigest()}"


def identity_of_topics(topics: Sequence[str]) -> str:
    """Names a transform from these topics in its sink, where it has no other name."""
    return hashlib.sha256(",".join(topics).encode()).hexdigest()[:16]


def is_ours(topic: str) -> bool:
    return topic.startswith(_MARKS) or topic == CHECKPOINTS
