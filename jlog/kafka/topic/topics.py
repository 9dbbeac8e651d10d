"""Topics as journals: creates, shows and deletes them, and keeps their positions."""

from __future__ import annotations

import os
from contextlib import closing
from datetime import datetime
from typing import Any

from jlog.errors import JournalExists, SubscriberExists
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.names import is_ours
from jlog.kafka.client.settings import Config, Settings
from jlog.kafka.client.url import SCHEME, parse, parse_any
from jlog.kafka.topic import groups
from jlog.kafka.topic.partition import Partition
from jlog.options import Retention
from jlog.positions.names import Start, check_name, check_new_name
from jlog.positions.position_files import Position

SHOWN = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
)
ROLL_MS = {"minutely": 60_000, "hourly": 3_600_000, "daily": 86_400_000, "weekly": 604_800_000}


class TopicJournal:
    """The partition that a kafka:// URL names, with the methods of jlog.Journal to look at it and to keep its positions."""

    def __init__(self, url: str, *, config: Config = None, config_file: str | os.PathLike[str] | None = None) -> None:
        self._partition = Partition(url, config, config_file)

    def __repr__(self) -> str:
        return f"<jlog.kafka.TopicJournal {self._partition.url!r}>"

    @property
    def path(self) -> str:
        """URL of the partition."""
        return self._partition.url

    @property
    def uuid(self) -> str:
        """Id of the topic, which changes when the topic is deleted and created again."""
        return self._partition.topic.id

    # --- Contents ---------------------------------------------------------------------------------------------------

    @property
    def first_sequence(self) -> int:
        return self._partition.first()

    @property
    def next_sequence(self) -> int:
        return self._partition.end()

    def __len__(self) -> int:
        """Returns the number of offsets, which also counts ends of transactions and compacted records."""
        return self.next_sequence - self.first_sequence

    def __bool__(self) -> bool:
        return True

    @property
    def size_bytes(self) -> None:
        """None: clients do not know it."""

    def gaps(self) -> list[tuple[int, int]]:
        """Returns no gaps, for a topic does not list them."""
        return []

    def find(self, time: datetime) -> int:
        """Returns the offset of the first record at or after `time`, or the end where all records are earlier."""
        return self._partition.find(time)

    @property
    def options(self) -> dict[str, str]:
        """Settings of the topic, with the brokers' defaults."""
        return self._partition.cluster.config(self._partition.name)

    def info(self) -> dict[str, Any]:
        """Returns what `jlogtool info --json` prints."""
        partition = self._partition
        config = partition.cluster.config(partition.name)
        subscribers = [
            {"name": name, "sequence": at.sequence, "lag": at.lag, "busy": at.busy} for name, at in self.subscribers().items()
        ]
        checkpoints = [{"name": name, "sequence": at.sequence, "lag": at.lag} for name, at in self.checkpoints().items()]
        return {
            "path": self.path,
            "uuid": self.uuid,
            "partition": partition.number,
            "partitions": partition.topic.partitions,
            "replicas": partition.topic.replicas,
            "first_sequence": self.first_sequence,
            "next_sequence": self.next_sequence,
            "records": len(self),
            "compression": config.get("compression.type", ""),
            "retention": {name: config[name] for name in SHOWN if name in config},
            "subscribers": subscribers,
            "checkpoints": checkpoints,
            "skipped": [],
        }

    # --- Subscribers and checkpoints --------------------------------------------------------------------------------

    def subscribers(self) -> dict[str, Position]:
        """Returns every consumer group that has committed an offset in this partition."""
        first, end = self._partition.first(), self._partition.end()
        return {
            name: Position(offset, max(0, end - max(first, offset)), groups.is_busy(self._partition, name))
            for name, offset in groups.subscribers_of(self._partition).items()
        }

    def checkpoints(self) -> dict[str, Position]:
        first, end = self._partition.first(), self._partition.end()
        return {
            name: Position(at.offset, max(0, end - max(first, at.offset)), moved_us=at.moved_us)
            for name, at in self._partition.checkpoints().items()
        }

    def add_subscriber(self, name: str, start: Start = "begin", *, copy_of: str | None = None) -> None:
        """Creates a subscriber. Raises SubscriberExists where the group has an offset already."""
        check_new_name(name, "subscriber")
        there = groups.subscribers_of(self._partition)
        if name in there:
            raise SubscriberExists(f"{self.path} already has a subscriber {name!r}; remove it, or choose another name")
        if copy_of is not None and copy_of not in there:
            raise groups.not_found(self._partition, copy_of, there)
        self._commit(name, there[copy_of] if copy_of is not None else self._partition.kept(self._partition.find(start)))

    def remove_subscriber(self, name: str) -> None:
        """Removes the whole group, with its offsets in other topics too. Raises SubscriberBusy while it is read."""
        self._check_free(name)
        groups.remove(self._partition, name)

    def set_subscriber(self, name: str, position: Start) -> None:
        self._check_free(name)
        self._commit(name, self._partition.kept(self._partition.find(position)))

    def rewind(self, name: str, checkpoint: str) -> None:
        self._check_free(name)
        self._commit(name, self._partition.kept(self._partition.checkpoint(checkpoint)))

    def set_checkpoint(self, name: str, position: Start) -> None:
        check_new_name(name, "checkpoint")
        self._partition.set_checkpoint(name, self._partition.kept(self._partition.find(position)))

    def remove_checkpoint(self, name: str) -> None:
        self._partition.checkpoint(name)  # raises where there is none
        self._partition.set_checkpoint(name, None)

    def _commit(self, name: str, offset: int) -> None:
        with closing(groups.consumer_of(self._partition, name)) as consumer:
            groups.commit(consumer, self._partition, name, offset)

    def _check_free(self, name: str) -> None:
        check_name(name, "subscriber")
        there = groups.subscribers_of(self._partition)
        if name not in there:
            raise groups.not_found(self._partition, name, there)
        if groups.is_busy(self._partition, name):
            raise groups.busy(self._partition, name, " Reader")


