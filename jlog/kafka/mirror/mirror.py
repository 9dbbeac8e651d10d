"""Mirrors a journal to a topic, and captures topics into a journal, each exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from jlog.flow.engine import LINGER_SECONDS, Flow, nothing
from jlog.flow.journals import JournalSink, JournalSource
from jlog.flow.letters import check_policy
from jlog.flow.records import Function, RecordLike
from jlog.flow.refusals import Policy
from jlog.flow.stop import Stop
from jlog.kafka.client.errors import at_once
from jlog.kafka.client.names import identity_of_topics
from jlog.kafka.client.settings import Config, Settings
from jlog.kafka.client.topology import matching_topics
from jlog.kafka.client.url import parse, parse_topics
from jlog.kafka.mirror.circles import check_not_captured, check_not_mirrored
from jlog.kafka.mirror.letters import letters_at, topic_beside
from jlog.kafka.mirror.sink import Key, TopicSink, no_key, origin_for_standby, sequence_of
from jlog.kafka.mirror.source import TopicSource
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
    partitions, replication_factor: for a topic that has to be made, unless create=False.
    function: turns each record into a record, a list of records, or None.
    refused: "stop", "skip" or "dead-letter", for records that the topic or the function refuses.
    dead_letter: with refused="dead-letter", a topic, or the path of a journal. A name is that of a topic beside this one.
    until_end: run() ends where the journal ended when it began.
    rate: records a second, at most.
    linger: seconds that a transaction waits for more records (see Flow): 0.01 for a low latency.
    skip_missing: goes on behind records that retention has removed.
    config, config_file: settings of librdkafka (see Settings).
    on_event: is called with each line that a person should see.
    on_commit: is called with the number of records of each transaction.
    stop: a request to stop that several flows share.

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
        function: Function | None = None,
        refused: Policy = "stop",
        dead_letter: str | os.PathLike[str] | None = None,
        until_end: bool = False,
        rate: float | None = None,
        linger: float = LINGER_SECONDS,
        skip_missing: bool = False,
        partitions: int = 1,
        replication_factor: int | None = None,
        create: bool = True,
        sequence_header: bool = False,
        standby: bool = False,
        config: Config = None,
        config_file: str | os.PathLike[str] | None = None,
        on_event: Callable[[str], None] = nothing,
        on_commit: Callable[[int], None] = nothing,
        stop: Stop | None = None,
    ) -> None:
        at = parse(url)
        if function is not None and (sequence_header or standby):
            raise ValueError("a transform makes records that have no sequence: no header can have it, and no standby its place")
        settings = Settings(at, config, config_file, ["sink"])
        name = default_subscriber(at.topic) if subscriber == "" else subscriber
        stop = stop or Stop()
        check_policy(refused, dead_letter)
        beside = topic_beside(dead_letter, at.servers)
        source = JournalSource(journal, name, start=start, skip_missing=skip_missing, for_standby=standby, on_event=on_event)
        try:
            sink = TopicSink(
                settings,
                at.topic,
                source.journal.uuid,
                stop=stop,
                key=key if callable(key) else key_of(key),
                partition=at.partition,
                dead_letter=beside,
                partitions=partitions,
                replication_factor=replication_factor,
                create=create,
                check_topic=lambda topic: check_not_captured(source.journal, topic, str(at)),
                origin=origin_for_standby if standby else sequence_of if sequence_header else None,
                about={"key": key if isinstance(key, str) else "function", "transform": function is not None},
            )
            letters = (
                letters_at(
                    dead_letter, str(at), source.journal.uuid, source.place, stop=stop, config=config, config_file=config_file
                )
                if dead_letter is not None and beside is None
                else None
            )
            super().__init__(
                source,
                sink,
                stop=stop,
                function=function,
                refused=refused,
                letters=letters,
                until_end=until_end,
                rate=rate,
                linger=linger,
                on_event=on_event,
                on_commit=on_commit,
            )
        except BaseException:
            source.close()
            raise


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
    dead_letter: with refused="dead-letter", the path of a journal, or the URL of a topic.
    writer_options: options of jlog.Writer. The others are those of Mirror.

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
        function: Function | None = None,
        refused: Policy = "stop",
        dead_letter: str | os.PathLike[str] | None = None,
        until_end: bool = False,
        rate: float | None = None,
        linger: float = LINGER_SECONDS,
        skip_missing: bool = False,
        config: Config = None,
        config_file: str | os.PathLike[str] | None = None,
        on_event: Callable[[str], None] = nothing,
        on_commit: Callable[[int], None] = nothing,
        stop: Stop | None = None,
        **writer_options: Any,
    ) -> None:
        at = parse_topics(url)
        check_policy(refused, dead_letter)
        settings = Settings(at, config, config_file, ["source"])
        stop = stop or Stop()
        source = TopicSource(
            settings,
            at,
            stop=stop,
            start=start,
            exclude=exclude,
            group=group,
            skip_missing=skip_missing,
            about={"transform": True} if function is not None else {},
            on_event=on_event,
        )
        with at_once():
            source.cluster.check(at.topics[0])  # no journal is made for a topic that cannot be read
            check_not_mirrored(source.cluster, matching_topics(source.cluster, at.topics, exclude), journal)
        sink = JournalSink(journal, **writer_options)
        try:
            letters = (
                letters_at(
                    dead_letter,
                    sink.path,
                    identity_of_topics(at.topics),
                    source.place,
                    stop=stop,
                    config=config,
                    config_file=config_file,
                )
                if dead_letter is not None
                else None
            )
            super().__init__(
                source,
                sink,
                stop=stop,
                function=function,
                refused=refused,
                letters=letters,
                until_end=until_end,
                rate=rate,
                linger=linger,
                on_event=on_event,
                on_commit=on_commit,
            )
        except BaseException:
            sink.close()
            raise


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
        raise ValueError(f"a key is record, none or header:NAME, not {choice!r}")

    def from_header(record: RecordLike) -> bytes | None:
        return next((value for header, value in record.headers if header == name), None)

    return from_header
