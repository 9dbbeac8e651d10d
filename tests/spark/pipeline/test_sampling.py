"""The sampled records give the fields and their types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import jlog
from behaviour.journals import read_away
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Pipeline, Summary
from jlog.pipeline.plan import PipelinePlan
from jlog.pipeline.sampling import RECORDS, STRETCHES, sample_journals, stretches
from jlog.spark.reading.options import parse
from jlog.spark.reading.sources import sources_of

Run = Callable[..., Summary]
Rows = Callable[..., list[dict[str, Any]]]
EARLY = [b'{"n": 1}'] * (RECORDS + 1)


def test_types_are_those_of_early_and_late_records(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    plan = replace(plan, batch_records=RECORDS)
    found = run(plan, [*EARLY, *[b'{"n": 2}'] * RECORDS, b'{"n": 0.5, "late": "x"}'])
    assert (found.batches, found.records_bad) == (3, 0)
    assert (rows()[0]["n"], type(rows()[0]["n"])) == (1.0, float)
    assert (rows()[-1]["n"], rows()[-1]["late"]) == (0.5, "x")


@pytest.mark.exhaustive
def test_pairs_that_come_late_are_columns(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    plan = replace(plan, parser=Parser("logfmt"), batch_records=RECORDS)
    run(plan, [*[b"n=1"] * (RECORDS + 1), b"n=2 late=x"])
    assert (rows()[-1]["n"], rows()[-1]["late"]) == ("2", "x")


@pytest.mark.exhaustive
def test_an_archive_by_its_url_is_sampled(plan: PipelinePlan, rows: Rows, spark: SparkSession, tmp_path: Path) -> None:
    url = (tmp_path / "archive").as_uri()
    jlog.Journal.create(tmp_path / "journal", segment_bytes=4096, retention=jlog.Retention(archive=url))
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend([*EARLY, b'{"n": 0.5}'])
        writer.roll()
    read_away(tmp_path / "journal", "archiver")
    jlog.Journal(tmp_path / "journal").clean()
    Pipeline(replace(plan, sources=(url,), batch_records=RECORDS)).run(spark)
    assert rows()[-1]["n"] == 0.5


def test_records_before_the_start_are_not_a_sample(run: Run, plan: PipelinePlan, rows: Rows, tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend([b'{"old": 1}'] * 10)
    run(replace(plan, start="10"), [b'{"new": 1}'])
    assert ("new" in rows()[0], "old" in rows()[0]) == (True, False)


@pytest.mark.parametrize(
    ("first", "end", "count", "records", "expected"),
    [
        (0, 0, 20, 100, []),
        (5, 25, 4, 20, [(5, 25)]),
        (0, 1000, 5, 50, [(0, 10), (247, 257), (495, 505), (742, 752), (990, 1000)]),
        (7, 1_000_000_007, 2, 10, [(7, 12), (1_000_000_002, 1_000_000_007)]),
    ],
)
def test_stretches_reach_from_the_first_to_the_newest(
    first: int, end: int, count: int, records: int, expected: list[tuple[int, int]]
) -> None:
    assert list(stretches(first, end, count, records)) == expected


def test_a_large_journal_is_not_read_as_a_whole(tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "journal") as writer:
        writer.extend(b"%d" % number for number in range(10 * RECORDS))
    sources = sources_of(parse({"path": str(tmp_path / "journal")}))
    found = [int(value) for value in sample_journals(sources, None)]
    assert len(found) == RECORDS
    assert (found[0], found[-1]) == (0, 10 * RECORDS - 1)
    assert sum(after - before > 1 for before, after in pairwise(found)) == STRETCHES - 1


def test_large_values_limit_the_sample(tmp_path: Path) -> None:
    with jlog.Writer(tmp_path / "journal") as writer:
        for _ in range(40):
            writer.append(b"x" * (4 << 20))
    sources = sources_of(parse({"path": str(tmp_path / "journal")}))
    assert 0 < len(list(sample_journals(sources, None))) <= STRETCHES
