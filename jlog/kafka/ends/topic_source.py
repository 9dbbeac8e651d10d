"""Topics as the source of a flow: every partition is read from an explicit offset, and nothing is skipped without an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from jlog.errors import JournalError, JournalNotFound
from jlog.flow.ends import Lag, Place, Retry, SourcePosition, SourcePositionChange
from jlog.flow.options import nothing
from jlog.flow.stop import Stop
from jlog.kafka.client.background import let_go
from jlog.kafka.client.clients import AnyConsumer, open_consumer, road
from jlog.kafka.client.cluster import Cluster, Topic, without_leader
from jlog.kafka.client.errors import UnsettledBrokers, as_ours, is_without_group, told
from jlog.kafka.client.lag import committed_lag
from jlog.kafka.client.names import identity_of_topics
from jlog.kafka.client.partitions import Meaning, meaning_of
from jlog.kafka.client.records import At, CapturedBatch, Event, KafkaBatch
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.topology import Topology, Watcher
from jlog.kafka.client.url import TopicUrl, is_topic_name
from jlog.kafka.ends.parts import Part, PartitionName, Parts
from jlog.positions.names import Start

BATCH_BYTES = 4 << 20


class TopicSource:
    """The topics that `url` names, with all their partitions or the one that it names. Partitions that are added, and new
    topics that match a pattern, are read within seconds.

    start, exclude, skip_missing: see Parts.
    group: a consumer group to which offsets are committed, for tools that watch groups. Nothing depends on it.
    captured: adds headers that name the place of each record.
    name: tells apart several flows from the same topics to one sink.
    about: is stored with the source position.
    """

    def __init__(
        self,
        settings: Settings,
        url: TopicUrl,
        *,
        stop: Stop,
        start: Start = "begin",
        exclude: Collection[str] = (),
        skip_missing: bool = False,
        group: str | None = None,
        captured: bool = True,
        name: str | None = None,
        about: Mapping[str, Any] = {},
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        self.settings = settings
        self.cluster: Cluster = Cluster(settings, stop)
        self.url = url
        self.problem: str = ""
        self.identity: str = name or identity_of_topics(url.topics)
        self._group = group
        self._group_error = ""
        self._captured = captured
        self._about = dict(about)
        self._on_event = on_event
        self._find = Parts(self.cluster, url, start=start, exclude=exclude, skip_missing=skip_missing, on_event=on_event)
        self._watcher = Watcher(settings, url.topics, exclude)
        self._resumed_at = 0.0
        self._heard_at = 0.0  # monotonic time when the last message came
        self._consumer: AnyConsumer | None = None
        self._parts: dict[PartitionName, Part] = {}
        self._gone: set[str] = set()  # parts of the source position whose topics are gone
        self._ends: dict[PartitionName, int] | None = None
        self._endless: set[PartitionName] = set()  # partitions without a leader at the start, whose ends are not known yet
        self._several = len(url.topics) > 1 or not is_topic_name(url.topics[0])
        self._broken: JournalError | None = None
        self._at_once = 100  # messages, as many as make BATCH_BYTES

    @property
    def missing(self) -> int:
        return self._find.missing

    @property
    def road(self) -> str:
        return road(self.settings)

    # --- Beginning --------------------------------------------------------------------------------------------------

    def resume(self, source_positions: SourcePosition) -> None:
        self._let_go()
        self._broken = None
        self.cluster.check(self.url.topics[0])
        topics, self._parts, ends = self._find.everything(source_positions)
        self._gone = {part for part in source_positions if self._find.is_gone(part, topics)}
        if self._ends is None:
            self._ends = ends
            self._endless = {(name, number) for name, topic in topics.items() for number in self._find.leaderless(topic)}
        self._resumed_at = time.monotonic()
        self._assign()
        self._note_leaderless(topics)

    def positions_at(self, position: Any, part: str | None, stored: SourcePosition) -> SourcePositionChange:
        self.cluster.check(self.url.topics[0])
        found = self._find.positions_at(position, part, stored)
        return {name: None if one is None else {**one, **self._about} for name, one in found.items()}

    def _numbers(self, topic: str) -> list[int]:
        return [number for name, number in self._parts if name == topic]

    def _assign(self) -> None:
        """Begins to read, with a new client or with the one that is there. What that one has fetched ahead is fetched again."""
        if self._consumer is None:
            with told("the settings", self.settings):
                self._consumer = open_consumer(self.settings, self._group, self._told_group)
        with told("beginning to read", self.settings):
            self._consumer.assign([part.to_read(place) for place, part in self._parts.items()])

    # --- Reading ----------------------------------------------------------------------------------------------------

    def read(self, max_records: int, timeout: float) -> KafkaBatch:
        if self._broken is None:
            self._look()
        found = self._fetch(max_records, timeout) if self._broken is None else ()
        if self._broken is not None and not found:
            raise self._broken  # all messages before the error have been handed out
        return CapturedBatch(found, self._several) if self._captured else KafkaBatch(found)

    def _fetch(self, max_records: int, timeout: float) -> Any:
        assert self._consumer is not None, "resume() comes first"
        with told("reading", self.settings):
            found, events = self._consumer.consume(min(max_records, self._at_once), timeout)
        if found or events:
            self._heard_at = time.monotonic()
        ends = []
        for before, event in events:
            meaning = meaning_of(event.error, has_group=self._group is not None)
            if meaning is Meaning.END:
                ends.append(event)
                continue
            try:
                self._hear(event, meaning)
            except JournalError as error:
                self._broken = error
                found.cut(before)  # those after it are not handed out
                break
        if found:
            self._note_last(found)
        self._note_ends(ends)
        return found

    def _note_ends(self, ends: Iterable[Event]) -> None:
        """Handles ends of partitions, after the messages that came with them."""
        for event in ends:
            part = self._parts.get((event.topic, event.partition))
            if part is not None:
                part.pass_over_to(event.offset)

    def _note_last(self, found: Any) -> None:
        self._at_once = max(1, min(10_000, BATCH_BYTES // max(1, found.value_bytes // len(found))))
        for place, (offset, leader_epoch) in found.ends().items():
            part = self._parts[place]
            part.offset, part.leader_epoch, part.passed = max(part.offset, offset), leader_epoch, 0

    def _hear(self, event: Event, meaning: Meaning) -> None:
        """Handles an error."""
        error, place = event.error, (event.topic, event.partition)
        if meaning in (Meaning.GONE, Meaning.LOST_TAIL):
            self._overtaken(place, lost_tail=meaning is Meaning.LOST_TAIL)
        elif meaning is Meaning.FAILED:
            needs = f"Read on group {self._group}" if is_without_group(error) else f"Read on topic {place[0]}"
            what = f"reading topic {place[0]}" if place[0] else f"reading {self.url}"
            found = as_ours(KafkaException(error), what, self.settings, needs)
            if not isinstance(found, JournalNotFound):
                raise found
            if self._is_named(place[0]):
                raise self._find.gone(place[0])

    def _overtaken(self, place: PartitionName, *, lost_tail: bool) -> None:
        """Handles an offset that retention has removed, or at which the brokers have other records now than were read."""
        topic, part = self._same(place[0]), self._parts[place]
        first = self.cluster.first_offsets(topic, [place[1]])[place[1]]
        end = self.cluster.end_offsets(topic, [place[1]])[place[1]]
        if lost_tail:
            raise self._find.lost_tail(topic, place, part.offset, end)
        if not self._find.skip_missing:
            self._find.checked(topic, place, part.as_position(), first, end)
        raise UnsettledBrokers(f"{self._find.where(place[0])}: offset {part.offset} of partition {place[1]} is not there")

    def secure(self) -> None:
        """Makes sure that the records were read from the topics that exist now."""
        read = {name: part.topic for (name, _), part in self._parts.items()}
        found = self.cluster.topics(sorted(read))
        for name, topic in read.items():
            if name not in found:
                if self._is_named(name):
                    self._same(name)  # asks again: a broker that has just started may not know it
            elif found[name].id != topic.id:
                raise self._find.changed(name)

    def _is_named(self, topic: str) -> bool:
        """Returns whether the topic has to exist, because the URL names it. Another one matches a pattern."""
        return topic in self.url.topics

    def _same(self, name: str) -> Topic:
        try:
            found = self.cluster.topic(name)
        except JournalNotFound:
            raise self._find.gone(name) from None
        if found.id != self._parts[name, self._numbers(name)[0]].topic.id:
            raise self._find.changed(name)
        return found

    # --- The topology -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Looks at what the watcher has found. An error that stays is kept until all records before it were handed out."""
        found = self._watcher.news()
        if found is None or found.asked_at < self._resumed_at:
            return
        try:
            if found.error is None:
                self._follow(found)
            elif not isinstance(found.error, Retry) or found.asked_at > self._heard_at:
                raise found.error  # nothing has come since the brokers did not answer
        except Retry:
            raise
        except JournalError as error:
            self._broken = error

    def _follow(self, found: Topology) -> None:
        """Reads partitions and topics that are new, and no longer those that are gone."""
        new: dict[PartitionName, Part] = {}
        read = {name: part.topic for (name, _), part in self._parts.items()}
        for name, topic in found.topics.items():
            if name not in read:
                with suppress(JournalNotFound):  # it is gone already, which the next look finds
                    new |= self._find.added(topic, self._find.readable(topic))
            elif topic.id != read[name].id:
                raise self._find.changed(name)
            else:
                added = set(self._find.readable(topic)) - set(self._numbers(name))
                if added:
                    new |= self._find.added(topic, sorted(added))
        gone = [name for name in read if name not in found.topics]
        for name in gone:
            if self._is_named(name):
                raise self._find.gone(name)
            self._on_event(f"{self._find.where(name)} was deleted; what was read of it stays")
            self._gone |= {f"{name}/{number}" for number in self._numbers(name)}
        if new or gone:
            self._gone -= {f"{name}/{number}" for name, number in new}
            self._parts = {place: part for place, part in self._parts.items() if place[0] not in gone} | new
            self._assign()
        self._note_leaderless(found.topics)

    def _note_leaderless(self, topics: Mapping[str, Topic]) -> None:
        """Notes which partitions cannot be read now. The client reads them as soon as they have a leader."""
        leaderless = {name: self._find.leaderless(topic) for name, topic in sorted(topics.items())}
        found = "; ".join(without_leader(name, numbers) for name, numbers in leaderless.items() if numbers)
        self.problem = f"{self.url}: {found}; the others are read" if found else ""
        endless = {place for place in self._endless if place[1] in leaderless.get(place[0], ())}
        led = [place for place in self._endless - endless if place[0] in topics]  # the others were deleted
        if led and self._ends is not None:
            self._ends |= self.cluster.ends_of(led)
        self._endless = endless

    def give_back(self, batch: Any, index: int) -> None:
        for record in [*batch][index:]:
            part = self._parts[record.topic, record.partition]
            part.offset, part.passed = min(part.offset, record.sequence), 0

    # --- Position ---------------------------------------------------------------------------------------------------

    def source_positions(self) -> SourcePositionChange:
        found: dict[str, dict[str, Any] | None] = dict.fromkeys(self._gone)
        for (name, number), part in self._parts.items():
            found[f"{name}/{number}"] = {**part.as_position(), **self._about}
        return found

    def committed(self) -> None:
        self._gone.clear()
        if self._group is not None and self._consumer is not None:
            self._consumer.commit([At(*place, part.offset) for place, part in self._parts.items()])

    def _told_group(self, error: KafkaError | None) -> None:
        """Reports once why the group does not get the offsets."""
        text = "" if error is None else f"group {self._group} does not get the offsets: {error.str()}"
        if text and text != self._group_error:
            self._on_event(text)
        self._group_error = text

    def at_end(self) -> bool:
        return (
            self._ends is not None
            and not self._endless
            and all(place not in self._parts or self._parts[place].offset >= end for place, end in self._ends.items())
        )

    def lag(self, source_positions: SourcePosition) -> Lag:
        read = {place: part.offset for place, part in self._parts.items()}
        return committed_lag(self.cluster, read, source_positions)

    def describe(self, record: Any) -> str:
        return f"{self._find.where(record.topic)}: partition {record.partition}, offset {record.sequence}"

    def reads(self, topic: TopicUrl) -> bool:
        """Returns whether it reads this topic, or would if there was one."""
        return topic.servers == self.url.servers and self._find.reads(topic.topic)

    def place(self, record: Any) -> Place:
        topic = self._parts[record.topic, record.partition].topic
        return f"{record.topic}/{record.partition}", topic.id, record.sequence

    def is_ahead(self, place: Place, committed: SourcePosition) -> bool:
        part, topic_id, offset = place
        found = committed.get(part)
        return found is None or (found["topic_id"] == topic_id and offset >= int(found["offset"]))

    def _let_go(self) -> None:
        consumers, self._consumer = [self._consumer], None
        let_go(consumers)

    def close(self) -> None:
        self._watcher.close()
        self._let_go()
        self.cluster.close()

    def discard(self) -> None:
        self.close()
