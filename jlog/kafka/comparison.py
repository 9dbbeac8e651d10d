"""Compares a journal and a topic record by record: value, key, headers and milliseconds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jlog.errors import JournalError
from jlog.flow.ends import Refused
from jlog.flow.records import RecordLike
from jlog.kafka.client.names import OFFSET, PARTITION, TOPIC
from jlog.kafka.client.partitioner import partition_of_key
from jlog.kafka.client.records import headers_of
from jlog.kafka.client.rules import milliseconds
from jlog.kafka.client.settings import Config
from jlog.kafka.client.streams import OpenTransaction, Stream, open_transactions
from jlog.kafka.ends.messages import SPREAD_BITS, without_ours
from jlog.kafka.ends.topic_sink import SINK
from jlog.kafka.mirrors import key_of
from jlog.kafka.status import FROM_KAFKA, TO_KAFKA, Pair, find_pair
from jlog.reading.reader import Reader
from jlog.record import Record

if TYPE_CHECKING:
    from jlog.kafka.client.cluster import Topic

EXAMPLES = 10
STABLE_TRIES = 10


@dataclass
class Comparison:
    """The result of verify(). `differences` counts records that differ or are on one side only; `examples` are the first of
    them. `gone` counts records that retention or compaction has removed on one side, so that they cannot be compared.
    `foreign` counts records of the journal that a capture did not bring from this topic. `hidden` counts those beyond the
    place where an open transaction hides all from readers. times_compared: False where the topic gives each record a
    time of its own (message.timestamp.type=LogAppendTime)."""

    direction: str
    compared: int = 0
    differences: int = 0
    gone: int = 0
    left_out: int = 0  # records that were refused when they were mirrored
    foreign: int = 0
    hidden: int = 0
    not_captured: int = 0  # records of partitions that were added to the topic, and that the capture has not begun with yet
    times_compared: bool = True
    examples: list[dict[str, Any]] = field(default_factory=list)
    open_transactions: list[OpenTransaction] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.differences and not self.hidden

    def differ(self, **where: Any) -> None:
        self.differences += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(where)


def verify(
    journal: str | os.PathLike[str], url: str, *, config: Config = None, config_file: str | os.PathLike[str] | None = None
) -> Comparison:
    """Compares the records that were moved between the two, in either direction. Headers that begin with jlog.kafka. do not
    count.

    Raises JournalError where nothing was moved, or where a transform changes the records.
    """
    pair = find_pair(journal, url, config, config_file)
    if any(source_position.get("transform") for source_position in pair.source_positions.values()):
        raise JournalError(
            f"{pair.journal.path} and {pair.url}: a transform is between them, so their records differ and cannot be compared"
        )
    return _verify_mirror(pair) if pair.direction == TO_KAFKA else _verify_capture(pair)


def difference(record: RecordLike, message: Any, key: bytes | None, with_time: bool = True) -> str:
    """Returns the first field that differs; an empty text where none does."""
    if record.value != message.value():
        return "value"
    if key != message.key():
        return "key"
    time_us = record.timestamp_us
    assert time_us is not None
    if with_time and milliseconds(time_us) != milliseconds(message.timestamp()[1] * 1000):
        return "timestamp"
    try:
        return "" if without_ours(record.headers) == without_ours(headers_of(message)) else "headers"
    except Refused:
        return "headers"


# --- Journal to topic -----------------------------------------------------------------------------------------------


def _verify_mirror(pair: Pair) -> Comparison:
    mirror = Expected(pair)
    found = Comparison(TO_KAFKA, times_compared=mirror.keeps_times)
    found.open_transactions = open_transactions(pair.cluster, mirror.topic, mirror.hidden_from)
    streams = mirror.streams()
    found.gone += mirror.extra
    for record, key, partition in mirror.records():
        if mirror.is_gone(partition):
            found.gone += 1
            continue
        _compare_next(record, key, partition, streams[partition], mirror, found)
    _count_rest(streams, found)
    return found


def _count_rest(streams: Mapping[int, Stream], found: Comparison) -> None:
    """Counts the messages that are left: they are only in the topic."""
    for partition, stream in streams.items():
        for message in stream:
            found.differ(what="only in the topic", partition=partition, offset=message.offset())


def _compare_next(record: Any, key: bytes | None, partition: int, stream: Stream, mirror: Expected, found: Comparison) -> None:
    message = next(stream, None)
    if message is None and partition in mirror.hidden_from:
        found.hidden += 1
        return
    differs = "only in the journal" if message is None else difference(record, message, key, found.times_compared)
    if not differs:
        found.compared += 1
    elif mirror.may_be_missing():
        if message is not None:
            stream.put_back(message)
        if mirror.compacted:
            found.gone += 1
        else:
            found.left_out += 1
    else:
        where = {} if message is None else {"offset": message.offset()}
        found.differ(what=differs, sequence=record.sequence, partition=partition, **where)


class Expected:
    """The records of a journal that a topic should have, by the mirror's source position: those from `begin` to `end`. One of
    the two sides may have lost its head."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.topic: Topic = pair.topic()
        self.first: dict[int, int] = pair.cluster.first_offsets(self.topic)
        self.begin: int
        self.end: int
        self._read_ends()
        self._sink = pair.source_positions[SINK]
        self._key = key_of(self._sink["key"])
        self._left_out = int(self._sink["left_out"])
        config = pair.cluster.config(pair.url.topic)
        self.compacted: bool = "compact" in config.get("cleanup.policy", "")
        self.keeps_times: bool = config.get("message.timestamp.type") != "LogAppendTime"
        self._gone: Counter[int] = Counter()
        self._extra: Counter[int] = Counter()
        if not self.compacted:
            self._align()

    def _read_ends(self) -> None:
        """Reads the source position and the ends of the partitions of the same moment, while a mirror may be running."""
        source_position = self._pair.source_positions[self._pair.journal.uuid]
        for _ in range(STABLE_TRIES):
            self.hidden_from: dict[int, int] = self._pair.cluster.hidden_from(self.topic)
            self.ends: dict[int, int] = self._pair.cluster.end_offsets(self.topic)
            again = find_pair(self._pair.journal.path, str(self._pair.url), self._pair.cluster.settings.given).source_positions
            before, source_position = source_position, again[self._pair.journal.uuid]
            if before == source_position:
                break
        else:
            raise JournalError(f"{self._pair.url} is being mirrored to faster than it can be compared; stop the mirror")
        self.begin, self.end = int(source_position["begin"]), int(source_position["sequence"])

    def _begins(self, partition: int) -> int:
        """Returns the offset of the first message that the mirror has sent to this partition."""
        return int(self._sink["begin"].get(str(partition), 0))

    def streams(self) -> dict[int, Stream]:
        found = {}
        for partition, end in self.ends.items():
            begin = max(self._begins(partition), self.first[partition])
            found[partition] = Stream(self._pair.cluster, self.topic.name, partition, begin, end)
            for _ in range(self._extra[partition]):
                next(found[partition], None)
        return found

    def records(self) -> Iterator[tuple[Any, bytes | None, int]]:
        """Yields each record with its key, and the partition in which it should be."""
        with Reader(self._pair.journal.path, start=max(self.begin, self._pair.journal.first_sequence)) as reader:
            while reader.position < self.end and len(batch := reader.read(min(1000, self.end - reader.position))):
                for record in batch:
                    key = record.key if self._key is None else self._key(record)
                    yield record, key, self._partition(record, key)

    def _partition(self, record: Any, key: bytes | None) -> int:
        uuid = self._pair.journal.uuid
        placing = next(
            at
            for at in reversed(self._sink["placing"])
            if at["since"].get(uuid, {"sequence": 0})["sequence"] <= record.sequence
        )
        by, count = placing["by"], int(placing["partitions"])
        if isinstance(by, int):
            return by
        if count == 1:
            return 0
        if key is None:
            return int(record.sequence >> SPREAD_BITS) % count
        found = partition_of_key(key, count, by)
        if found is None:
            raise JournalError(
                f"{self._pair.url}: partitioner={by} chooses a random partition for record {record.sequence}, so nothing can "
                "be compared"
            )
        return found

    def _align(self) -> None:
        """Aligns the two sides where the head of one was removed: both are compared from the end backward as far as both go. It
        counts how many records each partition has on either side."""
        head_of_topic = any(first > self._begins(partition) for partition, first in self.first.items())
        head_of_journal = self._pair.journal.first_sequence > self.begin
        if not head_of_topic and not head_of_journal:
            return
        expected = Counter(partition for _, _, partition in self.records())
        for partition, stream in self.streams().items():
            there = sum(1 for _ in stream)
            self._gone[partition] = max(0, expected[partition] - there) if head_of_topic else 0
            self._extra[partition] = max(0, there - expected[partition]) if head_of_journal else 0

    @property
    def extra(self) -> int:
        """Returns the number of the topic's records that retention has removed from the journal."""
        return sum(self._extra.values())

    def is_gone(self, partition: int) -> bool:
        """Says whether retention has removed the next record of this partition from the topic."""
        if self._gone[partition] <= 0:
            return False
        self._gone[partition] -= 1
        return True

    def may_be_missing(self) -> bool:
        if self.compacted:
            return True
        self._left_out -= 1
        return self._left_out >= 0


