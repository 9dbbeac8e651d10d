"""Samples values from all sources of a pipeline, spread from the first to the newest record."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from jlog.errors import JournalError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jlog.pipeline.tables.table import Offset
    from jlog.spark.reading.sources import SparkSource

RECORDS, STRETCHES = 10_000, 20
BYTES = 64 << 20  # of all values together, which Python takes apart
TOPIC_STRETCHES = 5  # each one is a task for each partition of the topic
VALUE_BYTES = 64 << 10  # longer values do not count where a task collects them for the driver
DESERIALIZER = "org.apache.kafka.common.serialization.ByteArrayDeserializer"

logger: logging.Logger = logging.getLogger("jlog.spark")


def stretches(first: int, end: int, count: int, records: int) -> Iterator[tuple[int, int]]:
    """Yields this many parts of a range, as far from each other as they can be: one at its beginning, one at its end. Together
    they have so many records, or all of a shorter range."""
    length = max(1, records // count)
    if end - first <= length * count:
        if first < end:
            yield first, end
        return
    for number in range(count):
        start = first + (end - length - first) * number // max(1, count - 1)
        yield start, start + length


def sample_journals(sources: Mapping[str, SparkSource], begin: Offset | None) -> Iterator[bytes]:
    """Yields values of these journals and archives. begin: the positions where the pipeline has begun. A part that cannot be
    read is left out: the batch that has it reports the reason."""
    if not sources:
        return
    records, count = -(-RECORDS // len(sources)), max(2, STRETCHES // len(sources))
    for name, source in sources.items():
        try:
            end, first = source.next_sequence(), source.first_sequence()
            if begin is not None and name in begin:
                first = max(first, int(begin[name]["sequence"]))
            ranges = list(stretches(first, end, count, records))
        except (JournalError, OSError) as error:
            logger.info("%s is not sampled: %s", source.path, error)
            continue
        for stretch in ranges:
            yield from _values(source, *stretch, BYTES // (len(sources) * count))


def _values(source: SparkSource, first: int, end: int, size_bytes: int) -> Iterator[bytes]:
    """Yields values of a range, up to about this size."""
    try:
        with source.for_task(first, end).reader(first) as reader:
            batches = reader.record_batches(max_records=end - first, max_bytes=max(1, size_bytes), columns=["value"], end=end)
            for batch in batches:
                values = [value for value in batch.column(0).to_pylist() if value is not None]
                yield from values
                size_bytes -= sum(map(len, values))
                if size_bytes <= 0:
                    return
    except (JournalError, OSError) as error:
        logger.info("%s is not sampled from %d to %d: %s", source.path, first, end - 1, error)


def sample_topic(spark: SparkSession, servers: str, topic: str, begin: Offset | None) -> Iterator[bytes]:
    """Yields values of a topic. begin: the offsets where the pipeline has begun; None: at the earliest."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    begins = (begin or {}).get(topic, {})
    try:
        ranges = {
            partition: list(stretches(max(first, begins.get(str(partition), 0)), end, TOPIC_STRETCHES, RECORDS // partitions))
            for partition, first, end, partitions in _partitions(spark, servers, topic)
        }
        for number in range(TOPIC_STRETCHES):
            part = {str(partition): found[number] for partition, found in ranges.items() if number < len(found)}
            if part:
                yield from values_of(_messages(spark, servers, topic, part))
    except (Py4JError, PySparkException) as error:
        logger.info("%s is not sampled: %s", topic, error)


def _partitions(spark: SparkSession, servers: str, topic: str) -> list[tuple[int, int, int, int]]:
    """Returns each partition with its earliest and its latest offset, and their number."""
    jvm: Any = spark.sparkContext._jvm
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", servers)
    settings.put("key.deserializer", DESERIALIZER)
    settings.put("value.deserializer", DESERIALIZER)
    with closing(jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)) as consumer:
        places = jvm.java.util.ArrayList()
        for one in consumer.partitionsFor(topic):
            places.add(jvm.org.apache.kafka.common.TopicPartition(topic, one.partition()))
        first, end = consumer.beginningOffsets(places), consumer.endOffsets(places)
        return [(place.partition(), first[place], end[place], len(places)) for place in places]


def _messages(spark: SparkSession, servers: str, topic: str, ranges: Mapping[str, tuple[int, int]]) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("assign", json.dumps({topic: [int(partition) for partition in ranges]}))
    for name, index in (("startingOffsets", 0), ("endingOffsets", 1)):
        reader = reader.option(name, json.dumps({topic: {partition: found[index] for partition, found in ranges.items()}}))
    return reader.option("failOnDataLoss", "false").load()


def values_of(frame: DataFrame) -> list[bytes]:
    """Returns the values of a frame's first records."""
    short = frame.where(f.length("value") <= VALUE_BYTES)
    return [bytes(row[0]) for row in short.select("value").limit(RECORDS).collect()]


def as_texts(values: Iterable[bytes]) -> Iterator[str]:
    """Yields those values that are UTF-8."""
    for value in values:
        with suppress(UnicodeDecodeError):
            yield str(value, "utf-8")
