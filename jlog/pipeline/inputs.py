"""The inputs of the pipeline: journals and archives, and topics through Spark's own source for Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

import jlog
from jlog.errors import JournalError
from jlog.pipeline.checkpoint import QueryCheckpoint
from jlog.pipeline.sampling import sample_journals, sample_topic, values_of
from jlog.pipeline.tables.connector import jar_of
from jlog.pipeline.tables.table import Offset
from jlog.spark.reading.options import EARLIEST, LATEST, parse
from jlog.spark.reading.source_positions import before_the_first, resume
from jlog.spark.reading.sources import SparkSource, sources_of
from jlog.spark.reading.stream_reader import StreamReader
from jlog.urls import place_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from jlog.pipeline.plan import PipelinePlan

KAFKA_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def check_source(source: str, pattern: str | None = None) -> str:
    """Returns the URL of a topic or an archive, or the full path of a journal, or with a pattern of the directory around
    journals. Raises JournalNotFound where there is none."""
    if place_of(source).is_topic:
        _topic_of(source)
        return source
    given = {"path": source} if pattern is None else {"path": source, "journalPattern": pattern}
    found = sources_of(parse(given))
    return next(iter(found.values())).path if pattern is None else source


def _topic_of(url: str) -> tuple[str, str]:
    servers, _, topic = url.partition("://")[2].partition("/")
    if not servers or not topic or "?" in topic:
        raise ValueError(f"{url} does not name a topic; write kafka://HOST:PORT/TOPIC")
    return servers, topic


class Inputs:
    """The sources of the plan."""

    def __init__(self, plan: PipelinePlan, checkpoint: QueryCheckpoint) -> None:
        self._plan = plan
        self._checkpoint = checkpoint
        self._topics = plan.topics
        self._paths = [source for source in plan.sources if source not in self._topics]
        self._sources: dict[str, SparkSource] = {}

    @property
    def _options(self) -> dict[str, str]:
        plan = self._plan
        found = {"paths": json.dumps(self._paths), "failOnDataLoss": str(plan.fail_on_data_loss).lower()}
        if plan.subscriber is not None:
            found["subscriber"] = plan.subscriber
            local = self._checkpoint.local_path
            if local is not None:
                found["checkpointLocation"] = local
        if plan.journal_pattern is not None:
            found["journalPattern"] = plan.journal_pattern
        return found | _bound("ending", plan.until)

    def journals(self, names: Iterable[str] = ()) -> dict[str, SparkSource]:
        """Returns the journals and archives by their names in the offsets. They are looked for once, since they remember what
        they have read of an archive, and again where one of these names is not among them."""
        if self._paths and (not self._sources or not self._sources.keys() >= set(names)):
            self._sources = sources_of(parse(self._options))
        return self._sources

    def begin(self) -> None:
        """Finds where the journals of a new query begin, and keeps that. Creates the subscriber there."""
        if not self._paths or not self._checkpoint.is_new() or self._checkpoint.first() is not None:
            return
        reader = StreamReader(StructType(), {**self._options, **_bound("starting", self._plan.start)})
        try:
            first = reader.initialOffset()
        finally:
            reader.stop()  # the query itself begins in another process
        self._checkpoint.keep_first(first)

    def begin_after(self, ends: Sequence[Offset | None]) -> None:
        """Lets a new query begin where another one has ended, and keeps that. Raises ValueError or JournalError where the
        sources are not those of the other one."""
        found = {name: at for end in ends for name, at in (end or {}).items()}
        topics = {_topic_of(url)[1] for url in self._topics}
        journals = {name: at for name, at in found.items() if name not in topics}
        sources = self.journals()
        missing = sorted(found.keys() - topics - sources.keys())
        if missing:
            raise ValueError(
                f"{self._plan.dest} was loaded from {', '.join(missing)}, which is not among the sources; name it, too"
            )
        for name, at in journals.items():
            if at["uuid"] is not None:
                resume(sources[name], at, sources[name].next_sequence(), fail_on_data_loss=True)
                self._move_back(sources[name].path, int(at["sequence"]))
        if self._paths:
            new = {name: before_the_first() for name in sources.keys() - journals.keys()}
            self._checkpoint.keep_first({**new, **journals})
        self._checkpoint.keep_topics({name: at for name, at in found.items() if name in topics})

    def _move_back(self, path: str, sequence: int) -> None:
        """Takes the subscriber over from the pipeline before, and moves it to where the query begins, if it is further."""
        subscriber = self._plan.subscriber
        if subscriber is not None:
            journal = jlog.Journal(path)
            found = journal.subscribers().get(subscriber)
            if found is not None:
                journal.set_subscriber(subscriber, min(found.sequence, sequence))

    def sample(self, spark: SparkSession, batch: DataFrame) -> list[bytes]:
        """Returns values of records from where the query began to the sources' present ends. Where a source gives none, the
        first records of the batch are among them."""
        parts = [list(sample_journals(self.journals(), self._checkpoint.first()))] if self._paths else []
        for index, url in enumerate(self._topics):
            parts.append(list(sample_topic(spark, *_topic_of(url), self._checkpoint.first_of_topic(index))))
        if not all(parts):
            parts.append(values_of(batch))
        return [value for part in parts for value in part]

    def stream(self, spark: SparkSession) -> DataFrame:
        """Returns a frame with the columns of a record, from all sources: topics, and then the journals as one source."""
        frames = [self._topic(spark, topic) for topic in self._topics]
        if self._paths:
            frames.append(self._journals(spark))
        return reduce(DataFrame.unionByName, frames)

    def _journals(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.format("jlog").options(**self._options)
        reader = reader.option("maxRecordsPerTrigger", str(self._plan.batch_records))
        first = self._checkpoint.first()
        if first is not None:
            there = self.journals()
            begins = {name: at["sequence"] for name, at in first.items() if name in there and at["uuid"] is not None}
            # Where nothing was archived yet, the query has not begun, and the place that was given still counts.
            begin = {"startingSequence": json.dumps(begins)} if begins else _bound("starting", self._plan.start)
            reader = reader.options(**begin)
        return _on_all_cores(spark, reader).load()

    def _topic(self, spark: SparkSession, url: str) -> DataFrame:
        """Reads a topic. A message's offset is its sequence, and `journal` names topic and partition."""
        _check_kafka(spark)
        plan = self._plan
        servers, topic = _topic_of(url)
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
        reader = reader.option("kafka.isolation.level", "read_committed")  # else a killed mirror's records come twice
        known = self._checkpoint.topics().get(topic)
        for name, value in ({"startingOffsets": json.dumps({topic: known})} if known else _start_of_topic(plan.start)).items():
            reader = reader.option(name, value)
        reader = reader.option("failOnDataLoss", str(plan.fail_on_data_loss).lower())
        reader = reader.option("includeHeaders", "true").option("maxOffsetsPerTrigger", str(plan.batch_records))
        journal = f.concat(f.lit(f"{url}?partition="), f.col("partition").cast("string"))
        found = _on_all_cores(spark, reader).load()
        return found.select(f.col("offset").alias("sequence"), "timestamp", "key", "value", "headers", journal.alias("journal"))


