"""The site's search finds the pages that a reader comes for first, by the reader's own words."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from docs.console import PAGES, Block, blocks, commands
from patience import HUNG_SECONDS

COLUMNS_MAX = 90  # of a program or a command in a page
WORDS = {
    "duckdb": "query",
    "polars": "query",
    "pandas": "query",
    "gunicorn": "web-service",
    "uvicorn": "web-service",
    "celery": "celery",
    "fork": "web-service",
    "pydantic": "typed-records",
    "dataclass": "typed-records",
    "msgspec": "typed-records",
    "encrypt": "typed-records",
    "schema registry": "typed-records",
    "pubsub": "following",
    "pub/sub": "following",
    "publish subscribe": "following",
    "tail -f": "following",
    "asyncio": "following",
    "queue": "sharing-work",
    "message queue": "sharing-work",
    "multiprocessing": "sharing-work",
    "dead letter": "sharing-work",
    "dead letters": "sharing-work",
    "backpressure": "retention",
    "ttl": "retention",
    "at least once": "guarantees",
    "exactly once": "guarantees",
    "exactly-once": "guarantees",
    "deduplicate": "once",
    "idempotent": "once",
    "wal": "how-it-works",
    "write-ahead log": "how-it-works",
    "s3": "archive",
    "redis": "comparisons",
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
    "since": "replay",
    "restore": "backup",
    "kafka": "kafka",
    "parquet": "pipeline",
    "ingest from a web service": "web-service",
    "share work among processes": "sharing-work",
    "query with duckdb": "query",
    "keep or delete old records": "retention",
    "survive power loss": "durability",
    "back up and restore": "backup",
    "mirror to kafka": "kafka",
    "load into spark tables": "pipeline",
    "run in a container": "container",
}


FIRST = "return document.querySelector('#search-results ul.search li a')?.getAttribute('href') ?? null"
DONE = "return document.querySelector('#search-results .search-summary')?.textContent.startsWith('Search finished')"


@pytest.mark.xdist_group("site")
def test_the_page_that_a_reader_means_is_the_first_that_the_search_finds(site: Path, browser: webdriver.Chrome) -> None:
    found = {words: first_hit(browser, site, words) for words in WORDS}
    assert found == {words: f"{page}.html" for words, page in WORDS.items()}


def first_hit(browser: webdriver.Chrome, site: Path, words: str) -> str:
    browser.get(f"{(site / 'search.html').as_uri()}?q={quote(words)}")
    WebDriverWait(browser, HUNG_SECONDS).until(lambda _: browser.execute_script(DONE))
    return str(browser.execute_script(FIRST)).partition("?")[0]


@pytest.mark.xdist_group("site")
def test_the_landing_page_has_description_copy_buttons_edit_link_and_logo(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    for part in ('<meta content="jlog is', "copybutton.js", "/edit/main/docs/index.md", 'icon" href="_static/logo.svg"'):
        assert part in page
    assert "ADDRESS-OF-THE-SOURCES" not in page


def test_code_fits_into_the_page() -> None:
    """The output of a command may be wider: it stands as a terminal shows it."""
    wide = [
        f"{page.name}: {line}"
        for page in PAGES
        if page.name != "command-line.md"  # has the examples of --help, which is wider
        for block in blocks(page)
        if block.is_code
        for line in typed(block)
        if len(line) > COLUMNS_MAX
    ]
    assert wide == []


def typed(block: Block) -> list[str]:
    """Lists the lines that a reader types or copies."""
    if block.language != "console":
        return block.text.splitlines()
    return [line for command in commands(block) for line in f"{command.host}$ {command.text}".splitlines()]
