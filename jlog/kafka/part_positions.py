"""Lists where a mirror, a capture or a transform goes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jlog.flow.ends import SourcePosition
from jlog.flow.journals import read_source_positions as positions_in_journal
from jlog.journal import Journal
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.names import identity_of_topics
from jlog.kafka.client.settings import Config, End, Settings
from jlog.kafka.client.topology import matches
from jlog.kafka.client.url import is_topic_url, parse, parse_topics
from jlog.kafka.ends.topic_sink import read_source_positions as positions_in_topic

Url = str | os.PathLike[str]


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
        stored = _in_topic(str(sink), identity, config, config_file, ends)
    found = []
    for part, source_position in stored.items():
        if journal is not None and part == journal.uuid:
            found.append(PartPosition(journal.path, int(source_position["sequence"]), int(source_position["begin"])))
        elif matches(part.rpartition("/")[0], topics):
            found.append(PartPosition(part, int(source_position["offset"]), int(source_position["begin"])))
    return sorted(found, key=_by_partition)


def _in_topic(url: str, identity: str, config: Config, config_file: Any, ends: Sequence[End]) -> SourcePosition:
    at = parse(url)
    settings = Settings(at, config, config_file, ends)
    cluster = Cluster(settings)
    cluster.check(at.topic)
    table = settings.names.table(at.topic, identity)
    return positions_in_topic(cluster, table) if cluster.find(table) is not None else {}


def _by_partition(found: PartPosition) -> tuple[str, int]:
    topic, _, partition = found.part.rpartition("/")
    return topic, int(partition) if partition.isdecimal() else 0
