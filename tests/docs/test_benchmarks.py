"""bench/core.py, which `make bench` runs, and others of bench/: what they measure can be measured, with a tiny load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import charts
import pytest

ROOT = Path(__file__).parents[2]
CONTESTS = [
    *("append", "extend", "processes", "precommit-0", "lz4", "durable", "values", "records", "batches", "arrow"),
    *("extend-lz4", "append-keys", "extend-keys", "extend-arrow", "record-batches", "to-arrow", "count", "kept-records"),
]


def test_each_contest_of_the_core_is_held(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "core.py"), "--records", "1000", "--rounds", "1", "--dir", str(tmp_path)]
    for name in CONTESTS:
        command += ["--only", name]
    done = subprocess.run([*command, "--json", str(tmp_path / "report")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report").read_text())
    assert len(report["contests"]) == len(CONTESTS)


def test_rivals_are_measured_for_the_tables(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "rivals.py"), str(tmp_path / "figures"), "--dir", str(tmp_path)]
    size = ["--rounds", "1", "--seconds", "0.01", "--only", "queues", "--only", "durable"]
    done = subprocess.run([*command, *size], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "figures").read_text())
    assert "| jlog.Worker | " in charts.rivals_table("queues", found["queues"]["figures"])
    assert "\n| 64 | " in charts.rivals_table("durable", found["durable"]["figures"])


def test_questions_are_measured_beside_other_forms_of_the_same_lines(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "query.py"), "--records", "20000", "--rounds", "1", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for answer in ("all values: count and length: [(20000, ", "a 1,000th of the time: [(21,)]", "LIKE: [(2,)]"):
        assert answer in done.stdout
    assert done.stdout.count("| jlog, Polars | ") == 5


@pytest.mark.exhaustive
@pytest.mark.timeout(900)  # guards against hanging only; it starts some ninety processes
def test_the_costs_of_the_options_are_measured_for_the_tables(tmp_path: Path) -> None:
    size = ["--rounds", "1", "--seconds", "0.01", "--records", "1000"]
    command = [sys.executable, str(ROOT / "bench" / "choosing.py"), str(tmp_path / "figures"), *size, "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "figures").read_text())
    for option in charts.PANELS:
        heads = [panel.head + name for panel in charts.PANELS[option] for name in panel.names]
        assert all(f" {head} " in charts.table(option, found[option]) for head in heads)
