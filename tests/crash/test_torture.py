"""A few seconds of tools/torture.py; by hand it runs for hours."""

import subprocess
import sys
from pathlib import Path

import pytest

TORTURE = Path(__file__).parents[2] / "tools" / "torture.py"
SMALL = [
    "--seed",
    "1",
    "--lives",
    "1",
    "--rounds",
    "4",
    "--round-seconds",
    "1",
    "--producers",
    "2",
    "--subscribers",
    "4",
]


@pytest.mark.usefixtures("failpoints")
def test_everything_at_once_keeps_what_was_acknowledged(tmp_path):
    done = subprocess.run(
        [sys.executable, str(TORTURE), *SMALL, "--path", str(tmp_path), "--without", "drop"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
