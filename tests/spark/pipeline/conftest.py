"""A plan from one journal to Parquet, and fixtures to run it and to read its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import jlog
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Pipeline, Summary
from jlog.pipeline.plan import PipelinePlan
from jlog.spark.session import ALWAYS


@pytest.fixture(autouse=True)
def _settings(spark: SparkSession) -> Iterator[None]:
    """The settings of the pipeline's own sessions."""
    before = {name: spark.conf.get(name, None) for name in ALWAYS}
    for name, value in ALWAYS.items():
        spark.conf.set(name, value)
    yield
    for name, known in before.items():
        if known is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, known)


@pytest.fixture
def plan(tmp_path: Path) -> PipelinePlan:
    return PipelinePlan(
        sources=(str(tmp_path / "journal"),),
        dest=str(tmp_path / "lake"),
        checkpoint=str(tmp_path / "checkpoint"),
        quarantine=str(tmp_path / "bad"),
        parser=Parser("json"),
    )


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., Summary]:
    """Appends the values to the journal, and runs the plan to the end."""

    def call(plan: PipelinePlan, values: Sequence[bytes | None] = (), **columns: Any) -> Summary:
        with jlog.Writer(tmp_path / "journal") as writer:
            writer.extend(values, **columns)
        return Pipeline(plan).run(spark)

    return call


@pytest.fixture
def rows(plan: PipelinePlan) -> Callable[..., list[dict[str, Any]]]:
    """Returns the rows of the table or of the quarantine in order, as a reader sees them that knows nothing of Spark."""
    import pyarrow.dataset

    def call(directory: str = plan.dest) -> list[dict[str, Any]]:
        found = pyarrow.dataset.dataset(directory, format="parquet", partitioning="hive").to_table()
        listed: list[dict[str, Any]] = found.to_pylist()
        return sorted(listed, key=lambda row: row["sequence"])

    return call
