"""A topic as the sink of a flow: each transaction also stores the source position, in a table of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jlog.flow.ends import Refuse, SourcePosition, SourcePositionChange, changed_by, difference
from jlog.flow.options import nothing
from jlog.flow.records import Headers, RecordLike
from jlog.flow.stop import Stop
from jlog.kafka.client.claims import OWNER
from jlog.kafka.client.clients import AnyProducer, road
from jlog.kafka.client.cluster import Cluster, Topic, check_same, without_leader
from jlog.kafka.client.errors import UnsettledBrokers
from jlog.kafka.client.rules import Rules
from jlog.kafka.client.settings import Settings
from jlog.kafka.client.table import check_prefix, ensure_table, read_table
from jlog.kafka.client.topology import Watcher
from jlog.kafka.client.transactions import Transactions
from jlog.kafka.client.url import TopicUrl
from jlog.kafka.ends.messages import Key, Messages

SINK = "sink"  # the sink's own row in the table

_SET_POSITION = (
    "Move everything again with `jlogtool mirror positions set SOURCE SINK begin`, or only new records with `… SINK end`"
)


class TopicSink:
    """The topic, as the sink of the source that is called `identity`. Opening the same sink again fences the one before.

    key: returns a message's key, None for the record's own.
    partition: the only partition to write to.
    partitions, replication_factor, create, topic_config: for a topic that has to be created.
    check_topic: raises an error where records must not go to this topic.
    origin: returns headers that say where a record comes from, beside its own.
    about: is stored with the source position.
    """

    transaction_records = 300_000  # a commit takes milliseconds, in which nothing is sent

    def __init__(
        self,
        settings: Settings,
        topic: str,
        identity: str,
        *,
        stop: Stop,
        key: Key | None = None,
        partition: int | None = None,
        partitions: int = 1,
        replication_factor: int | None = None,
        create: bool = True,
        check_topic: Callable[[Topic], None] = nothing,
        origin: Callable[[Any], Headers] | None = None,
        about: Mapping[str, Any] = {},
        topic_config: Mapping[str, str] = {},
    ) -> None:
        self.left_out: int = 0
        self.overhead_bytes: int = 0
        self.problem: str = ""
        self.settings = settings
        self.cluster: Cluster = Cluster(settings, stop)
        self.name = topic
        self.where: str = str(TopicUrl(settings.servers, (topic,), partition))
        self.replication_factor = replication_factor
        self.table: str = settings.names.table(topic, identity)
        self._partition = partition
        self._making: dict[str, Any] = {"partitions": partitions, "create": create, "config": topic_config}
        self._check = check_topic
        self._about = dict(about)
        self._transactions = Transactions(self.cluster, topic=topic, table=self.table, check_topic=self._check_there)
        self._messages = Messages(topic, self._transactions, partition=partition, key=key, origin=origin)
        self._source_positions: SourcePosition = {}
        self._prepared: SourcePositionChange = {}
        self._anew: SourcePosition = {}  # the sink's own row, where it goes with a position that is set
        self._topic: Topic | None = None
        self._watcher = Watcher(settings, [topic], table=self.table)
        self._table: Topic | None = None
        self._opened_at = 0.0
        self._rules: Rules | None = None

    # --- Beginning --------------------------------------------------------------------------------------------------

    def open(self, *, forget: bool = False) -> SourcePosition:
        self.drop()
        self.cluster.check(self.name)
        topics = self._ensure_topics(forget)
        topic = topics[0]
        self._check(topic)
        assert self._rules is not None
        self._transactions.start(self._rules.limit_bytes, self._rules.limit_bytes)
        self._transactions.check_partitions(topic.partitions)
        self._transactions.end_what_was_left(topics)
        found = read_source_positions(self.cluster, self.table)
        valid = {} if forget else found
        self._check_same(valid, topic)
        self._check_all_known(valid, topic)
        self._topic = topic
        self._source_positions = found
        row = {SINK: self._own_row(valid, topic)}
        self._anew = row if forget else {}
        if not forget:  # a first transaction, which shows that transactions work
            self.prepare(row)
            self.commit()
        self._opened_at = time.monotonic()
        return {name: source_position for name, source_position in found.items() if name != SINK}

    def _ensure_topics(self, forget: bool) -> list[Topic]:
        """Returns the topics that transactions write to, the one with the records first."""
        if self.cluster.find(self.table) is None:
            check_prefix(self.cluster, self.table)
        elif not forget and self.cluster.find(self.name) is None:
            self._check_id(None, "")
        topic, _ = self.cluster.ensure(self.name, replication_factor=self.replication_factor, **self._making)
        if self._partition is not None:
            topic.check_has(self._partition)
        self._table = ensure_table(self.cluster, self.table, self.replication_factor)
        self._rules = Rules(self.cluster.config(self.name), self.settings.given.get("message.max.bytes"))
        return [topic, self._table]

    def _check_same(self, source_positions: SourcePosition, topic: Topic) -> None:
        self._check_id(topic, source_positions.get(SINK, {}).get("topic_id", topic.id))

    def _check_id(self, topic: Topic | None, topic_id: str) -> Topic:
        return check_same(self.where, topic, topic_id, f"What was moved is not in it. {_SET_POSITION}")

    def _check_all_known(self, source_positions: SourcePosition, topic: Topic) -> None:
        """Raises Unsettled where a broker does not know all partitions yet: keys would go back to where they were."""
        placing = source_positions.get(SINK, {}).get("placing", [])
        known = max((int(one["partitions"]) for one in placing), default=0)
        if topic.partitions < known:
            text = f"kafka://{self.settings.servers}/{self.name} has {known} partitions, and not all brokers know them yet"
            raise UnsettledBrokers(text)

    def _own_row(self, source_positions: SourcePosition, topic: Topic) -> dict[str, Any]:
        """Returns what the sink itself stores with the source position."""
        sink = source_positions.get(SINK) or {"topic_id": topic.id, "begin": self.cluster.end_offsets(topic), "placing": []}
        by = self.settings.partitioner if self._partition is None else self._partition
        placing = {"partitions": topic.partitions, "by": by}
        if not sink["placing"] or {**sink["placing"][-1], **placing} != sink["placing"][-1]:
            since = {name: source_position for name, source_position in source_positions.items() if name != SINK}
            sink = {**sink, "placing": [*sink["placing"], {**placing, "since": since}]}
        return {"left_out": 0, **sink, **self._about}

    # --- A transaction ----------------------------------------------------------------------------------------------

    def _begun(self) -> AnyProducer:
        if not self._transactions.is_begun:
            self.left_out = self.overhead_bytes = 0
        return self._transactions.begun()

    def look(self) -> None:
        found = self._watcher.news()
        if found is None or found.asked_at < self._opened_at:
            return
        if found.error is not None:
            raise found.error
        self._check_table(found.topics.get(self.table))
        if found.table_end is not None:
            self._transactions.follow_claims(found.table_end)
        topic = found.topics.get(self.name)
        self._check_is(topic)
        leaderless = topic.leaderless if topic is not None else ()
        self.problem = f"{self.where}: {without_leader(self.name, leaderless)}, and takes no record" if leaderless else ""

    def write(self, batch: Iterable[RecordLike], refuse: Refuse) -> int:
        producer = self._begun()
        assert self._topic is not None
        assert self._rules is not None
        value_bytes, beside_bytes = self._messages.send(producer, batch, refuse, self._topic.partitions, self._rules)
        self.overhead_bytes += beside_bytes
        self._transactions.poll(0)
        return value_bytes

    def leave_out(self) -> None:
        self._begun()
        self.left_out += 1

    @property
    def road(self) -> str:
        return road(self.settings)

    @property
    def limit_bytes(self) -> int:
        """The most bytes that a message may have, once the sink is open."""
        assert self._rules is not None, "open() comes first"
        return self._rules.limit_bytes

    def prepare(self, source_positions: SourcePositionChange) -> None:
        self._begun()
        if self.left_out:
            sink = self._source_positions[SINK]
            source_positions = {**source_positions, SINK: {**sink, "left_out": sink["left_out"] + self.left_out}}
        self._prepared = source_positions = {**self._anew, **source_positions}
        with self._transactions.telling("producing positions"):
            for name, source_position in difference(self._source_positions, source_positions).items():
                row = None if source_position is None else json.dumps(source_position).encode()
                self._messages.produce(self._begun(), self.table, row, name.encode())

    def commit(self) -> None:
        self._transactions.flush(self._check_topic)
        self._check_topic()  # all records are delivered; this makes sure that it is still the same topic
        self._transactions.commit()
        self._source_positions = changed_by(self._source_positions, self._prepared)
        self._anew = {}

    def _check_there(self, topic: str) -> None:
        """Raises TopicChanged where a topic that this mirror writes to is gone, or another one."""
        if self._topic is None:
            return  # it has not begun: nothing was there before
        found = self.cluster.find(topic)
        if topic == self.table:
            self._check_table(found)
        else:
            self._check_is(found)

    def _check_topic(self) -> None:
        self._check_is(self.cluster.find(self.name))

    def _check_is(self, found: Topic | None) -> None:
        """Raises TopicChanged where the topic is not the one to which records went."""
        assert self._topic is not None
        found = self._check_id(found, self._topic.id)
        if found.partitions > self._topic.partitions:  # a broker may not have heard of them yet
            # The open transaction is void: its keys may have gone to partitions by either count.
            where = f"kafka://{self.settings.servers}/{self.name}"
            text = (
                f"{where} has {found.partitions} partitions now, and had {self._topic.partitions}: keys change theirs from here"
            )
            raise UnsettledBrokers(text)

    def _check_table(self, found: Topic | None) -> None:
        assert self._table is not None
        where = f"kafka://{self.settings.servers}/{self.table}, where this mirror stores its position,"
        after = "The next start goes on at its subscriber's position; `jlogtool mirror verify` compares what was moved"
        check_same(where, found, self._table.id, after)

    def abort(self) -> bool:
        return self._transactions.abort()

    def drop(self) -> None:
        self._transactions.drop()

    def close(self) -> None:
        self._watcher.close()
        self._transactions.close()
        self.cluster.close()


def stored_in_topic(cluster: Cluster, topic: str, identity: str) -> SourcePosition:
    """Returns the source position that a sink of this identity has stored beside the topic, which need not exist."""
    table = cluster.settings.names.table(topic, identity)
    found = read_source_positions(cluster, table) if cluster.find(table) is not None else {}
    return {name: source_position for name, source_position in found.items() if name != SINK}


def read_source_positions(cluster: Cluster, table: str) -> SourcePosition:
    """Returns the source position in the table, and the sink's own row."""
    return {name: row for name, row in read_table(cluster, table).items() if name != OWNER}
