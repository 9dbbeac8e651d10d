"""A topic as the sink of a flow: each transaction also stores the source position, in a table of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from jlog.flow.ends import SourcePosition, SourcePositionChange, changed_by
from jlog.flow.engine import Policy, nothing
from jlog.flow.errors import Refused, Retry
from jlog.flow.records import Headers, RecordLike
from jlog.flow.stop import Stop
from jlog.kafka.client.claims import OWNER
from jlog.kafka.client.cluster import Cluster, Topic
from jlog.kafka.client.errors import REFUSED, BrokerError, TopicChanged, code_of, describe
from jlog.kafka.client.names import OURS_PREFIX, positions_topic
from jlog.kafka.client.rules import Rules, milliseconds, overhead_bytes_of
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.table import ensure_table, read_table
from jlog.kafka.client.topology import Watcher
from jlog.kafka.client.transactions import Transactions

SINK = "sink"  # the sink's own row in the table
SPREAD_BITS = 10  # records without a key go to one partition 1024 at a time
DEAD_LETTER_BYTES = 16 << 20  # max.message.bytes of a topic for dead letters that is made
REASON_BYTES = 1_000  # longest reason in a dead letter: the error of a function may quote the whole record

_SET_POSITION = (
    "Move everything again with `jlogtool mirror positions set SOURCE SINK begin`, or only new records with `… SINK end`"
)

Key = Callable[[RecordLike], "bytes | None"]


class TopicSink:
    """The topic, as the sink of the source that is called `identity`. Opening the same sink again fences the one before.

    key: returns a message's key, None for the record's own.
    partition: the only partition to write to.
    refused, dead_letter: the treatment of records that the topic refuses, and the topic for them.
    partitions, replication_factor, create: for a topic that has to be made.
    check_topic: raises an error where records must not go to this topic.
    origin: returns headers that say where a record comes from, beside its own.
    about: is stored with the source position.
    describe: names the place of a record in the source.
    """

    transaction_records = 100_000

    def __init__(
        self,
        settings: Settings,
        topic: str,
        identity: str,
        *,
        stop: Stop,
        key: Key | None = None,
        partition: int | None = None,
        refused: Policy = "stop",
        dead_letter: str | None = None,
        partitions: int = 1,
        replication_factor: int | None = None,
        create: bool = True,
        check_topic: Callable[[Topic], None] = nothing,
        origin: Callable[[Any], Headers] | None = None,
        about: Mapping[str, Any] = {},
        describe: Callable[[Any], str] = str,
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        if (refused == "dead-letter") != (dead_letter is not None):
            raise ValueError("refused='dead-letter' and a topic for dead letters go together")
        self.left_out = 0
        self.overhead_bytes = 0
        self.settings = settings
        self.cluster = Cluster(settings, stop)
        self.name = topic
        self.positions_topic = positions_topic(topic, identity)
        self._stop = stop
        self._key = key
        self._partition = partition
        self._refused = refused
        self._dead_letter = dead_letter
        self._making: dict[str, Any] = {
            "partitions": partitions,
            "replication_factor": replication_factor,
            "create": create,
        }
        self._check = check_topic
        self._origin = origin
        self._about = dict(about)
        self._describe = describe
        self._on_event = on_event
        self._transactions = Transactions(settings, self.cluster, stop, topic=topic, table=self.positions_topic)
        self._source_positions: SourcePosition = {}
        self._prepared: SourcePositionChange = {}
        self._topic: Topic | None = None
        self._watcher = Watcher(settings, [topic])
        self._rules: Rules | None = None
        self._dead_letter_bytes = 0

    # --- Beginning --------------------------------------------------------------------------------------------------

    def open(self, *, forget: bool = False) -> SourcePosition:
        self.drop()
        self.cluster.check()
        topic = self._ensure_topics(forget)
        self._check(topic)
        assert self._rules is not None
        limit = self._rules.limit_bytes
        largest = max(limit, self._dead_letter_bytes)
        self._transactions.start(limit, largest)
        self._transactions.check_partitions(topic.partitions)
        found = read_source_positions(self.settings, self.positions_topic, self._stop)
        valid = {} if forget else found
        self._check_same(valid, topic)
        self._topic = topic
        self._source_positions = found
        self._commit_first(valid, topic)
        return {name: source_position for name, source_position in found.items() if name != SINK}

    def _ensure_topics(self, forget: bool) -> Topic:
        if not forget and self.cluster.find(self.name) is None and self.cluster.find(self.positions_topic) is not None:
            raise self._deleted()
        topic, _ = self.cluster.ensure(self.name, **self._making)
        if self._partition is not None:
            topic.check_has(self._partition)
        replication_factor = self._making["replication_factor"]
        ensure_table(self.cluster, self.positions_topic, replication_factor)
        self._rules = Rules(self.cluster.config(self.name), self.settings.given.get("message.max.bytes"))
        if self._dead_letter is not None:
            config = {"max.message.bytes": str(DEAD_LETTER_BYTES)}
            self.cluster.ensure(self._dead_letter, replication_factor=replication_factor, config=config)
            self._dead_letter_bytes = Rules(self.cluster.config(self._dead_letter)).limit_bytes
        return topic

    def _check_same(self, source_positions: SourcePosition, topic: Topic) -> None:
        known = source_positions.get(SINK, {}).get("topic_id", topic.id)
        if known != topic.id:
            raise TopicChanged(
                f"kafka://{self.settings.servers}/{self.name} was deleted and made again since the last transaction: what was "
                f"moved is not in it. {_SET_POSITION}"
            )

    def _commit_first(self, source_positions: SourcePosition, topic: Topic) -> None:
        """Commits a first transaction, which shows that transactions work."""
        sink = source_positions.get(SINK) or {
            "topic_id": topic.id,
            "begin": self.cluster.end_offsets(topic),
            "placing": [],
        }
        by = self.settings.partitioner if self._partition is None else self._partition
        placing = {"partitions": topic.partitions, "by": by}
        if not sink["placing"] or {**sink["placing"][-1], **placing} != sink["placing"][-1]:
            since = {name: source_position for name, source_position in source_positions.items() if name != SINK}
            sink = {**sink, "placing": [*sink["placing"], {**placing, "since": since}]}
        sink = {"left_out": 0, **sink, **self._about}
        self.prepare({SINK: sink})
        self.commit()

    # --- A transaction ----------------------------------------------------------------------------------------------

    def _begun(self) -> Producer:
        if not self._transactions.is_begun:
            self.left_out = self.overhead_bytes = 0
        return self._transactions.begun()

    def look(self) -> None:
        found = self._watcher.news()
        if found is None:
            return
        if found.error is not None:
            raise found.error
        self._check_is(found.topics.get(self.name))

    def write(self, batch: Iterable[RecordLike]) -> int:
        producer = self._begun()
        produce, name, key_of = producer.produce, self.name, self._key
        assert self._topic is not None
        assert self._rules is not None
        partitions, rules = self._topic.partitions, self._rules
        spread = partitions > 1 and self._partition is None
        limit, keyed = rules.limit_bytes, rules.needs_key
        earliest_ms, latest_ms = rules.times_ms()
        partition, size, beside = self._partition or 0, 0, 0
        for record in batch:
            value, time_us = record.value, record.timestamp_us
            key = record.key if key_of is None else key_of(record)
            if spread:
                partition = partition_of(record, key, partitions)
            time_ms = 0 if time_us is None else time_us // 1000 or 1  # milliseconds(), without the call
            length = len(value) if value else 0
            if length > limit or not earliest_ms <= time_ms <= latest_ms or (keyed and key is None):
                reason = rules.refusal(record, key)
                if reason:
                    self._refuse(record, reason)
                    continue
            size += length
            headers = record.headers
            if key:
                beside += len(key)
            try:
                if headers or self._origin is not None:
                    if any("\0" in name for name, _ in headers):  # the client would cut the name there
                        self._refuse(record, "the name of one of its headers has a NUL")
                        continue
                    headers = without_ours(headers)
                    if self._origin is not None:
                        headers = [*headers, *self._origin(record)]
                    beside += overhead_bytes_of(None, headers)
                    produce(name, value, key, partition, None, None, time_ms, headers)
                else:
                    produce(name, value, key, partition, None, None, time_ms)
            except (BufferError, KafkaException):
                try:
                    self._produce(name, value, key, partition, None, None, time_ms, [*headers])
                except KafkaException as error:
                    if code_of(error) not in REFUSED:
                        raise self._transactions.what_failed(error, "producing") from None
                    self._refuse(record, describe(error.args[0]))
        self.overhead_bytes += beside
        self._transactions.poll(0)
        return size

    def _produce(self, *message: Any) -> None:
        """Waits while the queue is full. Raises KafkaException where the client refuses the message."""
        produce = self._begun().produce
        while True:
            try:
                produce(*message)
            except (BufferError, KafkaException) as error:
                if not isinstance(error, BufferError) and code_of(error) != KafkaError._QUEUE_FULL:
                    raise
            else:
                return
            self._transactions.poll(self._stop.slice())

    def _refuse(self, record: RecordLike, reason: str) -> None:
        if self._refused == "stop":
            raise Refused(f"{reason} (topic {self.name})", record)
        where = self._describe(record) if hasattr(record, "sequence") else "a record that the transform made"
        self._on_event(f"{where} is refused: {reason}")
        self.leave_out(record, where, reason)

    def leave_out(self, record: RecordLike, where: str, reason: str) -> None:
        self._begun()
        self.left_out += 1
        if self._dead_letter is None:
            return
        about = [("jlog.refused", reason.encode()[:REASON_BYTES]), ("jlog.record", where.encode())]
        own = _readable_headers(record)
        value, key, headers = record.value, record.key, [*without_ours(own), *about]
        time_us = record.timestamp_us
        # It keeps its own time, unless that lies in the future, which may be why it is here.
        time_ms = 0 if time_us is None or time_us > time.time() * 1e6 else milliseconds(time_us)
        size = len(value or b"") + overhead_bytes_of(key, own)
        if size + overhead_bytes_of(None, about) > self._dead_letter_bytes:
            value, headers = None, [*about, ("jlog.bytes", b"%d" % size)]
            if overhead_bytes_of(key, headers) > self._dead_letter_bytes:
                key = None
        try:
            self._produce(self._dead_letter, value, key, -1, None, None, time_ms, headers)
        except KafkaException as error:
            raise self._transactions.what_failed(error, "producing a dead letter") from None

    def prepare(self, source_positions: SourcePositionChange) -> None:
        self._begun()
        if self.left_out:
            sink = self._source_positions[SINK]
            source_positions = {**source_positions, SINK: {**sink, "left_out": sink["left_out"] + self.left_out}}
        self._prepared = source_positions
        changed = {
            name: source_position
            for name, source_position in source_positions.items()
            if self._source_positions.get(name) != source_position
        }
        try:
            for name, source_position in changed.items():
                row = None if source_position is None else json.dumps(source_position).encode()
                self._produce(self.positions_topic, row, name.encode())
        except KafkaException as error:
            raise self._transactions.what_failed(error, "producing positions") from None

    def commit(self) -> None:
        self._transactions.flush(self._check_topic)
        self._check_topic()  # all records are delivered; this makes sure that it is still the same topic
        self._transactions.commit()
        self._source_positions = changed_by(self._source_positions, self._prepared)

    def _check_topic(self) -> None:
        self._check_is(self.cluster.find(self.name))

    def _check_is(self, found: Topic | None) -> None:
        """Raises TopicChanged where the topic is not the one to which records went."""
        assert self._topic is not None
        if found is None:
            raise self._deleted()
        self._check_same({SINK: {"topic_id": self._topic.id}}, found)
        if found.partitions != self._topic.partitions:
            # The open transaction is void: its keys may have gone to partitions by either count.
            where = f"kafka://{self.settings.servers}/{self.name}"
            text = (
                f"{where} has {found.partitions} partitions now, and had {self._topic.partitions}: keys change theirs from here"
            )
            raise Retry(text, BrokerError(text))

    def _deleted(self) -> TopicChanged:
        return TopicChanged(
            f"kafka://{self.settings.servers}/{self.name} was deleted, with all that was moved to it. {_SET_POSITION}"
        )

    def abort(self) -> bool:
        return self._transactions.abort()

    def drop(self) -> None:
        self._transactions.drop()

    def close(self) -> None:
        self._watcher.close()
        self._transactions.close()


def _readable_headers(record: RecordLike) -> Headers:
    """Returns the headers; none where they are why the record is refused, since their names cannot be sent."""
    try:
        headers = record.headers
    except Refused:
        return ()
    return () if any("\0" in name for name, _ in headers) else headers


def partition_of(record: RecordLike, key: bytes | None, partitions: int) -> int:
    """Returns the partition; -1 leaves it to the client's partitioner. Records without a key are spread by their sequence, so
    that a comparison knows where each is."""
    if key is not None:
        return -1
    sequence: int = getattr(record, "sequence", -1)
    return -1 if sequence < 0 else (sequence >> SPREAD_BITS) % partitions


def without_ours(headers: Headers) -> Sequence[tuple[str, bytes | None]]:
    """Returns the headers without those that a capture adds."""
    return [header for header in headers if not header[0].startswith(OURS_PREFIX)]


def read_source_positions(settings: Settings, table: str, stop: Stop) -> SourcePosition:
    rows = read_table(settings, table, stop)
    return {key.decode(): json.loads(value) for key, value in rows.items() if key != OWNER}
