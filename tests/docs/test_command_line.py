"""docs/command-line.md and the pages in docs/man say what the commands say."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "man").glob("*.1"))


def test_the_pages_are_what_the_commands_say() -> None:
    done = subprocess.run([sys.executable, "tools/manual.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_groff_prints_every_manual_page_without_a_warning() -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff: apt-get install groff-base")
    done = subprocess.run(["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-z", *PAGES], capture_output=True, text=True)
    assert (len(PAGES) > 20, done.returncode, done.stderr) == (True, 0, "")
