"""Moves records from one journal or topic to another and changes them on the way, exactly once."""

from __future__ import annotations

import os
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from jlog.urls import path_of

if TYPE_CHECKING:
    from jlog.flow.ends import Sink, Source
    from jlog.flow.engine import Flow
    from jlog.flow.letters import DeadLetters
    from jlog.flow.records import Function
    from jlog.flow.refusals import Policy
    from jlog.flow.stats import FlowStats
    from jlog.positions.names import Start

Url = str | os.PathLike[str]

TOPIC_OPTIONS = {"create", "key", "partitions", "replication_factor"}


def transform(source_url: Url, sink_url: Url, function: Function, *, follow: bool = False, **options: Any) -> FlowStats:
    """Moves every record of the source to the sink, changed by `function`: up to the end of the source as it is now, or with
    `follow` for ever. Returns the counts.

    source_url, sink_url: a journal (a path, or file:…) or a topic (kafka://HOST:PORT/TOPIC), in any pairing.
    function: is given a record, with value, key, headers, timestamp_us and sequence. It returns a record (jlog.NewRecord.like
        makes one of another), bytes (the same record with this value), a list of these, or None to drop it.
    options: those of transforming().

    Each record of the source counts once, whatever is killed: the sink stores the position in the source together with the
    records, in one append or one transaction, and the next run goes on there. Raises RecordRefused where the function raises.

        jlog.transform("/var/lib/raw", "kafka://localhost:9092/clean", lambda record: record.value.strip() or None)
    """
    return transforming(source_url, sink_url, function, until_end=not follow, **options).run()


def transforming(
    source_url: Url,
    sink_url: Url,
    function: Function,
    *,
    subscriber: str | None = "",
    name: str | None = None,
    start: Start = "begin",
    until_end: bool = False,
    refused: Policy = "stop",
    dead_letter: Url | None = None,
    rate: float | None = None,
    linger: float | None = None,
    skip_missing: bool = False,
    config: Any = None,
    config_file: str | os.PathLike[str] | None = None,
    on_event: Callable[[str], None] | None = None,
    on_commit: Callable[[int], None] | None = None,
    trial: bool = False,
    **sink_options: Any,
) -> Flow:
    """Makes the flow of transform() without running it: call its run(), step() and stop(), and read its stats.

    subscriber: for a source that is a journal; None needs no write access there and holds nothing back.
    name: tells apart several transforms from the same topics to the same sink.
    sink_options: options of jlog.Writer where the sink is a journal; key, partitions, replication_factor and create where it is
        a topic.
    trial: writes nothing at either end, and neither makes nor moves a subscriber; flow.sink.made counts the records that would
        have been written.

    config: also settings for one end alone, as source.sasl.username and sink.sasl.username where both are topics.

    The others are those of jlog.kafka.Mirror.
    """
    from jlog.flow.engine import LINGER_SECONDS, Flow, nothing
    from jlog.flow.letters import check_policy
    from jlog.flow.stop import Stop

    stop = Stop()
    told = nothing if on_event is None else on_event
    _check_apart(source_url, sink_url)
    _check_options(sink_url, sink_options)
    check_policy(refused, dead_letter)
    ends = [end for end, url in (("source", source_url), ("sink", sink_url)) if path_of(url) is None]
    common = {"config": config, "config_file": config_file, "ends": ends, "on_event": told, "stop": stop}
    source, identity = _source(source_url, sink_url, subscriber, name, start, skip_missing, common, trial)
    sink: Sink | None = None
    beside, letters = None, None
    try:
        if trial:
            sink = _dry_run_sink(sink_url, identity, sink_options, common)
        else:
            beside, letters = _letters(dead_letter, sink_url, identity, source, common)
            sink = _sink(sink_url, identity, beside, sink_options, common)
        return Flow(
            source,
            sink,
            stop=stop,
            function=function,
            refused=refused,
            letters=letters,
            until_end=until_end,
            rate=rate,
            linger=LINGER_SECONDS if linger is None else linger,
            on_event=told,
            on_commit=nothing if on_commit is None else on_commit,
        )
    except BaseException:
        for end in (sink, letters, source):
            if end is not None:
                end.close()
        raise


def _check_apart(source_url: Url, sink_url: Url) -> None:
    source, sink = path_of(source_url), path_of(sink_url)
    if source is not None and sink is not None:
        same = os.path.realpath(source) == os.path.realpath(sink)
    elif source is None and sink is None:
        from jlog.kafka.client.url import parse, parse_topics

        of, to = parse_topics(str(source_url)), parse(str(sink_url))
        same = of.servers == to.servers and any(fnmatchcase(to.topic, topic) for topic in of.topics)
    else:
        return
    if same:
        raise ValueError(f"{os.fspath(sink_url)} is the source too: a changed record would be changed again")


