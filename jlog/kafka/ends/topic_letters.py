"""Dead letters of a flow that has a topic at one end: in a topic or in a journal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from jlog.flow.ends import Refused, Sink, Source
from jlog.flow.letters import BYTES, DeadLetters, is_about, letters_in_journal, name_of_flow
from jlog.flow.options import FlowOptions
from jlog.flow.records import NewRecord, RecordLike
from jlog.flow.stop import Stop
from jlog.kafka.client.records import KafkaRecord
from jlog.kafka.client.rules import overhead_bytes_of
from jlog.kafka.client.settings import End, Settings
from jlog.kafka.client.streams import Stream
from jlog.kafka.client.url import SCHEME, is_topic_name, parse
from jlog.kafka.ends.topic_sink import TopicSink, without_ours
from jlog.kafka.ends.topic_source import TopicSource

SINCE = "since"  # row of the table: where the letters begin that may be those of a transaction that did not count
OF_LETTERS = {"max.message.bytes": str(16 << 20)}  # settings of a topic for letters that is created


def open_letters(source: Source, sink: Sink, options: FlowOptions) -> DeadLetters:
    """Opens the dead letters of the flow between the two, at the place that the options name."""
    place = options.dead_letter
    if isinstance(sink, TopicSink) and isinstance(place, str) and is_topic_name(place):
        place = f"{SCHEME}{sink.settings.servers}/{place}"
    if not _is_topic(place):
        return letters_in_journal(source, sink, options)
    at = parse(str(place))
    if isinstance(sink, TopicSink) and (at.servers, at.topic) == (sink.settings.servers, sink.name):
        raise ValueError(f"{at} is the sink: dead letters need a topic of their own")
    if isinstance(source, TopicSource) and at.servers == source.url.servers and _is_of(at.topic, source.url.topics):
        raise ValueError(f"{at} is the source: each dead letter would be moved, and refused again; they need another topic")
    is_beside = isinstance(sink, TopicSink) and at.servers == sink.settings.servers
    ends: list[End | None] = ["sink", "source"] if is_beside else [None, "source", "sink"]
    settings = Settings(at, options.config, options.config_file, ends)
    return DeadLetters(TopicBox(settings, at.topic, name_of_flow(source, sink), stop=options.stop), source, sink)


def _is_of(topic: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


def _is_topic(url: str | os.PathLike[str] | None) -> bool:
    return str(url)[: len(SCHEME)].lower() == SCHEME


class TopicBox:
    """A topic for dead letters, which is created if there is none. Its transactions have a table of their own, so that a
    process which was killed adds nothing later."""

    def __init__(self, settings: Settings, topic: str, flow: str, *, stop: Stop) -> None:
        self._settings = settings
        self._topic = topic
        self._sink = TopicSink(settings, topic, flow, stop=stop, topic_config=OF_LETTERS)
        self._since: dict[str, int] | None = None  # None: confirmed

    def open(self) -> Iterable[RecordLike]:
        since = self._sink.open().get(SINCE)
        self._since = since
        if since is None:
            return
        topic = self._sink.cluster.topic(self._topic)
        first, end = self._sink.cluster.first_offsets(topic), self._sink.cluster.end_offsets(topic)
        for partition in range(topic.partitions):
            begin = max(first[partition], int(since.get(str(partition), 0)))
            yield from map(KafkaRecord, Stream(self._settings, self._topic, partition, begin, end[partition]))

    def store(self, letters: Sequence[NewRecord]) -> None:
        if self._since is None:
            ends = self._sink.cluster.end_offsets(self._sink.cluster.topic(self._topic))
            self._since = {str(partition): end for partition, end in ends.items()}
        try:
            self._sink.write([self._fitting(letter) for letter in letters], self._refuse)
            self._sink.prepare({SINCE: self._since})
            self._sink.commit()
        except Refused:  # of a letter: the next ones go into another transaction
            if not self._sink.abort():
                self._sink.open()
            raise

    def _fitting(self, letter: NewRecord) -> NewRecord:
        """Returns the letter without its value, and if need be without its key, where these are more than the topic takes."""
        limit, headers = self._sink.limit_bytes, without_ours(letter.headers)
        size = len(letter.value or b"") + overhead_bytes_of(letter.key, headers)
        if size <= limit:
            return letter
        about = [*filter(is_about, headers)]
        headers = [*about, (BYTES, b"%d" % (size - overhead_bytes_of(None, about)))]
        key = None if overhead_bytes_of(letter.key, headers) > limit else letter.key
        return replace(letter, value=None, key=key, headers=headers)

    def _refuse(self, _index: int, _letter: RecordLike, reason: str) -> bool:
        raise Refused(f"{reason} (topic {self._topic})")

    def confirm(self) -> None:
        self._since = None

    def close(self) -> None:
        self._sink.close()
