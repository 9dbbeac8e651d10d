"""The memory of a mirror and a capture does not depend on their lag."""

from __future__ import annotations

import random

import pytest

import exhaustive
import jlog
from kafka.processes import Process

PEAK_MEGABYTES = {"to-kafka": 200, "from-kafka": 400}  # docs/kafka.md has the parts that they are made of


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("size", "records"), [pytest.param(1000, 300_000, id="large"), exhaustive.only(10, 1_000_000, id="small")]
)
def test_memory_is_bounded_whatever_the_lag(url, tmp_path, size, records):
    dice = random.Random(size)
    with jlog.Writer(tmp_path / "journal") as writer:
        for _ in range(records // 1000):
            writer.extend([dice.randbytes(size) for _ in range(1000)])
    back = tmp_path / "back"
    for arguments in (("to-kafka", tmp_path / "journal", url), ("from-kafka", url, back)):
        process = Process(*arguments, "--until-end")
        assert process.peak_megabytes() < PEAK_MEGABYTES[arguments[0]]
    assert len(jlog.Journal(back)) == records