def _source(
    url: Url,
    sink_url: Url,
    subscriber: str | None,
    name: str | None,
    start: Start,
    skip_missing: bool,
    common: dict[str, Any],
    trial: bool,
) -> tuple[Source, str]:
    """Opens the source, and returns it with its name in the sink."""
    path = path_of(url)
    if path is not None:
        from jlog.flow.journals import JournalSource
        from jlog.journal import Journal

        own = transform_subscriber(sink_url) if subscriber == "" else subscriber
        if trial:  # begins at the subscriber's position, without its name
            known = Journal(path).subscribers().get(own) if own is not None else None
            start = start if known is None else known.sequence
        journal = JournalSource(
            path,
            None if trial else own,
            start=start,
            durable_only=own is None,
            skip_missing=skip_missing,
            on_event=common["on_event"],
        )
        return journal, journal.journal.uuid
    from jlog.kafka.client.errors import at_once
    from jlog.kafka.client.names import identity_of_topics
    from jlog.kafka.client.settings import Settings
    from jlog.kafka.client.url import parse_topics
    from jlog.kafka.mirror.source import TopicSource

    at = parse_topics(str(url))
    settings = Settings(at, common["config"], common["config_file"], common["ends"])
    topics = TopicSource(
        settings,
        at,
        stop=common["stop"],
        start=start,
        skip_missing=skip_missing,
        captured=False,
        about={"transform": True},
        on_event=common["on_event"],
    )
    with at_once():
        topics.cluster.check(topics.url.topics[0])  # no journal is made for a topic that cannot be read
    return topics, name or identity_of_topics(at.topics)


def _check_options(url: Url, options: dict[str, Any]) -> None:
    path = path_of(url)
    if path is None:
        for name in set(options) - TOPIC_OPTIONS:
            raise ValueError(f"{url} is a topic: {name} is for journals")
        return
    for name in TOPIC_OPTIONS & set(options):
        raise ValueError(f"{os.fspath(path)} is a journal: {name} is for topics")


def _letters(
    dead_letter: Url | None, sink_url: Url, identity: str, source: Any, common: dict[str, Any]
) -> tuple[str | None, DeadLetters | None]:
    """Returns the topic for dead letters beside the sink, or the dead letters at another place."""
    if dead_letter is None:
        return None, None
    sink = path_of(sink_url)
    if sink is None:
        from jlog.kafka.client.url import parse
        from jlog.kafka.mirror.letters import topic_beside

        beside = topic_beside(dead_letter, parse(str(sink_url)).servers)
        if beside is not None:
            return beside, None
    name = str(sink_url) if sink is None else os.path.abspath(sink)
    path = path_of(dead_letter)
    if path is not None:
        from jlog.flow.letters import letters_in_journal

        return None, letters_in_journal(path, name, identity, source.place)
    from jlog.kafka.mirror.letters import letters_at

    settings = {"config": common["config"], "config_file": common["config_file"]}
    return None, letters_at(dead_letter, name, identity, source.place, stop=common["stop"], **settings)


def _sink(
    url: Url,
    identity: str,
    dead_letter: str | None,
    options: dict[str, Any],
    common: dict[str, Any],
) -> Sink:
    path = path_of(url)
    if path is not None:
        from jlog.flow.journals import JournalSink

        return JournalSink(path, **options)
    from jlog.kafka.client.settings import Settings
    from jlog.kafka.client.url import parse
    from jlog.kafka.mirror.mirror import key_of
    from jlog.kafka.mirror.sink import TopicSink

    at = parse(str(url))
    key = options.pop("key", "record")
    return TopicSink(
        Settings(at, common["config"], common["config_file"], common["ends"][::-1]),
        at.topic,
        identity,
        stop=common["stop"],
        key=key if callable(key) else key_of(key),
        partition=at.partition,
        about={"key": "function", "transform": True},
        dead_letter=dead_letter,
        **options,
    )


def _dry_run_sink(url: Url, identity: str, options: dict[str, Any], common: dict[str, Any]) -> Sink:
    from jlog.flow.dry_run import DryRunSink

    path = path_of(url)
    if path is not None:
        from jlog.flow.journals import read_source_positions

        return DryRunSink(read_source_positions(path) if os.path.exists(path) else {})
    from jlog.kafka.client.errors import at_once
    from jlog.kafka.client.settings import Settings
    from jlog.kafka.client.url import parse
    from jlog.kafka.mirror.dry_run import source_positions_and_rules
    from jlog.kafka.mirror.mirror import key_of

    at = parse(str(url))
    key = options.get("key", "record")
    key_from = key if callable(key) else key_of(key)
    with at_once():
        source_positions, rules = source_positions_and_rules(
            Settings(at, common["config"], common["config_file"], common["ends"][::-1]), at.topic, identity
        )
    return DryRunSink(
        source_positions, lambda record: rules.refusal(record, record.key if key_from is None else key_from(record))
    )


def transform_subscriber(sink_url: Url) -> str:
    """Names the subscriber of a transform from a journal to this sink, where no other name is given."""
    import hashlib  # slow to import, and most programs move no records

    path = path_of(sink_url)
    sink = sink_url if path is None else os.path.abspath(path)
    return f"transform:{hashlib.sha256(os.fsencode(sink)).hexdigest()[:16]}"
