"""docs/glossary.md: every word of it is used, and words that it has replaced are gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
WORDS = [word.strip() for row, _ in ROWS if row not in ("word", "---") for word in row.split(",")]
SOURCES = {
    path: path.read_text(encoding="utf-8")
    for folder, suffixes in (("pyx", ".pyx .pxd .h"), ("jlog", ".py"), ("docs", ".md"), ("tools/model", ".py"))
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in suffixes.split() and path.name not in ("glossary.md", "benchmarks.md", "reliability.md")
}
# What the field calls otherwise, and what it is called here. (A hole of a file is the file system's.)
REPLACED = {
    r"\bupkeep\b": "maintenance",
    r"\bwrite-?outs?\b|\bwritten out\b": "write back",
    r"\bsettles?\b|\bsettled\b": "drain",
    r"\bcarry_through\b|\bcarries through\b": "run",
    r"\b(?:switched|switches) away\b": "rotate",
    r"\bholes? in the numbers\b": "gap",
    r"\bclass Member\b|\bcdef struct Call\b": "WritingProcess, Operation",
}


def used(word: str, text: str) -> bool:
    """A word is used in prose, or as a part of a name: `append lock` as `append_lock` or `AppendLock`."""
    stem = r"[\s_*-]*".join(re.escape(part) for part in re.split(r"[ -]", word.removesuffix("e")))
    return re.search(stem, text, re.IGNORECASE) is not None


@pytest.mark.parametrize("word", WORDS)
def test_a_word_is_used_elsewhere(word: str) -> None:
    """In the code, in the docs, or in both: nobody looks for a concept that is not there."""
    assert any(used(word, text) for text in SOURCES.values())


@pytest.mark.parametrize("pattern", REPLACED)
def test_a_replaced_word_is_gone(pattern: str) -> None:
    found = [f"{path.relative_to(ROOT)}: {match[0]}" for path, text in SOURCES.items() for match in re.finditer(pattern, text)]
    assert found == [], f"say {REPLACED[pattern]!r}"


def test_a_file_that_the_glossary_names_is_there() -> None:
    named = {name for _, meaning in ROWS for name in re.findall(r"`([\w-]+\.(?:pyx|h|py))`", meaning)}
    assert named
    assert [name for name in sorted(named) if not any(path.name == name for path in SOURCES)] == []


def test_no_word_stands_in_it_twice() -> None:
    assert sorted(WORDS) == sorted(set(WORDS))
