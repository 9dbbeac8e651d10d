"""How many records may go to the quarantine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import exhaustive
from jlog.errors import JournalError
from jlog.pipeline.parsing import Parser
from jlog.pipeline.pipeline import Summary
from jlog.pipeline.plan import MaxBad, PipelinePlan
from jlog.pipeline.tables.files import Files

Run = Callable[..., Summary]
Rows = Callable[..., list[dict[str, Any]]]
VALUES = [*[b'{"n": 1}'] * 8, b"x", b"y"]


@pytest.mark.parametrize("limit", ["2", "20%", *map(exhaustive.only, ["20.0 %", "100%"])])
def test_as_many_bad_records_as_allowed_are_quarantined(run: Run, plan: PipelinePlan, limit: str) -> None:
    found = run(replace(plan, max_bad=MaxBad.parse(limit)), VALUES)
    assert (found.records_out, found.records_bad) == (8, 2)


@pytest.mark.parametrize("limit", ["1", "19.9%", exhaustive.only("0")])
def test_more_bad_records_than_allowed_end_the_pipeline_and_nothing_is_written(
    run: Run, plan: PipelinePlan, rows: Rows, limit: str
) -> None:
    told = rf"2 of the 10 records of this run cannot be parsed, and --max-bad {limit} was given.*not a JSON object"
    with pytest.raises(JournalError, match=told):
        run(replace(plan, max_bad=MaxBad.parse(limit)), VALUES)
    assert not list(Path(plan.dest).glob("date=*"))
    assert run(plan).records_in == 10
    assert (len(rows()), len(rows(plan.quarantine))) == (8, 2)


@pytest.mark.parametrize("text", ["", "%", "-1", "1e3", "many", "0.5"])
def test_a_limit_that_is_neither_a_number_nor_a_percentage_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither a number of records nor a percentage; write 100 or 1%"):
        MaxBad.parse(text)


def test_a_run_whose_records_all_go_to_the_quarantine_logs_a_warning(
    run: Run, plan: PipelinePlan, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "jlog.spark"):
        run(plan, VALUES)
        assert not caplog.records
        run(plan, [b"x"] * 3)
    (record,) = caplog.records
    assert "all 3 records of this run have gone to the quarantine" in record.getMessage()
    assert "not a JSON object" in record.getMessage()


# --- The way back -----------------------------------------------------------------------------------------------------


LOWER, ANY = Parser("regex", "^(?<level>[a-z]+) "), Parser("regex", "^(?<level>[A-Za-z]+) ")
LINES = [b"info 1", b"WARN 2", b"3", b"error 4", b"FATAL 5"]


def mended(plan: PipelinePlan) -> PipelinePlan:
    return replace(plan, parser=ANY, retry_quarantine=True)


def test_what_can_be_parsed_by_now_leaves_the_quarantine_once(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    run(replace(plan, parser=LOWER), LINES)
    assert [row["level"] for row in rows()] == ["info", "error"]
    for retried in (2, 0):
        assert run(mended(plan)).records_retried == retried
        levels = {row["sequence"]: row["level"] for row in rows()}
        assert levels == {0: "info", 1: "WARN", 3: "error", 4: "FATAL"}
    assert run(mended(plan), [b"Info 6", b"7"]).records_in == 2
    assert [row["sequence"] for row in rows()] == [0, 1, 3, 4, 5]
    assert run(replace(plan, parser=ANY)).records_retried is None


def test_records_that_a_wrong_schema_has_all_sent_to_the_quarantine_come_back(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    run(replace(plan, schema="n tinyint"), [b'{"n": 200}', b'{"n": 300}'])
    assert run(replace(plan, schema="n int", retry_quarantine=True)).records_retried == 2
    assert [row["n"] for row in rows()] == [200, 300]


class Cut(Exception):
    """Stands for a kill at this step."""


@pytest.mark.parametrize("step", ["create", *map(exhaustive.only, ["records", "move", "remove"])])
def test_a_retry_that_was_killed_adds_each_record_once(
    run: Run, plan: PipelinePlan, rows: Rows, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Also where new records come before it is run again: they must not take away what it has staged."""
    plan = replace(plan, parser=LOWER)
    run(plan, LINES)
    run(replace(plan, parser=ANY))

    def cut(*_: object) -> None:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(Files, step, cut)
        with pytest.raises(Cut):
            run(mended(plan))
    again = run(replace(plan, parser=ANY), [b"info 6"])
    assert (again.records_in, again.records_out) == (1, 1)
    assert run(mended(plan)).records_retried == (2 if step in ("records", "create") else 0)
    assert [row["sequence"] for row in rows()] == [0, 1, 3, 4, 5]


@pytest.mark.parametrize("wrong", [{"parser": Parser("none")}, {"interval": 1.0}])
def test_a_retry_that_could_not_end_or_parse_is_refused(plan: PipelinePlan, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="give --parse, and no --trigger"):
        replace(plan, retry_quarantine=True, **wrong)
