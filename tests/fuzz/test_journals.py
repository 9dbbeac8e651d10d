"""A few seconds of tools/fuzz/journals.py, which by hand runs for hours."""

import os
import subprocess
import sys
from pathlib import Path

FUZZER = Path(__file__).parents[2] / "tools" / "fuzz" / "journals.py"
SECONDS = os.environ.get("JLOG_FUZZ_SECONDS", "3")


def test_a_changed_journal_is_read_as_far_as_sound_or_is_damage():
    ran = subprocess.run([sys.executable, FUZZER, "--seconds", SECONDS, "--seed", "1"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert '"failures": 0' in ran.stdout
