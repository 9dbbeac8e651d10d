"""Topics as the source of a flow: every partition is read from an explicit offset, and nothing is skipped without an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from jlog.errors import JournalError, JournalNotFound, PositionLost
from jlog.flow.ends import Lag, SourcePosition
from jlog.flow.engine import nothing
from jlog.flow.errors import Retry
from jlog.flow.stop import Stop
from jlog.kafka.client.cluster import Cluster, Topic
from jlog.kafka.client.errors import OFFSET_GONE, TIMED_OUT, BrokerError, TopicChanged, as_ours, told
from jlog.kafka.client.lag import topics_lag
from jlog.kafka.client.names import is_ours
from jlog.kafka.client.records import CapturedBatch, KafkaBatch, Origins
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.url import TopicUrl, is_topic_name
from jlog.positions.names import Start, timestamp_us_of

BATCH_BYTES = 4 << 20
SAMPLE = 100  # messages, to estimate the size of one
Place = tuple[str, int]


class TopicSource:
    """The topics that `url` names, with all their partitions or the one that it names.

    start: where a partition without a source position begins: "begin", "end", an aware datetime, or an offset of a single
        partition.
    skip_missing: goes on behind records that retention has removed.
    captured: adds headers that name the place of each record.
    about: is stored with the source position.
    """

    def __init__(
        self,
        settings: Settings,
        url: TopicUrl,
        *,
        stop: Stop,
        start: Start = "begin",
        skip_missing: bool = False,
        captured: bool = True,
        about: Mapping[str, Any] = {},
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        self.missing = 0
        self.settings = settings
        self.cluster = Cluster(settings, stop)
        self.url = url
        self._stop = stop
        self._start = start
        self._skip_missing = skip_missing
        self._captured = captured
        self._about = dict(about)
        self._on_event = on_event
        self._consumer: Consumer | None = None
        self._topics: dict[str, Topic] = {}
        self._next: dict[Place, int] = {}
        self._begun: dict[Place, int] = {}  # where this flow began, maybe in an earlier process
        self._leader_epochs: dict[Place, int] = {}
        self._ends: dict[Place, int] | None = None
        self._origins = Origins((), with_topic=False)
        self._broken: JournalError | None = None
        self._at_once = 100  # messages, as many as make BATCH_BYTES

    # --- Beginning --------------------------------------------------------------------------------------------------

    def resume(self, source_positions: SourcePosition, start: Any = None) -> None:
        self._let_go()
        self._broken = None
        self.cluster.check()
        self._topics = {name: self.cluster.topic(name) for name in self._names()}
        self._next, self._begun, self._leader_epochs = {}, {}, {}
        ends: dict[Place, int] = {}
        for topic in self._topics.values():
            partitions = self._partitions(topic)
            first = self.cluster.first_offsets(topic, partitions)
            end = self.cluster.end_offsets(topic, partitions)
            ends |= {(topic.name, partition): offset for partition, offset in end.items()}
            own = (
                {}
                if start is not None
                else {p: source_positions[f"{topic.name}/{p}"] for p in partitions if f"{topic.name}/{p}" in source_positions}
            )
            begin = self._begin(topic, first, end, "begin" if own else self._start if start is None else start)
            for partition in partitions:
                source_position = own.get(partition)
                place = topic.name, partition
                if source_position is None:
                    self._next[place] = self._begun[place] = begin[partition]
                else:
                    self._next[place] = self._checked(topic, place, source_position, first[partition], end[partition])
                    self._begun[place] = source_position["begin"]
                    self._leader_epochs[place] = source_position.get("leader_epoch", -1)
        several = len(self._topics) > 1 or not is_topic_name(self.url.topics[0])
        self._origins = Origins(self._next, with_topic=several)
        if self._ends is None:
            self._ends = ends
        self._assign()

    def _names(self) -> list[str]:
        found: list[str] = []
        for wanted in self.url.topics:
            if is_topic_name(wanted):
                found.append(wanted)
                continue
            matching = [name for name in self.cluster.names() if fnmatchcase(name, wanted) and not is_ours(name)]
            if not matching:
                raise JournalNotFound(f"{self.settings.servers} has no topic like {wanted}")
            found += matching
        return list(dict.fromkeys(found))

    def _partitions(self, topic: Topic) -> list[int]:
        wanted = self.url.partition
        if wanted is None:
            return list(range(topic.partitions))
        topic.check_has(wanted)
        return [wanted]

    def _begin(self, topic: Topic, first: dict[int, int], end: dict[int, int], start: Any) -> dict[int, int]:
        if start == "begin":
            return first
        if start == "end":
            return end
        if isinstance(start, int):
            if len(first) > 1:
                raise ValueError(f"topic {topic.name} has {len(first)} partitions: an offset says nothing; use a time")
            return {partition: min(max(start, first[partition]), end[partition]) for partition in first}
        if isinstance(start, str):
            raise ValueError(f"topics are read from 'begin', 'end', an offset or a time on, not from {start!r}")
        return self.cluster.offsets_at(topic, timestamp_us_of(start), first)

    def _checked(self, topic: Topic, place: Place, source_position: dict[str, Any], first: int, end: int) -> int:
        offset = int(source_position["offset"])
        if source_position["topic_id"] != topic.id:
            raise self._changed(topic.name)
        if offset > end:
            raise TopicChanged(
                f"kafka://{self.settings.servers}/{topic.name}: partition {place[1]} was read up to offset {offset} and ends "
                f"at {end}: the brokers have lost its tail. Go on with new records: --resume-at end"
            )
        return self._pass_over(place, offset, first) if offset < first else offset

    def _changed(self, name: str) -> TopicChanged:
        return TopicChanged(
            f"kafka://{self.settings.servers}/{name} was deleted and made again: offsets in the old topic mean nothing in the "
            f"new one. Read all of the new one with --resume-at begin, or only what comes with --resume-at end"
        )

    def _pass_over(self, place: Place, offset: int, first: int) -> int:
        what = (
            f"kafka://{self.settings.servers}/{place[0]}: retention has removed offsets {offset} to {first - 1} of partition "
            f"{place[1]} before they were read"
        )
        if not self._skip_missing:
            raise PositionLost(f"{what}; --skip-missing goes on at {first}", first)
        self.missing += first - offset
        self._on_event(f"{what}; going on at {first}")
        return first

    def _assign(self) -> None:
        with told("the settings", self.settings):
            self._consumer = Consumer(self.settings.for_consumer())
        with told("beginning to read", self.settings):
            self._consumer.assign([self._at(place, offset) for place, offset in self._next.items()])

    def _at(self, place: Place, offset: int) -> TopicPartition:
        epoch = self._leader_epochs.get(place, -1)
        if epoch < 0:
            return TopicPartition(*place, offset)
        return TopicPartition(*place, offset, leader_epoch=epoch)

    # --- Reading ----------------------------------------------------------------------------------------------------

    def read(self, max_records: int, timeout: float) -> KafkaBatch:
        assert self._consumer is not None, "resume() comes first"
        messages: list[Any] = []
        if self._broken is None:
            with told("reading", self.settings):
                got = self._consumer.consume(1, timeout)
                wanted = min(max_records, self._at_once) - len(got)
                if got and wanted > 0:
                    got += self._consumer.consume(wanted, 0)
            messages = self._records_of(got)
        if self._broken is not None and not messages:
            raise self._broken  # all messages before the error have been handed out
        if messages:
            self._note_last(messages)
        return CapturedBatch(messages, self._origins) if self._captured else KafkaBatch(messages)

    def _records_of(self, got: list[Any]) -> list[Any]:
        if not any(map(Message.error, got)):
            return got
        found = []
        for message in got:
            if message.error() is None:
                found.append(message)
                continue
            try:
                self._hear(message)
            except JournalError as error:
                self._broken = error
                break
        return found

    def _note_last(self, messages: list[Any]) -> None:
        sample = messages[-SAMPLE:]
        size = sum(map(len, sample)) // len(sample)
        self._at_once = max(1, min(10_000, BATCH_BYTES // max(1, size)))
        several = messages if len(self._next) > 1 else messages[-1:]
        for place, message in {(message.topic(), message.partition()): message for message in several}.items():
            self._next[place] = max(self._next[place], message.offset() + 1)
            self._leader_epochs[place] = -1 if message.leader_epoch() is None else message.leader_epoch()

    def _hear(self, message: Any) -> None:
        """Handles a message that is no record: the end of a partition, or an error."""
        error, place = message.error(), (message.topic(), message.partition())
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            # Ends of transactions, which are never handed out, may lie behind the last record.
            if place in self._next:
                self._next[place] = max(self._next[place], message.offset())
        elif code in OFFSET_GONE:
            self._overtaken(place)
        elif code not in TIMED_OUT:  # in that case the client connects again by itself
            found = as_ours(KafkaException(error), f"reading topic {place[0]}", self.settings)
            raise self._gone(place[0]) if isinstance(found, JournalNotFound) else found

    def _gone(self, name: str) -> TopicChanged:
        return TopicChanged(
            f"kafka://{self.settings.servers}/{name} was deleted; what was read of it stays. Where it is made again, "
            f"--resume-at says where to begin"
        )

    def _overtaken(self, place: Place) -> None:
        """Handles an offset that retention has removed."""
        topic = self._same(place[0])
        if not self._skip_missing:
            first = self.cluster.first_offsets(topic, [place[1]])[place[1]]
            end = self.cluster.end_offsets(topic, [place[1]])[place[1]]
            self._checked(topic, place, {"offset": self._next[place], "topic_id": topic.id}, first, end)
        text = f"kafka://{self.settings.servers}/{place[0]}: offset {self._next[place]} of partition {place[1]} is gone"
        raise Retry(text, BrokerError(text))

    def secure(self) -> None:
        """Makes sure that the records were read from the topics that exist now."""
        for name in {name for name, _ in self._next}:
            self._same(name)

    def _same(self, name: str) -> Topic:
        try:
            found = self.cluster.topic(name)
        except JournalNotFound:
            raise self._gone(name) from None
        if found.id != self._topics[name].id:
            raise self._changed(name)
        return found

    # --- Position ---------------------------------------------------------------------------------------------------

    def source_positions(self) -> SourcePosition:
        found: SourcePosition = {}
        for place, offset in self._next.items():
            name, partition = place
            source_position = {
                "offset": offset,
                "topic_id": self._topics[name].id,
                "begin": self._begun[place],
                **self._about,
            }
            epoch = self._leader_epochs.get(place, -1)
            found[f"{name}/{partition}"] = source_position if epoch < 0 else {**source_position, "leader_epoch": epoch}
        return found

    def committed(self) -> None:
        """Does nothing: Kafka needs no commit."""

    def at_end(self) -> bool:
        return self._ends is not None and all(self._next.get(place, 0) >= end for place, end in self._ends.items())

    def lag(self, source_positions: SourcePosition) -> Lag:
        offsets = dict(self._next)
        for name, partition in offsets:
            source_position = source_positions.get(f"{name}/{partition}")
            if source_position is not None:
                offsets[name, partition] = int(source_position["offset"])
        return topics_lag(self.cluster, offsets, self._stop)

    def describe(self, record: Any) -> str:
        return f"kafka://{self.settings.servers}/{record.topic}: partition {record.partition}, offset {record.sequence}"

    def _let_go(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def close(self) -> None:
        self._let_go()
