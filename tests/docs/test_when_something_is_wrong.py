"""docs/when-something-is-wrong.md has each error of jlog's, and its messages are those of the sources."""

from __future__ import annotations

import re

import pytest

import jlog.errors
from docs.console import DOCS

PAGE = DOCS / "when-something-is-wrong.md"
SOURCES = [path for folder in ("jlog", "pyx") for path in (DOCS.parent / folder).rglob("*.py*") if path.suffix != ".pyc"]
ROOTS = {"JournalError"}  # the class of many errors


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
