"""The inputs of the pipeline: journals, and topics through Spark's own source for Kafka."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

import jlog
from jlog.errors import JournalError
from jlog.spark.loading.parsing import union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jlog.spark.loading.plan import PipelinePlan

KAFKA_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def is_topic(source: str) -> bool:
    return source.lower().startswith("kafka:")


def check_source(source: str) -> str:
    """Returns the URL of a topic, or the full path of a journal. Raises JournalNotFound where there is none."""
    if is_topic(source):
        _topic_of(source)
        return source
    return jlog.open_journal(source).path


def _topic_of(url: str) -> tuple[str, str]:
    servers, _, topic = url.partition("://")[2].partition("/")
    if not servers or not topic or "?" in topic:
        raise ValueError(f"{url} names no topic; write kafka://HOST:PORT/TOPIC")
    return servers, topic


def stream_of(spark: SparkSession, plan: PipelinePlan) -> DataFrame:
    """Returns a frame with the columns of a record, from all sources."""
    topics = [source for source in plan.sources if is_topic(source)]
    journals = [source for source in plan.sources if not is_topic(source)]
    frames = [_topic(spark, topic, plan) for topic in topics]
    if journals:
        frames.append(_journals(spark, journals, plan))
    return union(frames)


def _journals(spark: SparkSession, paths: list[str], plan: PipelinePlan) -> DataFrame:
    reader = spark.readStream.format("jlog").option("maxRecordsPerTrigger", str(plan.batch_records))
    if plan.subscriber is not None:
        reader = reader.option("subscriber", plan.subscriber)
    return reader.option("paths", json.dumps(paths)).load()


def _topic(spark: SparkSession, url: str, plan: PipelinePlan) -> DataFrame:
    """Reads a topic. A message's offset is its sequence, and `journal` names topic and partition."""
    _check_kafka(spark)
    servers, topic = _topic_of(url)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    reader = reader.option("includeHeaders", "true").option("maxOffsetsPerTrigger", str(plan.batch_records))
    journal = f.concat(f.lit(f"{url}?partition="), f.col("partition").cast("string"))
    return reader.load().select(
        f.col("offset").alias("sequence"), "timestamp", "key", "value", "headers", journal.alias("journal")
    )


def explained(reason: str, sources: Sequence[str]) -> str:
    """Adds the topic's name, which errors of Spark's source for Kafka leave out."""
    if "UnknownTopicOrPartitionException" not in reason:
        return reason
    topics = ", ".join(source for source in sources if is_topic(source))
    return f"{topics}: there is no such topic, or it was deleted; make it, or name another one. Spark says: {reason}"


def _check_kafka(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError

    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.org.apache.spark.util.Utils.classForName(KAFKA_SOURCE, True, False)
    except Py4JError:
        scala = jvm.scala.util.Properties.versionNumberString().rpartition(".")[0]
        package = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark.version}"
        raise JournalError(
            f"Spark's source for Kafka is not there; add --conf spark.jars.packages={package}, or with spark-submit "
            f"--packages {package}"
        ) from None
