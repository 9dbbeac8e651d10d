"""The index of the site's search finds the pages that a reader comes for, by the reader's own words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sphinx.search.en import SearchEnglish

from docs.console import PAGES, blocks

COLUMNS_MAX = 90  # of a program or a command in a page
WORDS = {
    "duckdb": "query",
    "polars": "query",
    "pandas": "query",
    "gunicorn": "web-service",
    "uvicorn": "web-service",
    "celery": "web-service",
    "fork": "web-service",
    "pydantic": "typed-records",
    "dataclass": "typed-records",
    "msgspec": "typed-records",
    "encrypt": "typed-records",
    "schema registry": "typed-records",
    "queue": "sharing-work",
    "worker": "sharing-work",
    "retry": "sharing-work",
    "rotate": "retention",
    "logrotate": "ship-a-log-file",
    "ship log file": "ship-a-log-file",
    "delete old records": "retention",
    "replay": "replay",
    "offset": "replay",
    "consumer group": "replay",
    "fsync": "durability",
    "browser": "console",
    "docker": "container",
    "encryption": "guarantees",
    "backup": "backup",
    "windows": "install",
}


@pytest.mark.xdist_group("site")
@pytest.mark.parametrize("words", WORDS)
def test_the_search_finds_the_page_by_the_words_of_a_reader(words: str, site: Path) -> None:
    """As the site does: each word is stemmed, and looked up in the texts and the titles."""
    index = json.loads((site / "searchindex.js").read_text(encoding="utf-8").removeprefix("Search.setIndex(").removesuffix(")"))
    stem = SearchEnglish({}).stem
    found = set(index["docnames"])
    for word in words.split():
        pages: set[int] = set()
        for terms in (index["terms"], index["titleterms"]):
            at = terms.get(stem(word), terms.get(word, []))
            pages |= {at} if isinstance(at, int) else set(at)
        found &= {index["docnames"][page] for page in pages}
    assert WORDS[words] in found


@pytest.mark.xdist_group("site")
def test_the_landing_page_has_description_copy_buttons_edit_link_and_logo(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    for part in ('<meta content="jlog is', "copybutton.js", "/edit/main/docs/index.md", 'icon" href="_static/logo.svg"'):
        assert part in page
    assert "ADDRESS-OF-THE-SOURCES" not in page


def test_code_fits_into_the_page() -> None:
    """The output of a command may be wider: it stands as a terminal shows it."""
    wide = [
        f"{page.name}, line {block.line + number}"
        for page in PAGES
        if page.name != "command-line.md"  # has the examples of --help, which is wider
        for block in blocks(page)
        if block.language in ("python", "sh")
        for number, line in enumerate(block.text.splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]
    assert wide == []
