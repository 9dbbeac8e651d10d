"""The names of jlog's own topics, groups, transactional ids and headers in Kafka."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

OURS_PREFIX = "jlog.kafka."  # beginning of the headers that a capture adds
PARTITION, OFFSET, TOPIC = "jlog.kafka.partition", "jlog.kafka.offset", "jlog.kafka.topic"
SEQUENCE, TIMESTAMP = "jlog.kafka.sequence", "jlog.kafka.timestamp_us"  # of the record that a mirror has sent
_CHECKPOINTS = "jlog.checkpoints"
_MARKS = "jlog.mirror."
_TOPIC_NAME_MAX = 249
_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,100}\Z")


@dataclass(frozen=True)
class Names:
    """The names of the topics, groups and ids that jlog keeps for itself in one cluster. All begin with `prefix`."""

    prefix: str = ""

    def __post_init__(self) -> None:
        if not _PREFIX.match(self.prefix):
            raise ValueError(f"prefix={self.prefix}: a prefix has at most 100 characters, of A-Z, a-z, 0-9, '.', '_', '-'")

    @property
    def checkpoints(self) -> str:
        return self.prefix + _CHECKPOINTS

    @property
    def group(self) -> str:
        """Names the group of consumers that are in none: the client needs a name."""
        return f"{self.prefix}jlog"

    def registration(self, topic: str, partition: int, subscriber: str) -> str:
        """Names the group whose only member is the reader that holds the subscriber's name."""
        return f"{self.prefix}jlog.reader.{topic}.{partition}.{subscriber}"

    def writer(self) -> str:
        """Returns a new transactional id for a writer."""
        return f"{self.prefix}jlog.writer.{secrets.token_hex(16)}"

    def table(self, topic: str, identity: str) -> str:
        """Names the table in which a mirror to `topic` stores its source position, which is its transactional id too. Each
        mirror has its own table, so that no open transaction of another one hides its rows."""
        name = f"{_MARKS}{topic}.{identity}"
        if len(self.prefix + name) > _TOPIC_NAME_MAX:
            name = _MARKS + hashlib.sha256(name.encode()).hexdigest()
        return self.prefix + name

    def with_other_prefix(self, table: str, among: Sequence[str]) -> list[str]:
        """Returns the tables `among` these topics that have the name of `table` after another prefix."""
        name = table[len(self.prefix) :]
        return [other for other in among if other != table and other.endswith(name)]


def identity_of_topics(topics: Sequence[str]) -> str:
    """Names a transform from these topics in its sink, where it has no other name."""
    return hashlib.sha256(",".join(topics).encode()).hexdigest()[:16]


def is_ours(topic: str) -> bool:
    """Says whether the topic is a table of jlog, with any prefix: no pattern matches it."""
    return _MARKS in topic or topic.endswith(_CHECKPOINTS)
