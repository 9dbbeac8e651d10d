"""Dead letters of a flow that has a topic at one end: in a topic or in a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from jlog.errors import JournalNotFound
from jlog.flow.ends import Refused, Sink, Source
from jlog.flow.letters import BYTES, DeadLetters, is_about, letters_in_journal, name_of_flow
from jlog.flow.options import FlowOptions
from jlog.flow.records import NewRecord, RecordLike
from jlog.flow.stop import Stop
from jlog.kafka.client.errors import TopicChanged, UnsettledBrokers
from jlog.kafka.client.records import KafkaRecord
from jlog.kafka.client.rules import overhead_bytes_of
from jlog.kafka.client.settings import End, Settings
from jlog.kafka.client.streams import Stream
from jlog.kafka.client.url import SCHEME, is_topic_name, is_topic_url, parse
from jlog.kafka.ends.messages import without_ours
from jlog.kafka.ends.topic_sink import TopicSink
from jlog.kafka.ends.topic_source import TopicSource

SINCE = "since"  # row of the table: where the letters begin that may be those of a transaction that did not count
OF_LETTERS = {"max.message.bytes": str(16 << 20)}  # settings of a topic for letters that is created


def open_letters(source: Source, sink: Sink, options: FlowOptions) -> DeadLetters:
    """Opens the dead letters of the flow between the two, at the place that the options name."""
    place = options.dead_letter
    if isinstance(sink, TopicSink) and isinstance(place, str) and is_topic_name(place):
        place = f"{SCHEME}{sink.settings.servers}/{place}"
    if not is_topic_url(place):
        return letters_in_journal(source, sink, options)
    at = parse(str(place))
    if isinstance(sink, TopicSink) and (at.servers, at.topic) == (sink.settings.servers, sink.name):
        raise ValueError(f"{at} is the sink: dead letters need a topic of their own")
    if isinstance(source, TopicSource) and source.reads(at):
        raise ValueError(
            f"{at} is the source: each dead letter would be moved, and refused again; they need another topic, or leave this "
            "one out with --exclude"
        )
    ends: list[End | None] = [None, "source", "sink"]
    replication_factor = None
    if isinstance(sink, TopicSink) and at.servers == sink.settings.servers:
        ends = ["sink", "source"]
        replication_factor = sink.replication_factor
    settings = Settings(at, options.config, options.config_file, ends)
    flow = name_of_flow(source, sink)
    box = TopicBox(settings, at.topic, flow, replication_factor=replication_factor, stop=options.stop)
    return DeadLetters(box, source, sink)


class TopicBox:
    """A topic for dead letters, which is created if there is none. Its transactions have a table of their own, so that a
    process which was killed adds nothing later."""

    def __init__(self, settings: Settings, topic: str, flow: str, *, replication_factor: int | None, stop: Stop) -> None:
        self._topic = topic
        self._sink = TopicSink(settings, topic, flow, replication_factor=replication_factor, stop=stop, topic_config=OF_LETTERS)
        self._since: dict[str, int] | None = None  # None: confirmed

    def open(self) -> Iterable[RecordLike]:
        try:
            since = self._sink.open().get(SINCE)
        except TopicChanged:  # its letters are gone, but the flow goes on: a new topic has the next ones
            since = self._sink.open(forget=True).get(SINCE)
            self._sink.prepare({})
            self._sink.commit()  # stores which topic it is now
        self._since = since
        return () if since is None else self._stored(since)

    def _stored(self, since: Mapping[str, int]) -> Iterator[RecordLike]:
        """Yields the letters from these offsets on. Raises Unsettled where the open transaction of another producer hides
        some."""
        cluster = self._sink.cluster
        places = [(self._topic, partition) for partition in range(cluster.topic(self._topic).partitions)]
        first, written = cluster.first_of(places), cluster.ends_of(places, committed=False)
        end = cluster.ends_of(places)  # asked for last: a transaction that has ended meanwhile hides nothing
        if any(end[place] < written[place] for place in places):
            raise UnsettledBrokers(
                f"{self._sink.where}: another producer has a transaction open, which hides the dead letters after it; the flow "
                f"begins when that has ended"
            )
        for place in places:
            begin = max(first[place], int(since.get(str(place[1]), 0)))
            yield from map(KafkaRecord, Stream(cluster, *place, begin, end[place]))

    def store(self, letters: Sequence[NewRecord]) -> None:
        try:
            self._store(letters)
        except (TopicChanged, JournalNotFound):
            raise TopicChanged(
                f"{self._sink.where}, which has the dead letters, or its table {self._sink.table} was deleted; the next start "
                f"creates what is missing, and goes on"
            ) from None

    def _store(self, letters: Sequence[NewRecord]) -> None:
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
