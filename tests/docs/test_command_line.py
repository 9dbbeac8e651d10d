"""docs/command-line.md and the pages in docs/man say what the commands say."""

import re
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from jlog.cli.tool import SECTIONS

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


def test_each_group_of_commands_has_a_page_with_all_of_it() -> None:
    parts = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("commands-*.md"))]
    found = {re.findall(r':(?:start-after|end-before): "## (.*)"', part)[0]: part for part in parts}
    assert found.keys() == SECTIONS.keys()
    for title, following in pairwise(SECTIONS):
        assert f':end-before: "## {following}"' in found[title]
