"""How many records may go to the quarantine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jlog.errors import JournalError
from jlog.pipeline.pipeline import Summary
from jlog.pipeline.plan import MaxBad, PipelinePlan

Run = Callable[..., Summary]
Rows = Callable[..., list[dict[str, Any]]]
VALUES = [*[b'{"n": 1}'] * 8, b"x", b"y"]


@pytest.mark.parametrize("limit", ["2", "20%", "20.0 %", "100%"])
def test_as_many_bad_records_as_allowed_are_quarantined(run: Run, plan: PipelinePlan, limit: str) -> None:
    found = run(replace(plan, max_bad=MaxBad.parse(limit)), VALUES)
    assert (found.records_out, found.records_bad) == (8, 2)


@pytest.mark.parametrize("limit", ["0", "1", "19.9%"])
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
