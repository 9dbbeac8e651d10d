"""The topic of a mirror as a source, in the order of the sequences that its journal gave the records."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from jlog.errors import JournalNotFound, PositionLost
from jlog.flow.ends import Lag, Place, SourcePosition, SourcePositionChange
from jlog.flow.journals import about_part
from jlog.flow.options import nothing
from jlog.flow.stop import Stop
from jlog.kafka.client.background import let_go
from jlog.kafka.client.cluster import Cluster, Topic, check_same
from jlog.kafka.client.errors import TopicChanged, UnsettledBrokers, as_ours, told
from jlog.kafka.client.lag import committed_lag
from jlog.kafka.client.partitions import Meaning, meaning_of
from jlog.kafka.client.python import client_partition
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.streams import Stream
from jlog.kafka.client.topology import Watcher
from jlog.kafka.ends.merge import Merge, MirroredBatch, mirrored
from jlog.kafka.ends.mirrored_journal import MirroredJournal
from jlog.kafka.ends.parts import Part

AHEAD_RECORDS = 50_000  # of each partition that wait for those of another one; then the partition is paused
AT_ONCE = 2_000
MARK = "standby"  # part of the source position that says whose standby the journal is


class StandbySource:
    """Reads the topic of `mirror`.

    skip_missing: begins after records that retention has removed from the topic. `missing` counts their sequences.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        mirror: MirroredJournal,
        *,
        stop: Stop,
        skip_missing: bool = False,
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        self.settings = settings
        self.cluster: Cluster = Cluster(settings, stop)
        self.about: dict[str, Any] = {}
        self.missing: int = 0
        self._name = topic
        self._mirror = mirror
        self._table = mirror.table
        self.identity: str
        self.identity = self._uuid = mirror.uuid
        self.problem = ""
        self._skip_missing = skip_missing
        self._on_event = on_event
        self._consumer: Consumer | None = None
        self._watcher = Watcher(settings, [topic])
        self._heard_at = 0.0  # monotonic time when the last message came
        self._topic: Topic | None = None
        self._merge = Merge((), 0)
        self._parts: dict[int, Part] = {}
        self._ends: dict[int, int] | None = None
        self._paused: set[int] = set()
        self._table_ends: tuple[int, int] = (0, 0)  # offset of the table's next row, and its end at the start
        self._handed_out = 0  # records since the last commit
        self._gap: tuple[int, dict[int, int]] | None = None  # its end, and the ends of the partitions when it was seen

    # --- Beginning --------------------------------------------------------------------------------------------------

    def feed(
        self, next_sequence: Callable[[], int], pass_over: Callable[[int], None], follow: Callable[[dict[str, Any]], None]
    ) -> None:
        """Sets the calls to the standby's journal.

        next_sequence: returns its next sequence.
        pass_over: makes this sequence the next one. It is called only when every record that was handed out is committed.
        follow: takes what the table says of the mirrored journal: its end, its subscribers and its checkpoints.
        """
        self._next_sequence, self._pass_over, self._follow = next_sequence, pass_over, follow

    def resume(self, source_positions: SourcePosition) -> None:
        self._let_go()
        self.cluster.check(self._name)
        self._topic = topic = self.cluster.topic(self._name)
        first, end = self.cluster.first_offsets(topic), self.cluster.end_offsets(topic)
        begins = {partition: self._mirror.begins.get(partition, 0) for partition in first}
        self._parts = {partition: Part(topic, begin, begin) for partition, begin in begins.items()}
        for partition in first:
            stored = source_positions.get(f"{self._name}/{partition}")
            if stored is not None:
                self._go_on(topic, partition, stored, first[partition], end[partition])
        self._skip_lost(first, end)
        self._merge = Merge(list(first), self._next_sequence())
        self._ends = self._ends or end
        self._table_ends = 0, self.cluster.end_offsets(self.cluster.topic(self._table))[0]
        self._paused, self._handed_out, self._gap = set(), 0, None
        with told("beginning to read", self.settings):
            self._consumer = Consumer(self.settings.for_consumer())
            places = [part.to_read((self._name, partition)) for partition, part in self._parts.items()]
            self._consumer.assign([*map(client_partition, places), TopicPartition(self._table, 0, 0)])
        self._heard_at = time.monotonic()

    def _go_on(self, topic: Topic, partition: int, stored: Mapping[str, Any], first: int, end: int) -> None:
        """Goes on where the standby has come to in this partition. Raises TopicChanged where that place is gone."""
        self._check_id(topic, stored["topic_id"])
        self._parts[partition] = part = Part.of(topic, stored, int(stored["offset"]), first)
        if part.offset > end:
            raise self._lost_tail(partition, end)

    def _check_id(self, topic: Topic | None, topic_id: str) -> Topic:
        return check_same(self._where(), topic, topic_id, "This standby ends, and keeps what it has. Create a new one")

    def _where(self) -> str:
        return f"kafka://{self.settings.servers}/{self._name}"

    def _lost_tail(self, partition: int, end: int) -> TopicChanged:
        offset = self._parts[partition].offset
        return TopicChanged(
            f"{self._where()}: partition {partition} was read up to offset {offset} and ends at {end}, and the brokers have "
            f"lost its tail or have other records there: this standby ends, and keeps what it has. Mirror the journal to a new "
            f"topic, and make a new standby of that one"
        )

    def _skip_lost(self, first: dict[int, int], end: dict[int, int]) -> None:
        """Goes on at the first sequence from which the topic has every record. Raises PositionLost where that passes over
        records, and nobody has said that it may."""
        lost = {partition: part.offset for partition, part in self._parts.items() if part.offset < first[partition]}
        if not lost:
            return
        partition, offset = next(iter(lost.items()))
        what = (
            f"{self._where()}: retention has removed offsets {offset} to {first[partition] - 1} of partition {partition} "
            f"before this standby has read them"
        )
        if not self._skip_missing:
            raise PositionLost(
                f"{what}, and it needs every record: mirror the journal to a new topic that keeps its records for longer, or "
                f"let a new standby begin after them (--skip-missing)",
                first[partition],
            )
        whole = max(self._first_sequence(partition, first[partition], end[partition]) for partition in lost)
        for partition in lost:
            self._parts[partition] = replace(self._parts[partition], offset=first[partition], leader_epoch=-1, passed=0)
        sequence = self._next_sequence()
        if whole > sequence:
            self._on_event(f"{what}: this standby has no records {sequence} to {whole - 1}")
            self.missing += whole - sequence
            self._pass_over(whole)

    def _first_sequence(self, partition: int, first: int, end: int) -> int:
        """Returns the sequence of the first record that is left in the partition; that of the next one that the mirror sends
        where none is left."""
        message = next(Stream(self.cluster, self._name, partition, first, end), None)
        return self._mirror.sequence if message is None else mirrored(message).sequence

    def positions_at(self, position: Any, part: str | None, stored: SourcePosition) -> SourcePositionChange:  # noqa: ARG002
        raise ValueError("the position of a standby cannot be set: it has the same records as its journal")

    # --- Reading ----------------------------------------------------------------------------------------------------

    def read(self, max_records: int, timeout: float) -> MirroredBatch:
        until = time.monotonic() + timeout
        self._look()
        if not self._handed_out:
            self._follow(self.about)
        while True:
            taken = self._merge.take(max_records)
            if taken:
                self._handed_out += len(taken)
                return MirroredBatch(taken)
            if self._is_gap():
                if self._handed_out:
                    return MirroredBatch(())  # those have to be committed first
                assert self._gap is not None
                self._pass_over(self._gap[0])
                self._merge.expected = self._gap[0]
                continue
            left = until - time.monotonic()
            if not self._fetch(self.cluster.stop.slice(max(0.0, min(left, 0.1)))) and left <= 0:
                return MirroredBatch(())

    def _look(self) -> None:
        """Raises Retry where no broker answers, and nothing has come since they were asked; TopicChanged for another topic."""
        found = self._watcher.news()
        if found is None or found.asked_at < self._heard_at:
            return
        if found.error is not None:
            raise found.error
        self._check_is(found.topics.get(self._name))

    def _is_gap(self) -> bool:
        """Returns whether the records before the lowest sequence that waits will never come. All transactions before that of a
        committed record have ended. So it is sure once each partition without a waiting message was read to its end, as it was
        after that record had been seen."""
        lowest = self._merge.lowest()
        if lowest is None:
            return False
        if self._gap is None or self._gap[0] != lowest:
            self._check_is(self.cluster.find(self._name))  # the records may be in a partition that was added
            assert self._topic is not None
            self._gap = lowest, self.cluster.end_offsets(self._topic)
        ends = self._gap[1]
        return all(self._parts[partition].offset >= ends[partition] for partition in self._merge.empty())

    def _fetch(self, timeout: float) -> int:
        """Returns the number of messages that came."""
        consumer = self._consumer
        assert consumer is not None, "resume() comes first"
        with told("reading", self.settings):
            got = consumer.consume(AT_ONCE, timeout)
            if got:
                self._heard_at = time.monotonic()
            for message in got:
                if message.error() is not None:
                    self._hear(message)
                elif message.topic() == self._table:
                    self._learn(message)
                else:
                    self._parts[message.partition()].read_to(message)
                    self._merge.add(mirrored(message))
            self._hold_back(consumer)
        return len(got)

    def _learn(self, message: Any) -> None:
        """Handles a row of the mirror's table."""
        self._table_ends = message.offset() + 1, self._table_ends[1]
        if message.key() == about_part(self._uuid).encode() and message.value() is not None:
            self.about = json.loads(message.value())

    def _hold_back(self, consumer: Consumer) -> None:
        """Pauses partitions that are too far ahead of the others, and resumes them later."""
        ahead = {partition for partition, waiting in self._merge.waiting.items() if len(waiting) > AHEAD_RECORDS}
        to_resume = {partition for partition in self._paused if len(self._merge.waiting[partition]) < AHEAD_RECORDS // 2}
        if ahead - self._paused:
            consumer.pause([TopicPartition(self._name, partition) for partition in ahead - self._paused])
        if to_resume:
            consumer.resume([TopicPartition(self._name, partition) for partition in to_resume])
        self._paused = (self._paused | ahead) - to_resume

    def _hear(self, message: Any) -> None:
        """Handles a message that is not a record: the end of a partition, or an error."""
        error, partition, name = message.error(), message.partition(), message.topic()
        meaning = meaning_of(error)
        if meaning is Meaning.END:
            if name == self._table:
                self._table_ends = max(self._table_ends[0], message.offset()), self._table_ends[1]
            else:
                self._parts[partition].pass_over_to(message.offset())
        elif meaning in (Meaning.GONE, Meaning.LOST_TAIL):
            self._overtaken(name, partition, lost_tail=meaning is Meaning.LOST_TAIL)
        elif meaning is Meaning.FAILED:
            found = as_ours(KafkaException(error), f"reading topic {name}", self.settings, f"Read on topic {name}")
            raise TopicChanged(str(found)) if isinstance(found, JournalNotFound) else found

    def _overtaken(self, name: str, partition: int, *, lost_tail: bool) -> None:
        """Handles an offset that retention has removed, or at which the brokers have other records now than were read."""
        if name == self._name:
            self._check_is(self.cluster.find(name))
            assert self._topic is not None
            end = self.cluster.end_offsets(self._topic, [partition])[partition]
            if lost_tail or self._parts[partition].offset > end:
                raise self._lost_tail(partition, end)
        text = f"kafka://{self.settings.servers}/{name}: the offset to read next of partition {partition} is gone"
        raise UnsettledBrokers(text)

    def give_back(self, batch: Any, index: int) -> None:
        self._merge.give_back(batch.found[index:])
        self._handed_out -= len(batch) - index

    # --- Position ---------------------------------------------------------------------------------------------------

    def source_positions(self) -> SourcePosition:
        mark = {"uuid": self._uuid, "topic": self._name, "table": self._table, "next": self._merge.expected}
        found: SourcePosition = {MARK: mark}
        for partition in self._merge.waiting:
            found[f"{self._name}/{partition}"] = self._next(partition).as_position()
        return found

    def _next(self, partition: int) -> Part:
        """Returns the partition as it goes on after the records that were handed out."""
        part, waiting = self._parts[partition], self._merge.waiting[partition]
        if not waiting:
            return part
        message = waiting[0].message
        epoch = message.leader_epoch()
        return replace(part, offset=message.offset(), leader_epoch=-1 if epoch is None else epoch, passed=0)

    def secure(self) -> None:
        """Makes sure that the records were read from the topic that exists now."""
        self._check_is(self.cluster.find(self._name))

    def _check_is(self, found: Topic | None) -> None:
        assert self._topic is not None
        found = self._check_id(found, self._topic.id)
        if found.partitions > self._topic.partitions:
            text = f"{self._topic.name} has {found.partitions} partitions now, and had {self._topic.partitions}"
            raise UnsettledBrokers(text)  # all of them are read from here on

    def committed(self) -> None:
        self._handed_out = 0

    def at_end(self) -> bool:
        return (
            self._ends is not None
            and self._table_ends[0] >= self._table_ends[1]
            and all(self._parts[partition].offset >= end for partition, end in self._ends.items())
            and self._merge.lowest() is None
        )

    def lag(self, source_positions: SourcePosition) -> Lag:
        read = {(self._name, partition): part.offset for partition, part in self._parts.items()}
        return committed_lag(self.cluster, read, source_positions)

    def describe(self, record: Any) -> str:  # noqa: ARG002
        return f"{self._where()}: a record of the mirrored journal"

    def place(self, record: Any) -> Place:
        raise NotImplementedError("a standby takes every record: it has no dead letters")

    def is_ahead(self, place: Place, committed: SourcePosition) -> bool:
        raise NotImplementedError("a standby takes every record: it has no dead letters")

    def close(self) -> None:
        self._watcher.close()
        self._let_go()
        self.cluster.close()

    def discard(self) -> None:
        self.close()

    def _let_go(self) -> None:
        consumers, self._consumer = [self._consumer], None
        let_go(consumers)
