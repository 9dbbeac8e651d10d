"""Says what a mirror or a capture would do, with warnings about the topic."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from jlog.flow.ends import SourcePosition, changed_by
from jlog.flow.journals import check_source_position, journal_lag, read_source_positions
from jlog.flow.stop import Stop
from jlog.journal import Journal
from jlog.kafka.client.cluster import Cluster
from jlog.kafka.client.rules import Rules
from jlog.kafka.client.settings import Config, Settings
from jlog.kafka.client.url import parse, parse_topics
from jlog.kafka.ends.topic_sink import stored_in_topic
from jlog.kafka.ends.topic_source import TopicSource
from jlog.kafka.mirrors import default_subscriber, key_of
from jlog.positions.names import Start
from jlog.reading.reader import Reader

SCAN_RECORDS = 1_000_000


def plan_mirror(
    journal: str | os.PathLike[str],
    url: str,
    *,
    subscriber: str | None = "",
    start: Start = "begin",
    key: str = "record",
    partitions: int = 1,
    config: Config = None,
    config_file: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Says what `mirror to-kafka` would do, and changes nothing: where it would begin, how many records there are, and which of
    the first million the topic would refuse."""
    at = parse(url)
    settings = Settings(at, config, config_file, ["sink"])
    opened = Journal(journal)
    source_positions, rules = source_positions_and_rules(settings, at.topic, opened.uuid)
    topic = Cluster(settings).find(at.topic)
    source_position = source_positions.get(opened.uuid)
    name = default_subscriber(at.topic) if subscriber == "" else subscriber
    if source_position is not None:
        check_source_position(opened, source_position)
        begin: Start = int(source_position["sequence"])
    elif name in opened.subscribers():
        begin = opened.subscribers()[name].sequence
    else:
        begin = start
    with Reader(journal, start=begin) as reader:
        sequence = reader.position
        refused, oldest_us = _scan(reader, rules, key)
    lag = journal_lag(opened, sequence)
    return {
        "journal": opened.path,
        "topic": str(at),
        "create": topic is None,
        "partitions": partitions if topic is None else topic.partitions,
        "subscriber": name,
        "sequence": sequence,
        "records": lag.records,
        "bytes": lag.bytes,
        "refused": refused,
        "warnings": rules.warnings(oldest_us),
        "settings": settings.shown(),
    }


def source_positions_and_rules(settings: Settings, topic: str, identity: str) -> tuple[SourcePosition, Rules]:
    """Returns the source position that a sink of this identity has stored in the topic, and the rules of the topic, which need
    not exist yet."""
    cluster = Cluster(settings)
    cluster.check(topic)
    rules = Rules(cluster.config(topic) if cluster.find(topic) is not None else {})
    return stored_in_topic(cluster, topic, identity), rules


def _scan(reader: Reader, rules: Rules, key: str) -> tuple[list[dict[str, Any]], int | None]:
    """Returns the first records that the topic would refuse, and the oldest time of all."""
    key_from = key_of(key)
    refused: list[dict[str, Any]] = []
    oldest: int | None = None
    left = SCAN_RECORDS
    while left > 0 and len(batch := reader.read(min(left, 10_000))):
        left -= len(batch)
        for record in batch:
            own = record.key if key_from is None else key_from(record)
            reason = rules.refusal(record, own)
            if reason and len(refused) < 100:
                refused.append({"sequence": record.sequence, "reason": reason})
            oldest = record.timestamp_us if oldest is None else min(oldest, record.timestamp_us)
    return refused, oldest


def plan_capture(
    url: str,
    journal: str | os.PathLike[str],
    *,
    start: Start = "begin",
    exclude: Collection[str] = (),
    config: Config = None,
    config_file: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Says what `mirror from-kafka` would do, and changes nothing."""
    at = parse_topics(url)
    settings = Settings(at, config, config_file, ["source"])
    exists = os.path.exists(journal)
    source = TopicSource(settings, at, stop=Stop(), start=start, exclude=exclude)
    try:
        source.resume(read_source_positions(journal) if exists else {})
        source_positions = changed_by({}, source.source_positions())
        lag = source.lag(source_positions)
    finally:
        source.close()
    return {
        "topics": str(at),
        "journal": os.path.abspath(journal),
        "create": not exists,
        "offsets": {name: source_position["offset"] for name, source_position in sorted(source_positions.items())},
        "records": lag.records,
        "bytes": lag.bytes,
        "settings": settings.shown(),
    }
