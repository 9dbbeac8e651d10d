"""Mirrors a journal to a topic, and captures topics into a journal, each exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import Any

from jlog.errors import JournalError
from jlog.flow.engine import Flow
from jlog.flow.journals import JournalSink, JournalSource
from jlog.flow.journals import read_source_positions as positions_in_journal
from jlog.flow.options import FlowOptions, nothing
from jlog.flow.records import RecordLike
from jlog.journal import Journal
from jlog.kafka.client.cluster import Cluster, Topic
from jlog.kafka.client.settings import End, Settings
from jlog.kafka.client.topology import matching_topics
from jlog.kafka.client.url import TopicUrl, parse, parse_topics
from jlog.kafka.ends.messages import Key, no_key, origin_for_standby, sequence_of
from jlog.kafka.ends.standby_source import MARK
from jlog.kafka.ends.topic_letters import open_letters
from jlog.kafka.ends.topic_sink import SINK, TopicSink, read_source_positions
from jlog.kafka.ends.topic_source import TopicSource
from jlog.positions.names import Start


class Mirror(Flow):
    """Moves every record of the journal to a topic, once: exactly once for consumers that read committed.

    The topic's transactions store the journal's position in a table beside it (jlog.mirror.TOPIC.UUID), and that alone says
    where a mirror goes on, whatever was killed. A second mirror of the same journal to the same topic, on any machine, fences
    the first. Before a transaction commits, the journal is synced up to its position.

    subscriber: the name that the mirror holds, so that retention keeps the records which are not mirrored. None needs no write
        access, mirrors only synced records and holds nothing back.
    start: where a new mirror begins.
    key: "record", "none" or "header:NAME", or a function of the record.
    sequence_header: each message has the sequence of its record as the header jlog.kafka.sequence.
    standby: sends what a standby needs (jlog.kafka.Standby): also the time in microseconds, and the journal's subscribers,
        checkpoints and options.
    partitions, replication_factor: for a topic that has to be created, unless create=False.
    options: see FlowOptions.

    Raises Fenced, TopicChanged, RecordRefused, PositionLost, SubscriberBusy or BrokerError where it cannot go on.

        mirror = jlog.kafka.Mirror("/var/lib/orders", "kafka://localhost:9092/orders")
        mirror.run()    # until mirror.stop(); or mirror.step() again and again
    """

    def __init__(
        self,
        journal: str | os.PathLike[str],
        url: str,
        *,
        subscriber: str | None = "",
        start: Start = "begin",
        key: str | Key = "record",
        partitions: int = 1,
        replication_factor: int | None = None,
        create: bool = True,
        sequence_header: bool = False,
        standby: bool = False,
        **options: Any,
    ) -> None:
        given = FlowOptions.only(options)
        if given.function is not None and (sequence_header or standby):
            raise ValueError(
                "the records of a transform have no sequence of the journal: leave out sequence_header and standby"
            )
        at = parse(url)
        settings = Settings(at, given.config, given.config_file, ["sink"])

        def open_source() -> JournalSource:
            name = default_subscriber(at.topic) if subscriber == "" else subscriber
            skip_missing, on_event = given.skip_missing, given.on_event
            return JournalSource(journal, name, start=start, skip_missing=skip_missing, for_standby=standby, on_event=on_event)

        def open_sink(source: JournalSource) -> TopicSink:
            return TopicSink(
                settings,
                at.topic,
                source.identity,
                stop=given.stop,
                key=key if callable(key) else key_of(key),
                partition=at.partition,
                partitions=partitions,
                replication_factor=replication_factor,
                create=create,
                check_topic=lambda topic: _check_not_captured(source.journal, topic, str(at)),
                origin=origin_for_standby if standby else sequence_of if sequence_header else None,
                about={"key": key if isinstance(key, str) else "function", "transform": given.function is not None},
            )

        super().__init__(given, open_source, open_sink, open_letters)


class Capture(Flow):
    """Moves every record of one or several topics into a journal, once.

    One atomic append holds a batch of records and the next offset of every partition, so that the journal itself says where to
    go on. A record keeps value, key, headers and time; headers that begin with jlog.kafka. name its partition and offset, and
    its topic where there are several. Records of one partition keep their order. Only committed records are read. One process
    at a time captures into a journal; others may append to it.

    url: kafka://HOST:PORT/TOPIC[,TOPIC], also with patterns (orders.*), or with ?partition=N.
    start: "begin", "end", a time, or an offset of a single partition, for partitions that were not captured before.
    group: a consumer group to which the capture commits its offsets, without being a member, so that tools which watch groups
        see its lag. It does not go on from there.
    exclude: patterns of topics that are not captured, though a pattern of the URL matches them.
    options: see FlowOptions. The others are those of jlog.Writer.

    Raises TopicChanged, PositionLost, JournalLocked, BrokerError or OSError where it cannot go on.
    """

    def __init__(
        self,
        url: str,
        journal: str | os.PathLike[str],
        *,
        start: Start = "begin",
        exclude: Collection[str] = (),
        group: str | None = None,
        **options: Any,
    ) -> None:
        given = FlowOptions.take(options)
        at = parse_topics(url)

        def check(source: TopicSource) -> None:
            _check_not_mirrored(source.cluster, matching_topics(source.cluster, at.topics, exclude), journal)

        def open_source() -> TopicSource:
            about = {"transform": True} if given.function is not None else {}
            return open_topics(at, given, check=check, start=start, exclude=exclude, group=group, about=about)

        super().__init__(given, open_source, lambda _: JournalSink(journal, **options), open_letters)


def open_topics(
    url: TopicUrl,
    options: FlowOptions,
    ends: Sequence[End] = ("source",),
    check: Callable[[TopicSource], None] = nothing,
    **more: Any,
) -> TopicSource:
    """Opens topics as a source, once they can be read: no journal is created for one that cannot. check: raises an error where
    they must not be moved."""
    source = TopicSource(
        Settings(url, options.config, options.config_file, ends),
        url,
        stop=options.stop,
        skip_missing=options.skip_missing,
        on_event=options.on_event,
        **more,
    )
    try:
        source.cluster.check(url.topics[0])
        check(source)
    except BaseException:
        source.close()
        raise
    return source


def default_subscriber(topic: str) -> str:
    return f"kafka:{topic}"


def key_of(choice: str) -> Key | None:
    """Returns the function for a key: "record" takes the record's own, "none" takes none, "header:NAME" takes the value of this
    header, if it is there."""
    if choice == "record":
        return None
    if choice == "none":
        return no_key
    kind, _, name = choice.partition(":")
    if kind != "header" or not name:
        raise ValueError(f"key must be record, none or header:NAME, not {choice!r}")

    def from_header(record: RecordLike) -> bytes | None:
        return next((value for header, value in record.headers if header == name), None)

    return from_header


# --- Circles: a mirror and a capture that each would move what the other has moved, for ever ----------------------------


def _check_not_captured(journal: Journal, topic: Topic, where: str) -> None:
    """Raises JournalError where the journal has captured this very topic."""
    stored = positions_in_journal(journal.path)
    if MARK in stored:
        return  # a standby that takes over goes on in the topic that it was read from
    captured = [part for part in stored if part.rpartition("/")[0] == topic.name]
    if any(stored[part].get("topic_id") == topic.id for part in captured):
        raise JournalError(
            f"{journal.path} has captured {where}: a mirror back would bring each record again, for ever. Mirror to another "
            f"topic; or capture into a journal of its own"
        )


def _check_not_mirrored(cluster: Cluster, topics: Sequence[str], path: str | os.PathLike[str]) -> None:
    """Raises JournalError where the journal is mirrored to one of these very topics. The journal need not exist."""
    if not os.path.exists(os.path.join(path, "journal.meta")):
        return
    journal = Journal(path)
    tables = {cluster.settings.names.table(name, journal.uuid): name for name in topics}
    there = set(cluster.names())  # a user who may only capture may ask for no table by its name
    mirrored = cluster.topics([table for table in tables if table in there])
    found = cluster.topics([tables[table] for table in mirrored])
    for table in mirrored:
        sink = read_source_positions(cluster, table).get(SINK)
        topic = found.get(tables[table])
        if sink is not None and topic is not None and sink["topic_id"] == topic.id:
            raise JournalError(
                f"{journal.path} is mirrored to kafka://{cluster.settings.servers}/{topic.name}: a capture of it would bring "
                f"each record again, for ever. Capture into a journal of its own"
            )
