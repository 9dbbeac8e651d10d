"""docs/when-something-is-wrong.md: each message comes about as shown, and no error of jlog's is left out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import jlog.errors
from docs.console import DOCS, run_page

PAGE = DOCS / "when-something-is-wrong.md"
SOURCES = [path for folder in ("jlog", "pyx") for path in (DOCS.parent / folder).rglob("*.py*") if path.suffix != ".pyc"]
ROOTS = {"JournalError"}  # the class of many errors


@pytest.mark.damage
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash: apt-get install bash")
def test_each_message_comes_about_as_shown(tmp_path: Path) -> None:
    run_page(PAGE, tmp_path)


@pytest.mark.parametrize("name", sorted(set(jlog.errors.__all__) - ROOTS))
def test_each_error_has_a_message_on_the_page(name: str) -> None:
    assert re.search(rf"^### `.*` \({name}\)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_each_message_is_one_of_the_sources() -> None:
    """Those that the page does not bring about, too: words of a heading between its gaps stand in some source file."""
    sources = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    joined = re.sub(r'["\']\s*\n\s*f?["\']', "", sources)
    joined = re.sub(r"\{[^{}]*\}", "…", joined)
    headings = re.findall(r"^### `(.*)` \((?!OSError)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(headings) > 20
    unknown = [heading for heading in headings if not all(part.strip() in joined for part in heading.split("…"))]
    assert unknown == []
