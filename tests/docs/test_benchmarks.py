"""bench/core.py, which `make bench` runs: what it measures can be measured, with a load that takes no time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONTESTS = [
    *("append", "extend", "processes", "precommit-0", "lz4", "durable", "values", "records", "batches", "arrow"),
    *("extend-lz4", "append-keys", "extend-keys", "extend-arrow", "record-batches", "to-arrow", "count"),
]


def test_each_contest_of_the_core_is_held(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "core.py"), "--records", "1000", "--rounds", "1", "--dir", str(tmp_path)]
    for name in CONTESTS:
        command += ["--only", name]
    done = subprocess.run([*command, "--json", str(tmp_path / "report")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report").read_text())
    assert len(report["contests"]) == len(CONTESTS)
