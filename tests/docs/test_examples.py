"""docs/examples: the one command of each example runs, and its proof holds. The proof fails where the program is wrong."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.console import DOCS
from patience import HUNG_SECONDS

EXAMPLES = DOCS / "examples"


def run(example: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs it as its README says. What it leaves is in `folder`."""
    command = [sys.executable, example / "run.py", folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=HUNG_SECONDS)


def check_proved(done: subprocess.CompletedProcess[str], proof: str) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == proof


def check_shown(example: str, proof: str) -> None:
    assert f"\n{proof}\n```" in (EXAMPLES / example / "README.md").read_text()


def spoiled(example: str, folder: Path, file: str, right: str, wrong: str) -> Path:
    """Returns a copy of the example in which a line is wrong."""
    copy = shutil.copytree(EXAMPLES / example, folder / example)
    text = (copy / file).read_text()
    assert text.count(right) == 1
    (copy / file).write_text(text.replace(right, wrong))
    return copy


PROOFS = {
    "outbox": "each order is in the journal exactly once, in the order of the database",
}


@pytest.mark.parametrize("example", PROOFS)
def test_an_example_proves_what_its_page_shows(example: str, tmp_path: Path) -> None:
    check_proved(run(EXAMPLES / example, tmp_path / "run"), PROOFS[example])
    check_shown(example, PROOFS[example])


WRONG = {
    # A relay that does not look which rows are in the journal already.
    "outbox": ("relay.py", 'json.loads(jlog.Journal(journal_path).state().get(STATE_KEY, b"[]"))', "[]"),
}


@pytest.mark.parametrize("example", WRONG)
def test_the_proof_of_an_example_fails_where_its_program_is_wrong(example: str, tmp_path: Path) -> None:
    done = run(spoiled(example, tmp_path, *WRONG[example]), tmp_path / "run")
    assert (done.returncode, done.stderr[:8]) == (1, "FAILED: "), done.stdout + done.stderr


def test_the_page_lists_each_example() -> None:
    page = (DOCS / "examples.md").read_text()
    names = sorted(path.name for path in EXAMPLES.iterdir())
    assert [name for name in names if f"examples/{name}/README.md" not in page] == []
    assert [name for name in names if f"\nexamples/{name}/README\n" not in page] == []
