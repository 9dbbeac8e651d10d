"""The requests of Kafka's protocol that jlog makes itself, and the answers to them.

https://kafka.apache.org/protocol is the specification. Of each request there is one version: the newest without tagged fields,
but for one request. Brokers from 2.5 on know them, and 4.x still does (KIP-896).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS = 0, 1, 3, 10, 18
INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, ADD_PARTITIONS_TO_TXN, END_TXN = 22, 23, 24, 26
VERSIONS = {
    PRODUCE: 8,
    FETCH: 11,
    METADATA: 7,
    FIND_COORDINATOR: 2,
    API_VERSIONS: 0,
    INIT_PRODUCER_ID: 3,
    OFFSET_FOR_LEADER_EPOCH: 3,
    ADD_PARTITIONS_TO_TXN: 1,
    END_TXN: 1,
}
TAGGED = frozenset((INIT_PRODUCER_ID,))  # requests with tagged fields, and lengths that are varints
NO_TAGS = b"\0"
TRANSACTION = 1  # the kind of a coordinator
ALL_REPLICAS = -1
READ_COMMITTED = 1
NO_SESSION = 0, -1  # a fetch with all of its partitions

Buffer = bytes | bytearray | memoryview


class Request(NamedTuple):
    """A request, in pieces that are sent one behind the other. read: makes an object of the answer."""

    api: int
    pieces: list[Buffer]
    read: Callable[[Answer], Any]


class Answer:
    """Reads the fields of an answer, one behind the other. Raises struct.error where it ends early."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def fields(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(">" + form, self._data, self._at)
        self._at += struct.calcsize(">" + form)
        return found

    def number(self, form: str = "i") -> int:
        return int(self.fields(form)[0])

    def piece(self, size: int) -> memoryview:
        if size < 0 or self._at + size > len(self._data):
            raise struct.error(f"{size} bytes at {self._at}, of {len(self._data)}")
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str | None:
        size = self.number("h")
        return None if size < 0 else str(self.piece(size), "utf-8", "replace")

    def array(self, read: Callable[[Answer], Any]) -> list[Any]:
        return [read(self) for _ in range(max(0, self.number()))]


def text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def varint(number: int) -> bytes:
    """Encodes a number without a sign."""
    found = b""
    while number >= 0x80:
        found += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return found + bytes((number,))


def array(items: Iterable[bytes]) -> bytes:
    found = list(items)
    return struct.pack(">i", len(found)) + b"".join(found)


# --- What brokers there are -----------------------------------------------------------------------------------------


def api_versions() -> Request:
    """Its answer: the oldest and newest version of each request that the broker knows, by the number of the request."""

    def read(answer: Answer) -> dict[int, tuple[int, int]]:
        code = answer.number("h")
        known = answer.array(lambda one: one.fields("hhh"))
        return {} if code else {api: (oldest, newest) for api, oldest, newest in known}

    return Request(API_VERSIONS, [], read)


class Leader(NamedTuple):
    """The broker that leads a partition. node -1: there is none."""

    node: int
    epoch: int


class TopicFound(NamedTuple):
    code: int
    leaders: dict[int, Leader]  # by partition


class Metadata(NamedTuple):
    brokers: dict[int, tuple[str, int]]  # host and port, by node
    topics: dict[str, TopicFound]


def metadata(topics: Iterable[str]) -> Request:
    def read_broker(answer: Answer) -> tuple[int, tuple[str, int]]:
        node, host, port, _rack = answer.number(), answer.text(), answer.number(), answer.text()
        return node, (host or "", port)

    def read_partition(answer: Answer) -> tuple[int, Leader]:
        _code, partition, node, epoch = answer.fields("hiii")
        for _replicas in range(3):  # all of them, those in sync, those that are away
            answer.array(Answer.number)
        return partition, Leader(node, epoch)

    def read_topic(answer: Answer) -> tuple[str, TopicFound]:
        code, name, _internal = answer.number("h"), answer.text(), answer.number("b")
        return name or "", TopicFound(code, dict(answer.array(read_partition)))

    def read(answer: Answer) -> Metadata:
        answer.number()  # throttle time
        brokers = dict(answer.array(read_broker))
        answer.text()  # cluster
        answer.number()  # controller
        return Metadata(brokers, dict(answer.array(read_topic)))

    return Request(METADATA, [array(map(text, topics)), b"\0"], read)  # makes no topic


