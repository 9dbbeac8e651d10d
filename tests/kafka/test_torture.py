"""Some seconds of tools/kafka_torture.py, always by the same plan. By hand it runs for hours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).parents[2] / "tools" / "kafka_torture.py"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_jars")
def test_flows_keep_their_promises_while_everything_around_them_changes(tmp_path):
    command = [sys.executable, str(TORTURE), "--minutes", "0.3", "--seed", "4", "--path", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
