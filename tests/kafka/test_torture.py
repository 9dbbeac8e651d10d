"""A minute of tools/kafka_torture.py, which by hand runs for hours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).parents[2] / "tools" / "kafka_torture.py"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_jars")
def test_flows_keep_their_promises_while_everything_around_them_changes(tmp_path):
    done = subprocess.run(
        [sys.executable, str(TORTURE), "--minutes", "1", "--path", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
