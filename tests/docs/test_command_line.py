"""docs/command-line.md says what the commands say."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_commands_say() -> None:
    done = subprocess.run([sys.executable, "tools/command_line.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
