"""Measures mirroring to a Kafka broker on this machine, and capturing from it, compared with the bare client. Each contest is
held on a plain broker and on one with TLS and a login."""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import jlog
from brokers import HUNG_SECONDS, Cluster, plain, secured
from jlog.bench import Contest, ContestSettings, Prepare, Way
from jlog.writer import EncodedRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from jlog.bench import Load, Run

AT_ONCE = 1_000
FIRST = 20_000  # a capture and its rival are measured after these, which come while both log in and begin to fetch
TRANSACTION_CHUNKS = 100  # of a thousand records
# Both sides have these settings, so that the comparison shows what jlog adds.
PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    "batch.size": 1_000_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 65_536,
}
# How a mirror sends batches, without any rule of a topic that a record could break.
SENDING: dict[str, Any] = {
    "partition": None,
    "spread_bits": 10,
    "without_key": False,
    "needs_key": False,
    "limit_bytes": 1 << 30,
    "times_ms": (0, 1 << 60),
    "ours": "jlog.kafka.",
}
CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 100_000,
    "fetch.wait.max.ms": 100,
}

if TYPE_CHECKING:
    OpenBroker = Callable[[ContestSettings], AbstractContextManager[Cluster]]


# --- Journal to topic -----------------------------------------------------------------------------------------------


def fields(load: Load, *, values: bool) -> list[dict[str, Any]]:
    """Returns what the messages of a chunk have beside their values: a key and a header each, or nothing."""
    numbers = range(load.chunk_records)
    return [{} if values else {"key": b"key-%d" % number, "headers": [("header", b"value")]} for number in numbers]


def append(writer: jlog.Writer, load: Load, *, values: bool) -> None:
    chunk = load.chunk()
    more = fields(load, values=values)
    columns: dict[str, Any] = (
        {} if values else {"keys": [one["key"] for one in more], "headers": [one["headers"] for one in more]}
    )
    for _ in range(load.chunks):
        writer.extend(chunk, **columns)


def mirror(cluster: Cluster, load: Load, *, partitions: int, values: bool) -> Run:
    """Measures from the first record on: the first transaction takes a second to begin, once."""
    from jlog.kafka import Mirror

    def run(directory: Path) -> tuple[int, float]:
        path = directory / "journal"
        with jlog.Writer(path) as writer:
            flow = Mirror(path, cluster.url(cluster.make_topic(partitions)), config=cluster.security)
            flow.step()
            append(writer, load, values=values)
        records = load.chunks * load.chunk_records
        begin = perf_counter()
        while flow.stats.records < records:
            flow.step(timeout=1)
        seconds = perf_counter() - begin
        flow.close()
        return records, seconds

    return run


def hand_over(producer: Any, *message: Any, **fields: Any) -> None:
    """Waits if the client's queue is full: the broker may not be ready yet."""
    until = monotonic() + HUNG_SECONDS
    while True:
        try:
            producer.produce(*message, **fields)
            return
        except BufferError:
            if monotonic() > until:
                raise
            producer.poll(0.1)


def produce(cluster: Cluster, load: Load, *, partitions: int, values: bool, transactional: bool = False) -> Run:
    """Hands the same messages to the client, and does nothing else."""
    messages = list(zip(load.chunk(), fields(load, values=values), strict=True))

    def run(_directory: Path) -> tuple[int, float]:
        from confluent_kafka import Producer

        topic = cluster.make_topic(partitions)
        more = {"transactional.id": topic} if transactional else {}
        producer = Producer({**PRODUCER, **more, **cluster.settings})
        producer.list_topics(topic, HUNG_SECONDS)
        if transactional:
            producer.init_transactions(HUNG_SECONDS)
        begin = perf_counter()
        for turn in range(load.chunks):
            if transactional and turn % TRANSACTION_CHUNKS == 0:
                producer.begin_transaction()
            for value, about in messages:
                hand_over(producer, topic, value, **about)
            producer.poll(0)
            if transactional and ((turn + 1) % TRANSACTION_CHUNKS == 0 or turn + 1 == load.chunks):
                producer.commit_transaction(HUNG_SECONDS)
        assert producer.flush(HUNG_SECONDS) == 0
        return load.chunks * load.chunk_records, perf_counter() - begin

    return run


