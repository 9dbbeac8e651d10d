"""Batch writes and queries: no row is appended twice, and no number stands for other rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import jlog
from behaviour.journals import values
from jlog.spark import forget, queries
from jlog.spark.checkpoint import Content, content_of
from jlog.spark.writing.ledger import STREAM
from jlog.spark.writing.sink import StagingSink
from spark.writing.rows import numbered, numbers, save, stage

# --- Exactly once ---------------------------------------------------------------------------------------------------


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    frame = spark.range(1_000, numPartitions=2).selectExpr(
        "CASE WHEN id = 900 THEN raise_error('no') ELSE cast(id AS string) END AS value"
    )
    with pytest.raises(Exception, match="no"):
        save(frame, path)
    assert values(path) == []
    assert "spark" not in os.listdir(path)
    save(numbers(spark, 10), path)
    assert values(path) == numbered(10)


def test_a_repeated_named_batch_write_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for _ in range(2):
        save(numbers(spark, 10), path, transaction="load-2026-11-20")
    save(numbers(spark, 10), path)
    assert values(path) == numbered(10) * 2
    assert queries(path)["load-2026-11-20"].records == 10


def test_a_query_that_is_started_again_appends_what_is_new(stream: Callable[..., None], tmp_path: Path) -> None:
    for count in (10, 20, 0, 30):
        stream(count)
    assert values(tmp_path / "journal") == numbered(60)
    ((_, entry),) = queries(tmp_path / "journal").items()
    assert (entry.kind, entry.batch, entry.records, entry.manifest) == ("stream", 2, 30, None)


def test_a_batch_that_spark_runs_again_adds_nothing(stream: Callable[..., None], tmp_path: Path) -> None:
    """The driver was killed after the commit, before Spark noted that."""
    stream(10)
    stream(20)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    stream(5)
    assert values(tmp_path / "journal") == numbered(35)


# --- A number that comes back with other rows -----------------------------------------------------------------------


def lose(checkpoint: Path, batches: int, *folders: str) -> None:
    """Takes the last files from a checkpoint, as a power loss or a backup that is brought back does."""
    for folder in folders:
        names = sorted((path for path in (checkpoint / folder).glob("[0-9]*")), key=lambda path: int(path.name))
        for path in names[-batches:]:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink()


def refused(reason: str) -> Any:
    return pytest.raises(Exception, match=rf"{reason}.*new checkpoint directory.*jlog\.spark\.forget\(")


@pytest.mark.parametrize(
    ("lost", "folders", "reason"),
    [
        (1, ["offsets", "commits"], "batch 2 of .* its sources begin or end at other positions"),
        (2, ["offsets", "commits"], "batch 1 of .* batch 2 of it is already in the journal"),
        # The source, which has lost its list of files too, takes the old file and the new one as what it had taken before.
        (1, ["offsets", "commits", "sources/0"], "batch 2 of .* already in the journal with 30 records, but it has 70 now"),
    ],
)
def test_a_checkpoint_that_lost_its_tail_is_refused(
    stream: Callable[..., None], tmp_path: Path, lost: int, folders: list[str], reason: str
) -> None:
    for count in (10, 20, 30):
        stream(count)
    lose(tmp_path / "checkpoint", lost, *folders)
    with refused(reason):
        stream(40)
    assert values(tmp_path / "journal") == numbered(60)
    assert "spark" not in os.listdir(tmp_path / "journal")


def test_a_refused_query_goes_on_once_it_is_forgotten(stream: Callable[..., None], tmp_path: Path) -> None:
    stream(10)
    stream(20)
    lose(tmp_path / "checkpoint", 1, "offsets", "commits")
    with refused("other positions"):
        stream(5)
    (query,) = queries(tmp_path / "journal")
    forget(tmp_path / "journal", query)
    lose(tmp_path / "checkpoint", 1, "offsets")  # that of the refused batch
    stream(1, adopt="true")
    assert set(values(tmp_path / "journal")) == set(numbered(36))


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_journal_that_lacks_batches_of_the_query_is_refused(
    spark: SparkSession, stream: Callable[..., None], tmp_path: Path, is_seen: bool
) -> None:
    """It was removed, or an older copy was brought back. Where the sink does not see the checkpoint, it notices the first."""
    journal, options = tmp_path / "journal", {} if is_seen else {"checkpoint": None}
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        stream(10, **options)
        jlog.Journal(journal).backup(tmp_path / "older")
        stream(20, **options)
        jlog.Journal.delete(journal)
        with pytest.raises(Exception, match=r"batch 2 .* is refused.* up to 1, and the journal has none of them.*adopt=true"):
            stream(30, **options)
        if is_seen:
            jlog.Journal.delete(journal)
            (tmp_path / "older").rename(journal)
            with pytest.raises(Exception, match=r"up to 1, and the journal has only those up to 0\. It is another journal"):
                stream(0, **options)
            assert values(journal) == numbered(10)
        stream(0, adopt="true", **options)
        stream(5, **options)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert values(journal) == [*(numbered(10) if is_seen else []), *numbered(65)[30:]]


def test_a_journal_may_come_after_batches_that_had_no_rows(sink: StagingSink) -> None:
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, [[], []]))
    sink.commit(STREAM, "q", 1, stage(sink, "q", 1, [[b"a"]]))
    assert values(sink.path) == [b"a"]


def test_a_checkpoint_out_of_sight_is_compared_by_counts(
    spark: SparkSession, stream: Callable[..., None], tmp_path: Path
) -> None:
    """As with a checkpoint on HDFS, the sink does not know where it is."""
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        stream(10, checkpoint=None)
        stream(20, checkpoint=None)
        ((_, entry),) = queries(tmp_path / "journal").items()
        assert entry.offsets is None
        lose(tmp_path / "checkpoint", 1, "commits")
        stream(5, checkpoint=None)
        lose(tmp_path / "checkpoint", 1, "offsets", "commits")
        with refused("already in the journal with 5 records, but it has 12 now"):
            stream(7, checkpoint=None)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert values(tmp_path / "journal") == numbered(35)


def test_a_named_load_with_other_rows_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    save(numbers(spark, 10), path, transaction="load")
    with pytest.raises(Exception, match=r"'load' is refused.* with 10 records, but it has 11 now.*another name.*forget"):
        save(numbers(spark, 11), path, transaction="load")
    save(numbers(spark, 10), path, txnAppId="daily", txnVersion=7)
    with pytest.raises(Exception, match=r"version 6 of 'daily' is refused.*txnVersion above 7"):
        save(numbers(spark, 10), path, txnAppId="daily", txnVersion=6)
    assert values(path) == numbered(10) * 2


def test_the_checkpoint_is_synced_before_the_journal_knows_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def note(fd: int, sync: Callable[[int], None] = os.fsync) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), tmp_path))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    for name in ("metadata", "offsets/0", "offsets/.0.crc", "offsets/1"):
        (checkpoint / name).write_text(f"v1\n{{}}\n{name}")
    assert content_of(3, f"file:{checkpoint}", 0).offsets is not None
    files = [f"checkpoint/{name}" for name in ("offsets/0", "offsets/.0.crc", "metadata")]
    assert synced == [*files, "checkpoint/offsets", "checkpoint", "."]
    synced.clear()
    assert content_of(3, str(checkpoint), 1).offsets is not None
    assert synced == ["checkpoint/offsets/1", "checkpoint/offsets"]


@pytest.mark.parametrize("location", [None, "hdfs://host/checkpoint", "s3a://bucket/checkpoint", "/nowhere", "nowhere:8020/x"])
def test_a_checkpoint_that_is_not_here_tells_the_count(location: str | None) -> None:
    assert content_of(3, location, 0) == Content(3)


def test_a_streaming_query_cannot_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().groupBy("value").count().selectExpr("'x' AS value")
    writer = frame.writeStream.format("jlog").outputMode("complete")
    with pytest.raises(Exception, match="never overwritten"):
        writer.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "j")).awaitTermination()
