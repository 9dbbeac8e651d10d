"""docs/glossary.md: every word of it is used, and words and phrases that it has replaced are gone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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
    r"\badopt\w*(?: \w+)? (?:files?|segments?)\b": "ingest",  # a pipeline adopts a table, and a writer ingests a file
    r"\bclass Member\b|\bcdef struct Call\b": "WritingProcess, Operation",
}

# Folders, and files at the root, whose English is looked at.
ROOMS = ("jlog", "pyx", "tests", "tools", "bench", "docs", "README.md", "CONTRIBUTING.md", "SECURITY.md")
SUFFIXES = (".py", ".pyx", ".pxd", ".pyi", ".h", ".md")
ELSEWHERE = {"tests/docs/test_glossary.py", "docs/man"}
# A reader, a broker or an archive may be behind, and what is left is left behind. A position, a byte or a record is beyond
# another one, or after it. In quotes it is a name.
LAG = re.compile(
    r"[\"'`]behind(?=[\"'`]| {2})|\b(?:far|lags|falls|one batch|seconds) behind\b|\bleaves?(?: [a-z]+){0,4} behind\b"
    r"|\b(?:archive|batch|brokers?|reader|query)(?: that)? (?:is|are|may be) behind(?! \w)",
    re.IGNORECASE,
)
# "There is no index" and "is no longer" are English; "is no index" is not.
COMPARED = r"(?:longer|more|less|fewer|later|earlier|other|larger|smaller|better|faster)\b"
CREATED = "checkpoint|client|consumer|copy|directory|file|flow|folder|journal|producer|reader|segment|subscriber|table|topic"
MISLEADING = {
    "behind": (re.compile(r"\bbehind\b", re.IGNORECASE), "beyond, after or past; `lags behind` is right"),
    "is no": (
        re.compile(rf"(?<!\bthere )\b(?:is|are|was|were) no (?!{COMPARED})[\w`*]", re.IGNORECASE),
        "is not a; `there is no` is right",
    ),
    "makes": (
        re.compile(
            rf'"""Makes? (?:a|an|one|the) (?:[a-z]+ )?(?:{CREATED})(?:[.,;]| (?:of|or|with|at|for|that|if|to|where|and|`))'
        ),
        "creates",
    ),
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


def prose(path: Path) -> str:
    """Returns a file with its lines joined, without the marks of comments between them, and without what is about lag."""
    return LAG.sub("", re.sub(r"\s*\n[\s#*>|]*", " ", path.read_text(encoding="utf-8")))


def texts() -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")) if (ROOT / room).is_dir() else [ROOT / room]:
            name = path.relative_to(ROOT)
            if path.suffix in SUFFIXES and {str(one) for one in (name, *name.parents)}.isdisjoint(ELSEWHERE):
                yield path


@pytest.mark.parametrize("phrase", MISLEADING)
def test_a_misleading_phrase_is_gone(phrase: str) -> None:
    pattern, instead = MISLEADING[phrase]
    found = [
        f"{path.relative_to(ROOT)}: …{text[max(match.start() - 40, 0) : match.end() + 20]}…"
        for path in texts()
        for text in [prose(path)]
        for match in pattern.finditer(text)
    ]
    assert found == [], f"say {instead}"


@pytest.mark.parametrize(
    ("phrase", "text"),
    [
        ("behind", "17 lies behind the end"),
        ("behind", "a position is behind the end"),
        ("is no", "`x` is no number"),
        ("makes", '"""Makes the checkpoint `name`, or moves it.'),
        ("makes", '"""Makes a new file and returns its descriptor.'),
    ],
)
def test_a_misleading_phrase_is_found(phrase: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "page").write_text(text)
    assert MISLEADING[phrase][0].search(prose(tmp_path / "page"))


@pytest.mark.parametrize(
    "text",
    [
        "a reader that lags behind",
        "a broker may be behind, and",
        "brokers that are behind.",
        "it leaves its socket behind",
        "there is\n    # no index",
        "it is no longer there",
        '"""Makes a damaged journal sound.',
        '"""Makes room for a file.',
    ],
)
def test_what_is_plain_english_is_not(text: str, tmp_path: Path) -> None:
    (tmp_path / "page").write_text(text)
    assert not any(pattern.search(prose(tmp_path / "page")) for pattern, _ in MISLEADING.values())


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found = ast.get_docstring(node)
            if found:
                yield node.body[0].lineno, found


def test_no_docstring_of_a_test_begins_with_a_bare_what_who_or_that() -> None:
    """It begins with what is promised: a thing with a name, or a verb."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, text in docstrings(path)
        if re.match(r"(?:What|Who|Whoever|That)\b", text)
    ]
    assert found == []
