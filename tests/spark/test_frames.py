"""jlog.spark.load: the same frame as format("jlog"), by another way."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import jlog
from behaviour.journals import SMALL, fill
from jlog.spark import load


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with jlog.Writer(tmp_path / "orders", **SMALL) as writer:
        fill(writer, 1000)
        writer.append(b"value", key=b"key", headers=[("name", b"text"), ("none", None)], timestamp_us=1)
    return tmp_path / "orders"


def test_the_frame_has_the_rows_of_the_data_source(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path, minPartitions=5)
    rows = spark.read.format("jlog").load(str(path))
    assert frame.schema == rows.schema
    assert frame.rdd.getNumPartitions() >= 5
    assert sorted(frame.collect()) == sorted(rows.collect())


def test_columns_and_options_are_those_of_the_source(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path, "value binary, sequence bigint", startingSequence=990, endingSequence="1000", durable=True)
    assert frame.columns == ["value", "sequence"]
    assert sorted(row.sequence for row in frame.collect()) == list(range(990, 1000))
    with pytest.raises(ValueError, match="no option"):
        load(spark, path, startingOffset=1)
    with pytest.raises(ValueError, match=r"format\('jlog'\) for pushdown"):
        load(spark, path, pushdown=True)


def test_a_journal_without_records_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    jlog.Journal.create(tmp_path / "empty")
    assert load(spark, tmp_path / "empty").collect() == []