class CoordinatorFound(NamedTuple):
    code: int
    reason: str
    node: int
    host: str
    port: int


def find_coordinator(transactional_id: str) -> Request:
    def read(answer: Answer) -> CoordinatorFound:
        _throttled, code = answer.fields("ih")
        reason, node = answer.text(), answer.number()
        return CoordinatorFound(code, reason or "", node, answer.text() or "", answer.number())

    return Request(FIND_COORDINATOR, [text(transactional_id), struct.pack(">b", TRANSACTION)], read)


# --- Transactions ---------------------------------------------------------------------------------------------------


class ProducerId(NamedTuple):
    """The number of a producer, and of its instance."""

    id: int
    epoch: int

    def pack(self) -> bytes:
        return struct.pack(">qh", *self)


NO_PRODUCER = ProducerId(-1, -1)


def init_producer_id(transactional_id: str, timeout_ms: int, producer: ProducerId) -> Request:
    """producer: the one that is to have a new epoch, unless another instance has one already. NO_PRODUCER: a new instance,
    which fences all others. Its answer: an error code, and the producer."""

    def read(answer: Answer) -> tuple[int, ProducerId]:
        _tags, _throttled, code, number, epoch = answer.fields("bihqh")
        return code, ProducerId(number, epoch)

    encoded = transactional_id.encode()
    size = varint(len(encoded) + 1)
    return Request(INIT_PRODUCER_ID, [size + encoded, struct.pack(">i", timeout_ms), producer.pack(), NO_TAGS], read)


Place = tuple[str, int]  # topic and partition


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, partition in places:
        found.setdefault(topic, []).append(partition)
    return found


def _read_codes(answer: Answer) -> tuple[str, list[tuple[int, int]]]:
    return answer.text() or "", answer.array(lambda one: one.fields("ih"))


def add_partitions(transactional_id: str, producer: ProducerId, places: Iterable[Place]) -> Request:
    """Its answer: an error code for each partition."""
    topics = array(
        text(topic) + array(struct.pack(">i", partition) for partition in partitions)
        for topic, partitions in _by_topic(places).items()
    )

    def read(answer: Answer) -> dict[Place, int]:
        answer.number()  # throttle time
        found = answer.array(_read_codes)
        return {(topic, partition): code for topic, partitions in found for partition, code in partitions}

    return Request(ADD_PARTITIONS_TO_TXN, [text(transactional_id), producer.pack(), topics], read)


def end_transaction(transactional_id: str, producer: ProducerId, *, commit: bool) -> Request:
    """Its answer: an error code."""

    def read(answer: Answer) -> int:
        return int(answer.fields("ih")[1])

    return Request(END_TXN, [text(transactional_id), producer.pack(), struct.pack(">b", commit)], read)


# --- Records --------------------------------------------------------------------------------------------------------


class Produced(NamedTuple):
    """The result of sending a batch. refused: indexes of the records that are the cause of an error."""

    code: int
    refused: tuple[int, ...]
    reason: str


