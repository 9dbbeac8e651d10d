"""The partitions that a capture reads: which there are, and where each one goes on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jlog.errors import JournalNotFound, PositionLost
from jlog.flow.ends import SourcePosition, SourcePositionChange
from jlog.kafka.client.cluster import Cluster, Topic, without_leader
from jlog.kafka.client.errors import TopicChanged, UnsettledBrokers
from jlog.kafka.client.records import At
from jlog.kafka.client.topology import matches, matching_topics
from jlog.kafka.client.url import TopicUrl
from jlog.positions.names import Start, timestamp_us_of

PartitionName = tuple[str, int]  # the topic, and the number in it
TRIES = 5


@dataclass
class Part:
    """A partition that is read. `begin` is where this flow began with it, maybe in an earlier process."""

    topic: Topic
    begin: int
    offset: int  # of the next record
    leader_epoch: int = -1  # of the last message; -1: not known
    passed: int = 0  # offsets between that message and `offset`: ends of transactions, which are never handed out

    @classmethod
    def of(cls, topic: Topic, position: Mapping[str, Any], offset: int, first: int) -> Part:
        """Returns the partition as it goes on at this offset, which differs from the stored one where records are missing.
        first: the partition's first offset."""
        found, passed = cls(topic, int(position["begin"]), offset), int(position.get("passed", 0))
        if offset == int(position["offset"]) and offset - passed >= first:
            found.leader_epoch, found.passed = position.get("leader_epoch", -1), passed
        return found

    def as_position(self) -> dict[str, Any]:
        found = {"offset": self.offset, "topic_id": self.topic.id, "begin": self.begin}
        if self.leader_epoch >= 0:
            found["leader_epoch"] = self.leader_epoch
        if self.passed:
            found["passed"] = self.passed
        return found

    def read_to(self, message: Any) -> None:
        """Notes a message of the Python client as the last one that was read."""
        epoch = message.leader_epoch()
        self.offset, self.leader_epoch, self.passed = message.offset() + 1, -1 if epoch is None else epoch, 0

    def pass_over_to(self, offset: int) -> None:
        """Passes over ends of transactions, whose leader epochs are not known."""
        if offset > self.offset and self.leader_epoch >= 0:
            self.passed += offset - self.offset
        self.offset = max(self.offset, offset)

    def to_read(self, place: PartitionName) -> At:
        """Returns where to read on: after the last message, of which the leader epoch is known. By that the brokers can see
        whether they have lost what was read. With that epoch they would call the end of a transaction under a newer leader a
        lost tail."""
        return At(*place, self.offset - self.passed, self.leader_epoch)