# --- Topic to journal -----------------------------------------------------------------------------------------------


def _verify_capture(pair: Pair) -> Comparison:
    found = Comparison(FROM_KAFKA)
    topic = pair.topic()
    found.open_transactions = open_transactions(pair.cluster, topic, pair.cluster.hidden_from(topic))
    first = pair.cluster.first_offsets(topic)
    compacted = "compact" in pair.cluster.config(topic.name).get("cleanup.policy", "")
    streams: dict[int, Stream] = {}
    for number, source_position in pair.source_positions.items():
        partition = int(number)
        pair.check_is(topic, source_position["topic_id"])
        begin = max(int(source_position["begin"]), first[partition])
        streams[partition] = Stream(pair.cluster, topic.name, partition, begin, int(source_position["offset"]))
    if pair.url.partition is None:
        new = range(max(streams) + 1, topic.partitions)
        ends = pair.cluster.end_offsets(topic, new)
        found.not_captured = sum(ends[partition] - first[partition] for partition in new)
    with Reader(pair.journal.path) as reader:
        begun = set(streams) if reader.position == 0 else set()  # only where the journal still has its head
        for record, partition, offset in _captured(reader, topic.name, streams, found):
            message = _at(streams[partition], partition, offset, found if partition in begun else None)
            begun.add(partition)
            where = {"sequence": record.sequence, "partition": partition, "offset": offset}
            if message is None:
                if compacted or offset < first[partition]:
                    found.gone += 1
                else:
                    found.differ(what="only in the journal", **where)
            elif differs := difference(record, message, record.key):
                found.differ(what=differs, **where)
            else:
                found.compared += 1
    _count_rest(streams, found)
    return found


def _captured(reader: Reader, topic: str, partitions: Iterable[int], found: Comparison) -> Iterator[tuple[Record, int, int]]:
    """Yields the records that were captured from this topic, with partition and offset. Counts the others."""
    for record in reader:
        origin = dict(record.headers)  # the added headers come last, whatever the message has
        partition, offset = origin.get(PARTITION), origin.get(OFFSET)
        is_of_topic = partition is not None and offset is not None and origin.get(TOPIC, topic.encode()) == topic.encode()
        if is_of_topic and int(partition or 0) in partitions:
            yield record, int(partition or 0), int(offset or 0)
        else:
            found.foreign += 1


def _at(stream: Stream, partition: int, offset: int, found: Comparison | None) -> Any:
    """Returns the message at this offset, or None. The messages before it are only in the topic, which is counted in `found`;
    None: the journal has lost its head."""
    for message in stream:
        if message.offset() == offset:
            return message
        if message.offset() > offset:
            stream.put_back(message)
            return None
        if found is not None:
            found.differ(what="only in the topic", partition=partition, offset=message.offset())
    return None
