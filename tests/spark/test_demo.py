"""The demo's last step: its lines in Parquet, counted by SQL, against the journal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.sessions import ROOT

DEMO = [sys.executable, str(ROOT / "docs" / "examples" / "demo" / "run.py"), "--spark"]


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("_spark_environment")
def test_sql_counts_the_records_that_the_journal_holds(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "input").write_bytes(b"".join(b"line %d\n" % number for number in range(1_234)))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "tmp"), "COLUMNS": "200"}
    environment.pop("PYSPARK_PYTHON", None)
    done = subprocess.run(
        [*DEMO, str(tmp_path / "input")],
        env={**environment, "JLOG_DEMO_DIR": ""},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "journal, Spark, Parquet: 1,234 records" in done.stdout
    (kept,) = (tmp_path / "tmp").glob("jlog-demo-*")
    assert sorted(path.name for path in kept.iterdir()) == ["journal", "lake", "lake.checkpoint"]
