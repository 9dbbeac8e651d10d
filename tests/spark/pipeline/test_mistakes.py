"""A mistake in the options is one line that names it, and a strange name of a directory is not a mistake."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jlog.errors import JournalError
from jlog.pipeline.pipeline import Summary
from jlog.pipeline.plan import PipelinePlan
from jlog.spark.session import FIXED, reason_of, session

Run = Callable[..., Summary]
Rows = Callable[..., list[dict[str, Any]]]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"schema": "n bigint, level strnig"}, "strnig"),
        ({"schema": "n bigint, N string"}, "`n`"),
        ({"partition_by": ("tags",)}, "tags"),
    ],
    ids=["type", "twice", "array"],
)
def test_a_mistake_is_reported_in_one_line(run: Run, plan: PipelinePlan, changes: dict[str, Any], word: str) -> None:
    with pytest.raises((JournalError, ValueError)) as raised:
        run(replace(plan, **changes), [b'{"n": 1, "tags": ["a"]}'])
    line = str(raised.value)
    assert word in line.lower()
    assert "\n" not in line
    assert "Python" not in line


def test_a_worker_that_starts_too_late_is_told_with_what_to_do() -> None:
    told = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
    assert re.fullmatch(r"a Python worker .* the machine is busy.* Run it again; .*", reason_of(Exception(told)))


@pytest.mark.parametrize("option", FIXED)
def test_a_setting_that_would_change_values_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"^{option} is always .* leave it out of --conf"), session("x", conf={option: "x"}):
        raise AssertionError("it has started")


def test_letters_that_stand_for_others_in_a_pattern_are_letters_in_a_path(run: Run, plan: PipelinePlan, rows: Rows) -> None:
    place = f"{plan.dest} [a]{{b,c}}*?"
    plan = replace(plan, dest=place, checkpoint=f"{place}.checkpoint", quarantine=f"{place}.quarantine")
    plan = replace(plan, query="SELECT count(*) AS n FROM records")
    assert run(plan, [b'{"n": 1}', b"x"]).query == [{"n": 1}]
    assert run(plan, [b'{"n": 2}']).query == [{"n": 2}]
    assert ([row["n"] for row in rows(plan.dest)], len(rows(plan.quarantine))) == ([1, 2], 1)