def topic_config(
    compression: str | None = None,
    segment_bytes: int | None = None,
    roll: str | None = None,
    retention: Retention | None = None,
) -> dict[str, str]:
    """Turns options of a journal into settings of a topic that is created. Raises ValueError for options that a topic cannot
    have."""
    found = {}
    if compression is not None and compression != "none":
        found["compression.type"] = compression
    if segment_bytes is not None:
        found["segment.bytes"] = str(max(segment_bytes, 1 << 20))
    if roll is not None and roll != "never":
        if roll not in ROLL_MS:
            raise ValueError(f"roll must be one of never, {', '.join(ROLL_MS)}, not {roll!r}")
        found["segment.ms"] = str(ROLL_MS[roll])
    if retention is not None:
        for name in ("limit_bytes", "archive"):
            if getattr(retention, name) is not None:
                raise ValueError(f"a topic has no {name}; its brokers keep retention.bytes and retention.ms")
        if retention.max_bytes is not None:
            found["retention.bytes"] = str(retention.max_bytes)
        if retention.max_age is not None:
            found["retention.ms"] = str(int(retention.max_age.total_seconds() * 1000))
    return found


def create_journal(
    url: str,
    *,
    partitions: int = 1,
    replication_factor: int | None = None,
    exist_ok: bool = False,
    config: Config = None,
    config_file: str | os.PathLike[str] | None = None,
    compression: str | None = None,
    segment_bytes: int | None = None,
    roll: str | None = None,
    retention: Retention | None = None,
    **meaningless: Any,
) -> None:
    """Creates a topic. Raises JournalExists where one is there, unless `exist_ok`. Options of a journal become its settings;
    those of the pre-commit buffer and of syncing have no effect."""
    unknown = sorted(set(meaningless) - {"precommit", "sync", "sync_interval"})
    if unknown:
        raise TypeError(f"a topic has no option {', '.join(unknown)}")
    at = parse(url)
    cluster = Cluster(Settings(at, config, config_file))
    cluster.check(at.topic)
    created = cluster.create(
        at.topic, partitions, replication_factor, topic_config(compression, segment_bytes, roll, retention)
    )
    if not created and not exist_ok:
        raise JournalExists(f"{at} is already a topic; open it, or choose another name", str(at))


def delete_journal(url: str, *, config: Config = None, config_file: str | os.PathLike[str] | None = None) -> None:
    """Deletes the topic, with all its partitions. Raises SubscriberBusy while a TopicReader has the name of a subscriber."""
    at = parse(url)
    cluster = Cluster(Settings(at, config, config_file))
    cluster.check(at.topic)
    topic = cluster.topic(at.topic)
    for number in range(topic.partitions):
        partition = Partition(f"{SCHEME}{at.servers}/{at.topic}?partition={number}", config, config_file)
        for name in groups.subscribers_of(partition):
            if groups.is_busy(partition, name):
                raise groups.busy(partition, name, " Reader")
    cluster.delete(at.topic)


def list_topics(url: str, *, config: Config = None, config_file: str | os.PathLike[str] | None = None) -> list[str]:
    """Returns the URLs of the topics at kafka://HOST:PORT, of each partition where there are several, without the topics that
    jlog and Kafka keep for themselves."""
    at = parse_any(url)
    cluster = Cluster(Settings(at, config, config_file))
    cluster.check()
    found = []
    for name in cluster.names():
        if not is_ours(name) and (topic := cluster.find(name)) is not None:
            base = f"{SCHEME}{at.servers}/{name}"
            several = [f"{base}?partition={number}" for number in range(topic.partitions)]
            found += several if topic.partitions > 1 else [base]
    return found
