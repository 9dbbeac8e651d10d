"""jlog.spark.progress: numbers for each journal, from what Spark reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import jlog
import jlog.spark
from behaviour.journals import SMALL, fill
from patience import HUNG_SECONDS
from spark.test_stream import Lake


def test_the_progress_of_a_query_has_a_number_for_each_journal(spark: SparkSession, tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "orders", **SMALL) as writer:
        fill(writer, 250)
        query = Lake(spark, tmp_path / "lake").start(tmp_path / "orders", maxRecordsPerTrigger=100)
        assert query.awaitTermination(HUNG_SECONDS)
    found = [jlog.spark.progress(one)[str(tmp_path / "orders")] for one in query.recentProgress]
    assert [(one.sequence, one.latest_sequence, one.records_behind) for one in found][:3] == [
        (100, 250, 150),
        (200, 250, 50),
        (250, 250, 0),
    ]
    assert found[0].bytes_behind > found[1].bytes_behind > found[2].bytes_behind == 0
    assert jlog.spark.progress(query.lastProgress) == jlog.spark.progress(query.lastProgress.json)


@pytest.mark.parametrize(
    "sources",
    [
        [],
        [{"endOffset": None, "latestOffset": None}],
        [
            {"endOffset": '{"topic": {"0": 5}}', "latestOffset": {"topic": {"0": 7}}},
            {"endOffset": 5, "latestOffset": "no"},
        ],
    ],
)
def test_other_sources_are_left_out(sources: list[Any]) -> None:
    assert jlog.spark.progress({"sources": sources}) == {}
    assert jlog.spark.progress(None) == {}


def test_positions_alone_are_enough() -> None:
    at = {"uuid": "0" * 32, "epoch": 5}
    source = {"endOffset": {"orders": {"sequence": 7, **at}}, "latestOffset": {"orders": {"sequence": 9, **at}}}
    found = jlog.spark.progress({"sources": [source]})["orders"]
    assert (found.sequence, found.latest_sequence, found.records_behind) == (7, 9, 2)
