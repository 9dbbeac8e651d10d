"""spark.read.format("jlog"): what comes, and in which columns."""

from __future__ import annotations

import pkgutil
from pathlib import Path

from pyspark.sql import SparkSession


def test_spark_finds_the_source_without_being_told() -> None:
    assert "pyspark_jlog" in {module.name for module in pkgutil.iter_modules()}


def test_the_columns_are_those_of_a_record_and_its_journal(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.read.format("jlog").load(str(tmp_path))
    assert frame.columns == ["sequence", "timestamp", "key", "value", "headers", "journal"]
