"""Fields without a column that do not go to `other`. Tables that take new columns are in tests/spark/tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import jlog
from jlog.pipeline.checkpoint import Checkpoint
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Summary
from jlog.pipeline.plan import PipelinePlan

Run = Callable[..., Summary]
Rows = Callable[..., list[dict[str, Any]]]


def test_an_unknown_field_ends_the_pipeline(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    plan = replace(plan, evolve="fail")
    run(plan, [b'{"n": 1}'])
    bad = [b'{"n": "x", "bad": 1}', b"text"]
    with pytest.raises(jlog.JournalError, match=r"record 4 of .*journal has the field 'new', for which there is no column"):
        run(plan, [*bad, b'{"n": 2}', b'{"n": 3, "new": null}', b'{"n": 4, "newer": 1}'])
    assert [row["n"] for row in rows()] == [1]
    assert run(replace(plan, evolve="other")).records_in == 5
    assert [(row["n"], row["other"]) for row in rows()[1:]] == [(2, None), (3, [("new", None)]), (4, [("newer", "1")])]
    assert [row["value"] for row in rows(plan.quarantine)] == bad


def test_a_schema_that_names_the_field_goes_on(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    plan = replace(plan, parser=Parser("logfmt"), evolve="fail", schema="n int")
    with pytest.raises(jlog.JournalError, match="'new'"):
        run(plan, [b"n=1 new=x"])
    run(replace(plan, schema="n int, new string"))
    assert [(row["n"], row["new"]) for row in rows()] == [(1, "x")]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"evolve": "add"}, "needs --format delta or --format iceberg"),
        ({"evolve": "fail", "parser": Parser("none")}, "needs --parse json or --parse logfmt"),
    ],
)
def test_what_cannot_evolve_is_refused(plan: PipelinePlan, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replace(plan, **changes)


def test_the_fields_kept_last_are_known(spark: SparkSession, plan: PipelinePlan) -> None:
    kept = Checkpoint(spark, plan.checkpoint)
    assert kept.fields() is None
    for number in range(12):
        fields = Parser("regex", f"(?<n{number}>.)").fields()
        kept.keep_fields(fields)
        assert Checkpoint(spark, plan.checkpoint).fields() == fields