def produce(transactional_id: str, timeout_ms: int, batches: Mapping[Place, Sequence[Buffer]]) -> Request:
    """batches: the batch of each partition, in pieces. Its answer: Produced for each partition."""
    topics: dict[str, list[Place]] = {}
    for place in batches:
        topics.setdefault(place[0], []).append(place)
    pieces: list[Buffer] = [text(transactional_id) + struct.pack(">hii", ALL_REPLICAS, timeout_ms, len(topics))]
    for topic, places in topics.items():
        pieces.append(text(topic) + struct.pack(">i", len(places)))
        for place in places:
            batch = batches[place]
            pieces += [struct.pack(">ii", place[1], sum(map(len, batch))), *batch]

    def read_partition(answer: Answer) -> tuple[int, Produced]:
        partition, code, _offset, _time, _start = answer.fields("ihqqq")
        refused = answer.array(lambda one: (one.number(), one.text()))
        reason = answer.text() or next((said for _, said in refused if said), "")
        return partition, Produced(code, tuple(index for index, _ in refused), reason)

    def read_topic(answer: Answer) -> tuple[str, list[tuple[int, Produced]]]:
        return answer.text() or "", answer.array(read_partition)

    def read(answer: Answer) -> dict[Place, Produced]:
        found = answer.array(read_topic)
        return {(topic, partition): produced for topic, partitions in found for partition, produced in partitions}

    return Request(PRODUCE, pieces, read)


class ToFetch(NamedTuple):
    offset: int
    leader_epoch: int
    max_bytes: int


class Fetched(NamedTuple):
    """Batches of one partition. end: offset behind the last record that can be read. aborted: pairs of a producer's number and
    the offset where its aborted transaction begins."""

    code: int
    end: int
    start: int
    aborted: list[tuple[int, int]]
    batches: memoryview


def fetch(places: Mapping[Place, ToFetch], *, wait_ms: int, max_bytes: int) -> Request:
    """Asks for committed records. Its answer: an error code, and Fetched for each partition."""
    topics = array(
        text(topic)
        + array(
            struct.pack(">iiqqi", number, at.leader_epoch, at.offset, -1, at.max_bytes)
            for number in numbers
            for at in (places[topic, number],)
        )
        for topic, numbers in _by_topic(places).items()
    )
    head = struct.pack(">iiiibii", -1, wait_ms, 1, max_bytes, READ_COMMITTED, *NO_SESSION)

    def read_partition(answer: Answer) -> tuple[int, Fetched]:
        partition, code, _high_watermark, stable, start = answer.fields("ihqqq")
        aborted = answer.array(lambda one: one.fields("qq"))
        answer.number()  # a replica that is nearer
        return partition, Fetched(code, stable, start, aborted, answer.piece(max(0, answer.number())))

    def read_topic(answer: Answer) -> tuple[str, list[tuple[int, Fetched]]]:
        return answer.text() or "", answer.array(read_partition)

    def read(answer: Answer) -> tuple[int, dict[Place, Fetched]]:
        _throttled, code, _session = answer.fields("ihi")
        found = answer.array(read_topic)
        return code, {(topic, partition): fetched for topic, partitions in found for partition, fetched in partitions}

    return Request(FETCH, [head, topics, array(()), text("")], read)  # forgets no partition, is in no rack


class EpochEnd(NamedTuple):
    """The offset behind the last record of a leader's epoch."""

    code: int
    epoch: int
    offset: int


def offset_for_leader_epoch(places: Mapping[Place, tuple[int, int]]) -> Request:
    """places: for each partition the epoch of its leader as known, and the epoch that is asked for. Its answer: EpochEnd for
    each partition."""
    topics = array(
        text(topic) + array(struct.pack(">iii", number, *places[topic, number]) for number in numbers)
        for topic, numbers in _by_topic(places).items()
    )

    def read_partition(answer: Answer) -> tuple[int, EpochEnd]:
        code, partition, epoch, offset = answer.fields("hiiq")
        return partition, EpochEnd(code, epoch, offset)

    def read_topic(answer: Answer) -> tuple[str, list[tuple[int, EpochEnd]]]:
        return answer.text() or "", answer.array(read_partition)

    def read(answer: Answer) -> dict[Place, EpochEnd]:
        answer.number()  # throttle time
        found = answer.array(read_topic)
        return {(topic, partition): end for topic, partitions in found for partition, end in partitions}

    return Request(OFFSET_FOR_LEADER_EPOCH, [struct.pack(">i", -1), topics], read)
