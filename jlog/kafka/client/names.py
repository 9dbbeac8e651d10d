"""What jlog calls its own things in Kafka."""

from __future__ import annotations

import hashlib

OURS_PREFIX = "jlog.kafka."  # of the headers that a capture adds
PARTITION, OFFSET, TOPIC = "jlog.kafka.partition", "jlog.kafka.offset", "jlog.kafka.topic"
CHECKPOINTS = "jlog.checkpoints"
_MARKS = "jlog.mirror."
_TOPIC_NAME_MAX = 249


def marks_topic(topic: str, identity: str) -> str:
    """The table in which a mirror to `topic` keeps its positions; one for each, so that no other's open transaction hides
    what stands in it. Its transactional id has the same name."""
    name = f"{_MARKS}{topic}.{identity}"
    if len(name) <= _TOPIC_NAME_MAX:
        return name
    return f"{_MARKS}{hashlib.sha256(name.encode()).hexdigest()}"


def is_ours(topic: str) -> bool:
    return topic.startswith(_MARKS) or topic == CHECKPOINTS
