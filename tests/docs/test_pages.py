"""Every code block of every page runs, or a comment above it says why it cannot. Blocks for Kafka run in tests/kafka, and those
for Spark in tests/spark."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.console import NOTE, PAGES, ROOT, blocks, pages_for
from docs.running import PAGE_SECONDS, run_page

DAMAGED = ("docs/repair.md", "docs/when-something-is-wrong.md")  # they damage journals, to show what happens
HERE = pages_for("docs")


@pytest.mark.timeout(PAGE_SECONDS)
@pytest.mark.parametrize(
    "page", [pytest.param(name, marks=[pytest.mark.damage] * (name in DAMAGED)) for name in HERE], ids=list(HERE)
)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    addresses = {}
    if "s3://" in HERE[page].read_text(encoding="utf-8"):
        addresses["s3://logs"] = f"{request.getfixturevalue('s3')}/{HERE[page].stem}"
    run_page(HERE[page], tmp_path, "docs", addresses)


def test_a_block_that_is_not_run_has_a_reason() -> None:
    notes = [(page.name, block.line, *note) for page in PAGES for block in blocks(page) for note in block.notes]
    assert [note for note in notes if note[2] == "not run" and len(note[3].split()) < 3] == []
    named = [ROOT / text for *_, kind, text in notes if kind == "run by"]
    assert [path for path in named if not path.is_file()] == []


def test_each_comment_about_a_block_stands_right_above_one() -> None:
    """A comment that is written wrongly, or stands elsewhere, would do nothing."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert len(NOTE.findall(text)) == sum(len(block.notes) for block in blocks(page)), page.name
        assert text.count("<!-- not") + text.count("<!-- run") == len([kind for kind, _ in NOTE.findall(text) if " " in kind])


def test_a_link_has_a_text_also_where_a_page_is_read_in_the_repository() -> None:
    """The built site puts the title of the page into a link without a text."""
    assert [(page.name, link) for page in PAGES for link in re.findall(r"\[\]\(.*?\)", page.read_text(encoding="utf-8"))] == []


def test_five_of_six_blocks_run() -> None:
    code = [block for page in PAGES for block in blocks(page) if block.is_code]
    not_run = [block for block in code if any(kind == "not run" for kind, _ in block.notes)]
    assert len(not_run) < len(code) / 6


@pytest.mark.parametrize(
    "block",
    ["```console\n$ echo tea\ncoffee\n```", "```sh\nfalse\n```", "```sh\ntail -f nothing\n```", "```python\nnothing\n```"],
    ids=["another output", "a code", "a code of what goes on", "an error"],
)
def test_a_block_that_does_not_do_what_it_shows_is_found(block: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(block)
    with pytest.raises(AssertionError, match=r"page\.md, line 1"):
        run_page(page, tmp_path, "docs", {})


def test_what_goes_on_is_ended_and_programs_share_names(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("""
<!-- before: echo tea > cups -->
```console
$ tail -f cups | sed -u s/t/T/
Tea
```

```python
cups = 1
```

```sh
# One's tea.
echo tea
```

<!-- program: more = cups + 1 -->
```python
assert (cups, more) == (1, 2)
```

<!-- not run: it fails -->
```sh
false
```
""")
    run_page(page, tmp_path, "docs", {})
