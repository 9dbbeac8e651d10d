"""docs/tutorial.md stays in its own directory. tests/docs/test_pages.py runs it."""

import re

from docs.console import DOCS, blocks, commands


def test_the_tutorial_leaves_nothing_but_its_own_files() -> None:
    shown = [block for block in blocks(DOCS / "tutorial.md") if block.language == "console"]
    typed = [command.text for block in shown for command in commands(block)]
    assert "jlogtool rm --yes orders" in typed
    assert not [command for command in typed if re.search(r"(?<![\w.])/", command)]