def send(cluster: Cluster, load: Load, *, partitions: int, values: bool) -> Run:
    """Hands the batches of a journal to librdkafka's C calls, without transactions."""

    def run(directory: Path) -> tuple[int, float]:
        from confluent_kafka import KafkaError

        from jlog._core.kafka.producer import SENT, Producer, Sending
        from jlog.kafka.client.clients import library

        calls = library()
        assert calls is not None
        with jlog.Writer(directory / "journal") as writer:
            append(writer, load, values=values)
        topic = cluster.make_topic(partitions)
        settings = {name: str(value).lower() for name, value in PRODUCER.items()}
        producer = Producer(calls, {**settings, **cluster.settings, "delivery.report.only.error": "true"})
        producer.partitions(topic, HUNG_SECONDS)
        sending = Sending(producer, topic, partitions=partitions, **SENDING)
        begin = perf_counter()
        with jlog.Reader(directory / "journal", start="begin") as reader:
            while batch := reader.read(2 * AT_ONCE):
                sending.begin(batch)
                while (code := sending.send()) != SENT:
                    assert code == KafkaError._QUEUE_FULL
                    producer.poll(0.001)  # only a failed delivery is reported, so nothing ends the wait
        assert producer.flush(HUNG_SECONDS) == 0
        seconds = perf_counter() - begin
        producer.close()
        return load.chunks * load.chunk_records, seconds

    return run