def _bound(side: str, text: str | None) -> dict[str, str]:
    """Returns the option of the source jlog for this place. side: starting or ending."""
    if text is None:
        return {}
    return {f"{side}Sequence" if text.lower() in (EARLIEST, LATEST) or text.isdecimal() else f"{side}Timestamp": text}


def _start_of_topic(text: str | None) -> dict[str, str]:
    if text is None or text.lower() in (EARLIEST, LATEST):
        return {"startingOffsets": (text or EARLIEST).lower()}
    start = parse({"path": "/", **_bound("starting", text)}).start
    if not isinstance(start, datetime):
        raise ValueError(
            f"{text!r}: a topic has offsets for each partition, so one number is ambiguous; begin at earliest, latest or a time"
        )
    return {"startingTimestamp": str(round(start.timestamp() * 1000)), "startingOffsetsByTimestampStrategy": "latest"}


def check_bounds(start: str | None, until: str | None, sources: Sequence[str]) -> None:
    """Raises ValueError for a text that is not a place to begin or end at, or not one in a topic."""
    parse({"path": "/", **_bound("starting", start), **_bound("ending", until)})
    for source in (source for source in sources if place_of(source).is_topic):
        _start_of_topic(start)
        if until is not None:
            raise ValueError(f"--until is not for {source}: Spark reads a topic up to its present end; leave it out")


def _on_all_cores(spark: SparkSession, reader: DataStreamReader) -> DataStreamReader:
    """Lets a large batch use all of a cluster's cores. On this machine the size of a partition counts."""
    context = spark.sparkContext
    is_here = str(context.master).startswith("local")
    return reader if is_here else reader.option("minPartitions", str(context.defaultParallelism))


def is_file_missing(reason: str) -> bool:
    """Says whether this is Spark's error where a task does not find a file."""
    return "FAILED_READ_FILE.FILE_NOT_EXIST" in reason


def explained(reason: str, topics: Sequence[str]) -> str:
    """Adds what to do, and the topic's name, which errors of Spark's source for Kafka leave out."""
    if is_file_missing(reason):
        return (
            f"an executor does not find a file that is there for others: not every host sees the same files, or another "
            f"program has removed it. Use places that the driver and all executors share. Spark says: {reason}"
        )
    if "UnknownTopicOrPartitionException" not in reason:
        return reason
    return (
        f"{', '.join(topics)}: there is no such topic, or it was deleted; create it, or name another one. Spark says: {reason}"
    )


def _check_kafka(spark: SparkSession) -> None:
    if jar_of(spark, KAFKA_SOURCE) is None:
        jvm: Any = spark.sparkContext._jvm
        scala = jvm.scala.util.Properties.versionNumberString().rpartition(".")[0]
        package = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark.version}"
        raise JournalError(
            f"Spark's Kafka connector is missing; add --conf spark.jars.packages={package}, or with spark-submit --packages "
            f"{package}"
        )
