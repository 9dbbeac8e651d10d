"""The connectors of tables, on a Spark that they do not support."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import jlog
from jlog import JournalError
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Pipeline
from jlog.pipeline.plan import PipelinePlan
from jlog.pipeline.tables.connector import CONNECTORS, DELTA, ICEBERG, Connector


@pytest.mark.parametrize("connector", CONNECTORS.values(), ids=CONNECTORS)
def test_a_missing_connector_is_named_with_its_spark(spark: SparkSession, connector: Connector) -> None:
    with pytest.raises(JournalError, match=r"missing, and this is Spark.* tested with Spark 4\.1") as refused:
        connector.check(spark)
    for told in (connector.package, "pip install 'pyspark==4.1.*'", "spark.jars.packages"):
        assert told in str(refused.value)


def test_a_pipeline_without_the_connector_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.append(b"x")
    places = [str(tmp_path / name) for name in ("dest", "checkpoint", "quarantine")]
    plan = PipelinePlan((str(tmp_path / "journal"),), *places, Parser("none"), format="delta")
    with pytest.raises(JournalError, match="the connector of Delta Lake is missing"):
        Pipeline(plan).run(spark)
    assert not (tmp_path / "dest").exists()


@pytest.mark.parametrize(("more", "told"), [({"is_table": True}, "--table needs"), ({"compact_every": 1}, "see rows twice")])
def test_plain_files_have_neither_catalog_nor_compaction(more: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PipelinePlan(("a",), "b", "c", "d", Parser("none"), **more)


def test_extensions_of_others_stay() -> None:
    conf = {"spark.sql.extensions": "a.B", "spark.sql.catalog.spark_catalog": "c.D"}
    found = DELTA.with_settings(conf)
    assert found["spark.sql.extensions"] == "a.B,io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.sql.catalog.spark_catalog"] == "c.D"
    assert ICEBERG.with_settings(conf) == conf
