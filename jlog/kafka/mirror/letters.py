"""Places for the dead letters of a mirror, a capture or a transform."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jlog.flow.errors import Refused
from jlog.flow.letters import DeadLetters, Place, letters_in_journal, name_of_flow
from jlog.flow.records import NewRecord, RecordLike
from jlog.flow.stop import Stop
from jlog.kafka.client.records import KafkaRecord
from jlog.kafka.client.settings import Config, Settings
from jlog.kafka.client.streams import Stream
from jlog.kafka.client.url import SCHEME, is_topic_name, parse
from jlog.kafka.mirror.sink import OF_DEAD_LETTERS, TopicSink

SINCE = "since"  # row of the table: where the letters begin that may be those of a transaction that did not count


def topic_beside(dead_letter: str | os.PathLike[str] | None, servers: str) -> str | None:
    """Returns the topic, where it is one of the same cluster: then dead letters are part of the sink's transactions."""
    if dead_letter is None:
        return None
    if isinstance(dead_letter, str) and is_topic_name(dead_letter):
        return dead_letter
    at = parse(str(dead_letter)) if _is_topic(dead_letter) else None
    return at.topic if at is not None and at.servers == servers else None


def letters_at(
    dead_letter: str | os.PathLike[str],
    sink: str,
    source: str,
    place: Callable[[Any], Place],
    *,
    stop: Stop,
    config: Config = None,
    config_file: str | os.PathLike[str] | None = None,
) -> DeadLetters:
    """Returns dead letters that are no part of the sink's transactions. dead_letter: the URL of a topic, or the path of a
    journal; sink, source: name the flow."""
    if not _is_topic(dead_letter):
        return letters_in_journal(dead_letter, sink, source, place)
    at = parse(str(dead_letter))
    settings = Settings(at, config, config_file, [None, "source", "sink"])
    box = TopicBox(settings, at.topic, name_of_flow(sink, source), stop=stop)
    return DeadLetters(box, sink, place)


def _is_topic(url: str | os.PathLike[str]) -> bool:
    return str(url)[: len(SCHEME)].lower() == SCHEME


class TopicBox:
    """A topic for dead letters, which is made if there is none. Its transactions have a table of their own, so that a process
    which was killed adds nothing later."""

    def __init__(self, settings: Settings, topic: str, flow: str, *, stop: Stop) -> None:
        self._settings = settings
        self._topic = topic
        self._sink = TopicSink(settings, topic, flow, stop=stop, dead_letter=topic, topic_config=OF_DEAD_LETTERS)
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
            for letter in letters:
                self._sink.send_letter(letter)
            self._sink.prepare({SINCE: self._since})
            self._sink.commit()
        except Refused:  # of a letter: the next ones go into another transaction
            if not self._sink.abort():
                self._sink.open()
            raise

    def confirm(self) -> None:
        self._since = None

    def close(self) -> None:
        self._sink.close()