def mirrored(open_broker: OpenBroker, rival: str = "bare", *, partitions: int = 1, values: bool = True) -> Prepare:
    """rival: "bare" is the Python client, "transactions" the same in transactions, "calls" are librdkafka's C calls alone.
    values: records have neither keys nor headers."""

    @contextmanager
    def prepare(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
        load = settings.load
        shape: dict[str, Any] = {"partitions": partitions, "values": values}
        with open_broker(settings) as cluster:
            rivals = {
                "bare": Way("bare confluent-kafka producer, lz4", produce(cluster, load, **shape)),
                "transactions": Way("bare producer, in transactions, lz4", produce(cluster, load, transactional=True, **shape)),
                "calls": Way("librdkafka's C calls alone, lz4", send(cluster, load, **shape)),
            }
            yield Way("mirror to-kafka, in transactions, lz4", mirror(cluster, load, **shape)), rivals[rival]

    return prepare


# --- Topic to journal -----------------------------------------------------------------------------------------------


def fill(cluster: Cluster, load: Load, *, partitions: int, compression: str, values: bool) -> str:
    """Creates a topic of messages with a key and a header each, or with `values` of values alone."""
    from confluent_kafka import Producer

    topic = cluster.make_topic(partitions)
    producer = Producer({**PRODUCER, "compression.type": compression, **cluster.settings})
    messages = list(zip(load.chunk(), fields(load, values=values), strict=True))
    for turn in range(load.chunks):
        for value, about in messages:
            hand_over(producer, topic, value, partition=turn % partitions, **about)
        producer.poll(0)
    assert producer.flush(HUNG_SECONDS) == 0
    return topic


def capture(cluster: Cluster, topic: str, records: int) -> Run:
    from jlog.kafka import Capture

    def run(directory: Path) -> tuple[int, float]:
        flow = Capture(cluster.url(topic), directory / "journal", config=cluster.security)
        while (first := flow.stats.records) < FIRST:
            flow.step(timeout=1)
        begin = perf_counter()
        while flow.stats.records < records:
            flow.step(timeout=1)
        seconds = perf_counter() - begin
        flow.close()
        return records - first, seconds

    return run


def consume(cluster: Cluster, topic: str, partitions: int, records: int) -> Run:
    """Takes value, key, headers, time and offset from each message, and drops them."""

    def run(_directory: Path) -> tuple[int, float]:
        from confluent_kafka import Consumer, TopicPartition

        consumer: Any = Consumer({**CONSUMER, **cluster.settings})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        taken = first = 0
        begin = perf_counter()
        while taken < records:
            for message in consumer.consume(AT_ONCE, 0.1):
                if message.error() is None:  # it may be the end of a partition
                    _ = (
                        message.value(),
                        message.key(),
                        message.headers(),
                        message.timestamp(),
                        message.offset(),
                    )
                    taken += 1
            if first < FIRST <= taken:
                first, begin = taken, perf_counter()
        seconds = perf_counter() - begin
        consumer.close()
        return records - first, seconds

    return run


def call(cluster: Cluster, topic: str, partitions: int) -> Run:
    """Takes the same by librdkafka's C calls, encodes a record of each message, and drops it."""

    def run(_: Path) -> tuple[int, float]:
        from jlog._core.kafka.consumer import Consumer
        from jlog.kafka.client.clients import library

        calls = library()
        assert calls is not None
        settings = {name: str(value).lower() for name, value in CONSUMER.items()}
        begin = perf_counter()
        consumer = Consumer(calls, {**settings, **cluster.settings})
        consumer.assign([(topic, partition, 0, -1) for partition in range(partitions)])
        records = ended = 0
        while ended < partitions:
            found = consumer.fetch(AT_ONCE, 0.1)
            found.add_to(EncodedRecords(), False, 0)
            records += len(found)
            ended += len(found.events)
        seconds = perf_counter() - begin
        consumer.close()
        return records, seconds

    return run


def captured(
    open_broker: OpenBroker,
    rival: str = "bare",
    *,
    partitions: int = 1,
    compression: str = "lz4",
    values: bool = False,
) -> Prepare:
    """rival: "bare" is the loop of the Python client, "calls" are librdkafka's C calls without a journal."""

    @contextmanager
    def prepare(settings: ContestSettings) -> Iterator[tuple[Way, Way]]:
        with open_broker(settings) as cluster:
            records = settings.load.chunks * settings.load.chunk_records
            topic = fill(cluster, settings.load, partitions=partitions, compression=compression, values=values)
            bare = Way("bare consume(1000), every field taken", consume(cluster, topic, partitions, records))
            calls = Way("librdkafka's C calls, without a journal", call(cluster, topic, partitions))
            yield Way("mirror from-kafka", capture(cluster, topic, records)), bare if rival == "bare" else calls

    return prepare


def contests(open_broker: OpenBroker, suffix: str) -> list[Contest]:
    mirror_target, capture_target = "≥ 1.25×", "≥ 1.0×"
    return [
        Contest(f"mirror{suffix}", mirrored(open_broker), mirror_target),
        Contest(f"mirror-transactions{suffix}", mirrored(open_broker, "transactions"), mirror_target),
        Contest(f"mirror-headers{suffix}", mirrored(open_broker, partitions=3, values=False), mirror_target),
        Contest(f"mirror-calls{suffix}", mirrored(open_broker, "calls")),
        Contest(f"mirror-headers-calls{suffix}", mirrored(open_broker, "calls", partitions=3, values=False)),
        Contest(f"capture{suffix}", captured(open_broker), capture_target),
        Contest(f"capture-values{suffix}", captured(open_broker, values=True), capture_target),
        Contest(f"capture-uncompressed{suffix}", captured(open_broker, compression="none"), capture_target),
        Contest(f"capture-partitions{suffix}", captured(open_broker, partitions=8), capture_target),
        Contest(f"capture-calls{suffix}", captured(open_broker, "calls")),
    ]


CONTESTS = [*contests(plain, ""), *contests(secured, "-secured")]