class Parts:
    """Finds the partitions of the topics that `url` names, and where each begins.

    start: where a topic without a position begins: "begin", "end", an aware datetime, or an offset of a single partition.
    exclude: patterns of topics that are not read.
    skip_missing: goes on after records that retention has removed. `missing` counts them.
    """

    def __init__(
        self,
        cluster: Cluster,
        url: TopicUrl,
        *,
        start: Start,
        exclude: Collection[str],
        skip_missing: bool,
        on_event: Callable[[str], None],
    ) -> None:
        self.missing: int = 0
        self._cluster = cluster
        self._url = url
        self._start = start
        self._exclude = exclude
        self.skip_missing = skip_missing
        self._on_event = on_event

    def where(self, topic: str) -> str:
        return f"kafka://{self._cluster.settings.servers}/{topic}"

    # --- Finding ----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Finds the topics. Raises JournalNotFound where a pattern matches none."""
        found = matching_topics(self._cluster, self._url.topics, self._exclude)
        if not found:
            raise JournalNotFound(f"no topic of {self._cluster.settings.servers} matches {','.join(self._url.topics)}")
        return found

    def is_gone(self, part: str, names: Collection[str]) -> bool:
        """Returns whether a stored position is that of a topic which matches a pattern, and is not among the topics now."""
        name, slash, _ = part.rpartition("/")
        return bool(slash) and name not in names and name not in self._url.topics and self.reads(name)

    def reads(self, topic: str) -> bool:
        """Returns whether the topic of this name is read, where there is one. A topic that is left out keeps its position: it
        may come back."""
        return matches(topic, self._url.topics) and not matches(topic, self._exclude)

    def topics(self) -> dict[str, Topic]:
        """Finds the topics. Raises JournalNotFound for one that is named and not there."""
        names = self.names()
        found = self._cluster.topics(names)
        for name in names:
            if name not in found and name in self._url.topics:
                found[name] = self._cluster.topic(name)
        return found

    def everything(
        self, stored: SourcePosition
    ) -> tuple[dict[str, Topic], dict[PartitionName, Part], dict[PartitionName, int]]:
        """Finds the topics, where each partition goes on, and the ends. A topic may be deleted between two questions."""
        for _ in range(TRIES):
            topics = self.topics()
            with suppress(JournalNotFound):
                return topics, *self.find(topics.values(), stored)
        raise JournalNotFound(f"topics that match {','.join(self._url.topics)} are deleted faster than they can be looked at")

    def find(
        self, topics: Collection[Topic], stored: SourcePosition
    ) -> tuple[dict[PartitionName, Part], dict[PartitionName, int]]:
        """Finds where each partition of the topics goes on, and the ends of the partitions. One without a leader goes on at its
        stored position, unchecked; its end is not known."""
        places = [(topic.name, number) for topic in topics for number in self.readable(topic)]
        first, end = self._cluster.first_of(places), self._cluster.ends_of(places)
        found: dict[PartitionName, Part] = {}
        for topic in topics:
            first_of, end_of = ({number: at[topic.name, number] for number in self.readable(topic)} for at in (first, end))
            found |= self._find_of(topic, first_of, end_of, stored) | self._without_leader(topic, stored)
        return found, end

    def readable(self, topic: Topic) -> list[int]:
        """Returns the partitions to read that have a leader."""
        return [number for number in self._partitions(topic) if number not in topic.leaderless]

    def leaderless(self, topic: Topic) -> list[int]:
        return [number for number in self._partitions(topic) if number in topic.leaderless]

    def _without_leader(self, topic: Topic, stored: SourcePosition) -> dict[PartitionName, Part]:
        """Returns the partitions without a leader that were read before. Raises Unsettled where nothing of the topic was: where
        these begin cannot be asked."""
        numbers, known = self.leaderless(topic), self._stored(topic, stored)
        if numbers and not known:
            raise UnsettledBrokers(
                f"{self.where(topic.name)}: {without_leader(topic.name, numbers)}, so where it begins is not known"
            )
        found: dict[PartitionName, Part] = {}
        for number in known.keys() & set(numbers):
            position = known[number]
            if position["topic_id"] != topic.id:
                raise self.changed(topic.name)
            found[topic.name, number] = Part.of(topic, position, int(position["offset"]), 0)
        return found

    def _stored(self, topic: Topic, stored: SourcePosition) -> dict[int, Mapping[str, Any]]:
        """Returns the stored positions of the topic's partitions."""
        names = {number: f"{topic.name}/{number}" for number in self._partitions(topic)}
        return {number: stored[name] for number, name in names.items() if name in stored}

    def _find_of(
        self, topic: Topic, first: dict[int, int], end: dict[int, int], stored: SourcePosition
    ) -> dict[PartitionName, Part]:
        """Finds where the partitions with these first offsets and ends go on."""
        known = self._stored(topic, stored)
        begin = self._begin(topic, first, end, "begin" if known else self._start)
        found: dict[PartitionName, Part] = {}
        for number, first_offset in first.items():
            position = known.get(number)
            place = topic.name, number
            if position is not None:
                offset = self.checked(topic, place, position, first_offset, end[number])
                found[place] = Part.of(topic, position, offset, first_offset)
            elif known and number > max(known):  # it was added since, and nothing of it was read
                found[place] = Part(topic, 0, self._from_the_first(place, first_offset))
            else:
                found[place] = Part(topic, begin[number], begin[number])
        return found

    def added(self, topic: Topic, partitions: Collection[int]) -> dict[PartitionName, Part]:
        """Finds where partitions begin that were added while the others are read."""
        first = self._cluster.first_offsets(topic, partitions)
        places = [(topic.name, number) for number in partitions]
        return {place: Part(topic, 0, self._from_the_first(place, first[place[1]])) for place in places}

    def _from_the_first(self, place: PartitionName, first: int) -> int:
        return self._pass_over(place, 0, first) if first > 0 else 0

    def _partitions(self, topic: Topic) -> list[int]:
        wanted = self._url.partition
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
                raise ValueError(f"topic {topic.name} has {len(first)} partitions, so one offset is ambiguous; use a time")
            return {partition: min(max(start, first[partition]), end[partition]) for partition in first}
        if isinstance(start, str):
            raise ValueError(f"topics can be read from 'begin', 'end', an offset or a time, not from {start!r}")
        return self._cluster.offsets_at(topic, timestamp_us_of(start), first)

    # --- What has changed -------------------------------------------------------------------------------------------

    def checked(self, topic: Topic, place: PartitionName, position: Mapping[str, Any], first: int, end: int) -> int:
        """Returns the offset of the next record. Raises TopicChanged or PositionLost where it is not there any more."""
        offset = int(position["offset"])
        if position["topic_id"] != topic.id:
            raise self.changed(topic.name)
        if offset > end:
            raise self.lost_tail(topic, place, offset, end)
        return self._pass_over(place, offset, first) if offset < first else offset

    def lost_tail(self, topic: Topic, place: PartitionName, offset: int, end: int) -> TopicChanged:
        return TopicChanged(
            f"{self.where(topic.name)}: partition {place[1]} was read up to offset {offset} and ends at {end}, and the brokers "
            f"have lost its tail or have other records there. Go on with new records: "
            f"{self._set_position(f'{topic.name}/{place[1]}')} end`"
        )

    def _pass_over(self, place: PartitionName, offset: int, first: int) -> int:
        what = (
            f"{self.where(place[0])}: retention has removed offsets {offset} to {first - 1} of partition {place[1]} before "
            f"they were read"
        )
        if not self.skip_missing:
            raise PositionLost(f"{what}; --skip-missing goes on at {first}", first)
        self.missing += first - offset
        self._on_event(f"{what}; going on at {first}")
        return first

    def changed(self, name: str) -> TopicChanged:
        after = f"Read all of the new one with {self._set_position(name)} begin`, or only new records with `… end`"
        return TopicChanged.created_again(self.where(name), after)

    def gone(self, name: str) -> TopicChanged:
        after = f"What was read of it stays. If it is created again, {self._set_position(name)} begin` reads all of the new one"
        return TopicChanged.deleted(self.where(name), after)

    def _set_position(self, part: str) -> str:
        return f"`jlogtool mirror positions set {self._url} SINK {part}"

    # --- Setting a position -----------------------------------------------------------------------------------------

    def positions_at(self, position: Any, part: str | None, stored: SourcePosition) -> SourcePositionChange:
        """Returns the positions of a part of the source, or of all of it, for a flow that goes on at `position`."""
        changed: dict[str, dict[str, Any] | None] = {}
        for name, partition in self._named(part):
            topic = self._cluster.topic(name)
            partitions = self._partitions(topic) if partition is None else [partition]
            topic.check_has(max(partitions))
            first, end = self._cluster.first_offsets(topic, partitions), self._cluster.end_offsets(topic, partitions)
            begin = self._begin(topic, first, end, position)
            for number, offset in begin.items():
                if isinstance(position, int) and position != offset:
                    raise ValueError(
                        f"{name}/{number} has the offsets {first[number]} to {end[number]}; {position} is not one of them"
                    )
            # Partitions of an earlier topic of this name, which had more of them, are gone.
            if partition is None:
                changed |= dict.fromkeys(other for other in stored if other.rpartition("/")[0] == name)
            changed |= {f"{name}/{number}": Part(topic, offset, offset).as_position() for number, offset in begin.items()}
        return changed

    def _named(self, part: str | None) -> list[tuple[str, int | None]]:
        """Returns the topics, each with a partition or None for all of its partitions."""
        if part is None:
            return [(name, None) for name in self.names()]
        name, slash, number = part.partition("/")
        if (slash and not number.isdecimal()) or not matches(name, self._url.topics):
            raise ValueError(f"{self._url} has no part {part}; give a part as TOPIC or TOPIC/PARTITION")
        return [(name, int(number) if slash else None)]
