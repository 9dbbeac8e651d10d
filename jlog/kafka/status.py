"""Finds the flow between a journal and a topic, its progress, and where it goes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jlog.errors import JournalError
from jlog.flow.ends import Lag, SourcePosition
from jlog.flow.journals import journal_lag
from jlog.flow.journals import read_source_positions as positions_in_journal
from jlog.journal import Journal
from jlog.kafka.client.claims import OWNER
from jlog.kafka.client.clients import road
from jlog.kafka.client.cluster import Cluster, Topic, check_same
from jlog.kafka.client.lag import topics_lag
from jlog.kafka.client.names import identity_of_topics
from jlog.kafka.client.settings import Config, End, Settings
from jlog.kafka.client.streams import OpenTransaction, open_transactions
from jlog.kafka.client.table import check_prefix, read_table, wait_until_seen
from jlog.kafka.client.topology import matches
from jlog.kafka.client.url import TopicUrl, is_topic_url, parse, parse_topics
from jlog.kafka.ends.topic_sink import SINK, stored_in_topic

Url = str | os.PathLike[str]

TO_KAFKA, FROM_KAFKA = "to-kafka", "from-kafka"


@dataclass(frozen=True)
class Status:
    """The progress of a mirror or a capture. `sequence` is that of the next record that a mirror moves; `offsets` are those of
    the next message of each partition that a capture reads. `owner` is the process that mirrored last. `road` says how
    the brokers are reached with the settings that were given. `open_transactions` are those that hide records of the topic from
    readers now."""

    direction: str
    journal: str
    topic: str
    lag: Lag
    sequence: int | None = None
    offsets: dict[int, int] = field(default_factory=dict)
    owner: dict[str, Any] = field(default_factory=dict)
    road: str = ""
    open_transactions: list[OpenTransaction] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        where: dict[str, Any] = {"sequence": self.sequence, "owner": self.owner}
        if self.direction == FROM_KAFKA:
            where = {"offsets": {str(partition): offset for partition, offset in self.offsets.items()}}
        return {
            "direction": self.direction,
            "journal": self.journal,
            "topic": self.topic,
            **where,
            "lag": self.lag.records,
            "lag_bytes": self.lag.bytes,
            "lag_seconds": self.lag.seconds,
            "road": self.road,
            "open_transactions": [one._asdict() for one in self.open_transactions],
        }


@dataclass(frozen=True)
class Pair:
    """A journal and a topic, with what is known of the flow between them."""

    journal: Journal
    url: TopicUrl
    cluster: Cluster
    direction: str
    source_positions: SourcePosition  # the source position, and the sink's own rows
    owner: dict[str, Any]

    def topic(self) -> Topic:
        """Returns the topic. Raises TopicChanged where it is not the one that records were moved to or from."""
        found = self.cluster.topic(self.url.topic)
        rows = [self.source_positions[SINK]] if self.direction == TO_KAFKA else self.source_positions.values()
        ids = {str(row["topic_id"]) for row in rows}
        return found if not ids or found.id in ids else self.check_is(found, ids.pop())

    def check_is(self, topic: Topic, topic_id: str) -> Topic:
        after = f"Nothing can be compared with {self.journal.path}; `jlogtool mirror positions set` says where to go on"
        return check_same(str(self.url), topic, topic_id, after)


def find_pair(
    journal: str | os.PathLike[str], url: str, config: Config = None, config_file: str | os.PathLike[str] | None = None
) -> Pair:
    """Finds the flow. Raises JournalError where nothing was ever moved between the two."""
    at = parse(url)
    opened = Journal(journal)
    cluster = Cluster(Settings(at, config, config_file))
    cluster.check(at.topic)
    table = cluster.settings.names.table(at.topic, opened.uuid)
    # A user who may only capture may not ask for the table by its name.
    if table in cluster.names():
        wait_until_seen(cluster, table)
        source_positions: SourcePosition = read_table(cluster, table)
        owner = source_positions.pop(OWNER, {})
        if opened.uuid in source_positions:
            return Pair(opened, at, cluster, TO_KAFKA, source_positions, owner)
    prefix = f"{at.topic}/"
    source_positions = {
        name[len(prefix) :]: source_position
        for name, source_position in positions_in_journal(journal).items()
        if name.startswith(prefix)
    }
    if not source_positions:
        cluster.find(table)  # raises an error where this user may not see it
        check_prefix(cluster, table)
        raise JournalError(
            f"nothing was ever mirrored between {opened.path} and {at}; `jlogtool mirror to-kafka` or `mirror from-kafka` does"
        )
    return Pair(opened, at, cluster, FROM_KAFKA, source_positions, {})


def status(
    journal: str | os.PathLike[str], url: str, *, config: Config = None, config_file: str | os.PathLike[str] | None = None
) -> Status:
    """Returns the progress of the mirror or capture between the two, which may be running. Raises JournalError where there is
    none."""
    pair = find_pair(journal, url, config, config_file)
    common: dict[str, Any] = {"journal": pair.journal.path, "topic": str(pair.url), "road": road(pair.cluster.settings)}
    if pair.direction == TO_KAFKA:
        if pair.url.topic in pair.cluster.names():  # a user who may only read the table does not see it
            common["open_transactions"] = _open_in(pair)
        sequence = int(pair.source_positions[pair.journal.uuid]["sequence"])
        return Status(TO_KAFKA, lag=journal_lag(pair.journal, sequence), sequence=sequence, owner=pair.owner, **common)
    topic = pair.topic()
    common["open_transactions"] = _open_in(pair)
    rows = [(int(partition), row) for partition, row in pair.source_positions.items() if row["topic_id"] == topic.id]
    offsets = {partition: int(row["offset"]) for partition, row in sorted(rows)}
    if pair.url.partition is None:  # those that were added since are captured from the first record on
        offsets |= dict.fromkeys(range(max(offsets) + 1, topic.partitions), 0)
    lag = topics_lag(pair.cluster, {(pair.url.topic, partition): offset for partition, offset in offsets.items()})
    return Status(FROM_KAFKA, lag=lag, offsets=offsets, **common)


def _open_in(pair: Pair) -> list[OpenTransaction]:
    topic = pair.topic()
    return open_transactions(pair.cluster, topic, pair.cluster.hidden_from(topic))


# --- Part by part ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartPosition:
    """A part of a source position. `part` is TOPIC/PARTITION, or the path of a journal. `position` is the sequence or offset of
    the next record, and `begin` is where the flow began."""

    part: str
    position: int
    begin: int


def positions(
    source: Url, sink: Url, *, name: str | None = None, config: Config = None, config_file: str | os.PathLike[str] | None = None
) -> list[PartPosition]:
    """Lists where the flow between the two goes on, part by part. The flow may be running. Each end is the path of a journal or
    the URL of a topic; a source may also be several topics or patterns. Returns nothing where nothing was ever moved.

    name: of a transform from topics to a topic that has one.
    """
    journal = None if is_topic_url(source) else Journal(source)
    topics = () if journal is not None else parse_topics(str(source)).topics
    if not is_topic_url(sink):
        stored = positions_in_journal(sink)
    else:
        identity = journal.uuid if journal is not None else name or identity_of_topics(topics)
        ends: Sequence[End] = ["sink"] if journal is not None else ["sink", "source"]
        at = parse(str(sink))
        cluster = Cluster(Settings(at, config, config_file, ends))
        cluster.check(at.topic)
        stored = stored_in_topic(cluster, at.topic, identity)
    found = []
    for part, source_position in stored.items():
        if journal is not None and part == journal.uuid:
            found.append(PartPosition(journal.path, int(source_position["sequence"]), int(source_position["begin"])))
        elif matches(part.rpartition("/")[0], topics):
            found.append(PartPosition(part, int(source_position["offset"]), int(source_position["begin"])))
    return sorted(found, key=_by_partition)


def _by_partition(found: PartPosition) -> tuple[str, int]:
    topic, _, partition = found.part.rpartition("/")
    return topic, int(partition) if partition.isdecimal() else 0
