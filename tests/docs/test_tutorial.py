"""docs/tutorial.md: every command and every program in it does what the page shows."""

import re
import shutil
from pathlib import Path

import pytest

from docs.console import DOCS, blocks, commands, run_page

ROOT = DOCS.parent


@pytest.fixture(autouse=True)
def _bash():
    if shutil.which("bash") is None:
        pytest.skip("no bash: apt-get install bash")


def test_the_tutorial_shows_what_happens(tmp_path: Path) -> None:
    run_page(DOCS / "tutorial.md", tmp_path)


def test_the_tutorial_leaves_nothing_but_its_own_files(tmp_path: Path) -> None:
    shown = [block.text for block in blocks(DOCS / "tutorial.md") if block.language == "console"]
    typed = [command for text in shown for command, _ in commands(text)]
    assert "jlogtool rm --yes orders" in typed
    assert not [command for command in typed if re.search(r"(?<![\w.])/", command)], "it stays in its directory"


def test_the_readme_s_program_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
    assert "/tmp/orders" in program
    exec(program.replace("/tmp/orders", str(tmp_path / "orders")), {})
    assert len(capsys.readouterr().out.splitlines()) == 4
