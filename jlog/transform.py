"""Moves records from one journal or topic to another and changes them on the way, exactly once."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from jlog.urls import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jlog.flow.ends import Refuse, Sink, Source, SourcePosition, SourcePositionChange
    from jlog.flow.engine import Flow
    from jlog.flow.journals import JournalSource
    from jlog.flow.letters import DeadLetters
    from jlog.flow.options import FlowOptions
    from jlog.flow.records import Function, RecordLike
    from jlog.flow.stats import FlowStats
    from jlog.positions.names import Start
    from jlog.typed.codec import Codec


Url = str | os.PathLike[str]

TOPIC_OPTIONS = {"create", "key", "partitions", "replication_factor"}


def transform(source_url: Url, sink_url: Url, function: Function, *, follow: bool = False, **options: Any) -> FlowStats:
    """Moves every record of the source to the sink, changed by `function`: up to the end of the source as it is now, or with
    `follow` for ever. Returns the counts.

    source_url, sink_url: a journal (a path, or file:…) or a topic (kafka://HOST:PORT/TOPIC), in any pairing.
    function: is given a record, with value, key, headers, timestamp_us and sequence. It returns a record (jlog.NewRecord.like
        creates one of another), bytes (the same record with this value), a list of these, or None to drop it. With a codec the
        record also has `decoded`, and the function may return an object in place of bytes.
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
    trial: bool = False,
    codec: Codec | None = None,
    **options: Any,
) -> Flow:
    """Creates the flow of transform() without running it: call its run(), step() and stop(), and read its stats.

    subscriber: for a source that is a journal; None needs no write access there and holds nothing back.
    name: tells apart several transforms from the same topics to the same sink.
    trial: writes nothing at either end, and neither creates nor moves a subscriber; flow.sink.made counts the records that
        would have been written.
    codec: decodes the records for the function, and encodes the objects that it returns, for example `jlog.typed.json(Order)`.
        A record that it cannot decode is one that the function refuses: see `refused` and `dead_letter`.
    options: see jlog.kafka.FlowOptions. The others are those of jlog.Writer where the sink is a journal; key, partitions,
        replication_factor and create where it is a topic.
    """
    from jlog.flow.engine import Flow
    from jlog.flow.letters import letters_in_journal
    from jlog.flow.options import FlowOptions

    if codec is not None:
        from jlog.flow.typed import typed_function

        function = typed_function(function, codec, os.fspath(source_url))
    options["function"] = function
    given = FlowOptions.take(options)
    _check_apart(source_url, sink_url)
    _check_options(sink_url, options)
    topics: list[Any] = [end for end, url in (("source", source_url), ("sink", sink_url)) if path_of(url) is None]

    def open_source() -> Source:
        path = path_of(source_url)
        if path is not None:
            own = transform_subscriber(sink_url) if subscriber == "" else subscriber
            return _journal_source(path, own, start, trial, given)
        from jlog.kafka.client.url import parse_topics
        from jlog.kafka.mirrors import open_topics

        about = {"transform": True}
        at = parse_topics(str(source_url))
        return open_topics(at, given, topics, start=start, captured=False, name=name, about=about)

    def open_sink(source: Source) -> Sink:
        path = path_of(sink_url)
        if path is None:
            return _topic_sink(str(sink_url), source.identity, trial, given, topics[::-1], **options)
        from jlog.flow.journals import JournalSink, read_source_positions

        if trial:
            return DryRunSink(read_source_positions(path) if os.path.exists(path) else {})
        return JournalSink(path, **options)

    def open_letters(source: Source, sink: Sink, given: FlowOptions) -> DeadLetters:
        if not topics and given.dead_letter is not None and path_of(given.dead_letter) is not None:
            return letters_in_journal(source, sink, given)
        from jlog.kafka.ends.topic_letters import open_letters

        return open_letters(source, sink, given)

    return Flow(given, open_source, open_sink, None if trial else open_letters)


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


def _journal_source(
    path: str | os.PathLike[str], subscriber: str | None, start: Start, trial: bool, options: FlowOptions
) -> JournalSource:
    from jlog.flow.journals import JournalSource
    from jlog.journal import Journal

    if trial:  # begins at the subscriber's position, without its name
        known = Journal(path).subscribers().get(subscriber) if subscriber is not None else None
        start = start if known is None else known.sequence
    return JournalSource(
        path,
        None if trial else subscriber,
        start=start,
        durable_only=subscriber is None,
        skip_missing=options.skip_missing,
        on_event=options.on_event,
    )


def _check_options(url: Url, options: dict[str, Any]) -> None:
    path = path_of(url)
    if path is None:
        for name in set(options) - TOPIC_OPTIONS:
            raise ValueError(f"{url} is a topic: {name} is for journals")
        return
    for name in TOPIC_OPTIONS & set(options):
        raise ValueError(f"{os.fspath(path)} is a journal: {name} is for topics")


def _topic_sink(
    url: str, identity: str, trial: bool, options: FlowOptions, ends: list[Any], *, key: Any = "record", **more: Any
) -> Sink:
    from jlog.kafka.client.settings import Settings
    from jlog.kafka.client.url import parse
    from jlog.kafka.dry_run import source_positions_and_rules
    from jlog.kafka.ends.topic_sink import TopicSink
    from jlog.kafka.mirrors import key_of

    at = parse(url)
    settings = Settings(at, options.config, options.config_file, ends)
    key_from = key if callable(key) else key_of(key)
    if not trial:
        about = {"key": "function", "transform": True}
        return TopicSink(
            settings, at.topic, identity, stop=options.stop, key=key_from, partition=at.partition, about=about, **more
        )
    source_positions, rules = source_positions_and_rules(settings, at.topic, identity)
    return DryRunSink(
        source_positions, lambda record: rules.refusal(record, record.key if key_from is None else key_from(record))
    )


def transform_subscriber(sink_url: Url) -> str:
    """Names the subscriber of a transform from a journal to this sink, where no other name is given."""
    import hashlib  # slow to import, and most programs move no records

    path = path_of(sink_url)
    sink = sink_url if path is None else os.path.abspath(path)
    return f"transform:{hashlib.sha256(os.fsencode(sink)).hexdigest()[:16]}"


class DryRunSink:
    """Counts the records that it is given, as if it had stored the source position. refusal: returns why the real sink
    would refuse a record, or an empty text."""

    where = "nowhere: this is a dry run"
    transaction_records = 20_000
    overhead_bytes = 0

    def __init__(self, source_positions: SourcePosition, refusal: Callable[[RecordLike], str] = lambda _: "") -> None:
        self.left_out: int = 0
        self.problem = ""
        self.made: int = 0  # records that it was given, in committed transactions
        self._pending = 0
        self._source_positions = source_positions
        self._refusal = refusal

    def open(self, *, forget: bool = False) -> SourcePosition:  # noqa: ARG002
        self.drop()
        return dict(self._source_positions)

    def write(self, batch: Iterable[RecordLike], refuse: Refuse) -> int:
        size = 0
        for index, record in enumerate(batch):
            reason = self._refusal(record)
            if reason:
                if not refuse(index, record, reason):
                    break
                continue
            self._pending += 1
            size += len(record.value or b"")
        return size

    def look(self) -> None:
        """Is always ready."""

    def leave_out(self) -> None:
        self.left_out += 1

    def prepare(self, source_positions: SourcePositionChange) -> None:
        """Keeps nothing."""

    def commit(self) -> None:
        self.made += self._pending
        self.drop()

    def abort(self) -> bool:
        self.drop()
        return True

    def drop(self) -> None:
        self._pending = self.left_out = 0

    def close(self) -> None: ...
