"""The code blocks of a page of the documentation, and the comments that say how they are run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
BLOCK = re.compile(r"^((?: *<!-- [^\n]* -->\n)*)( *)(```+)([^\n]*)\n(.*?)^\2\3 *$", re.MULTILINE | re.DOTALL)
NOTE = re.compile(r"<!-- (not run|run by|before|program): *(.*?) *-->")
SPARK = re.compile(r'\bspark\b|jlogtool pipeline|format\("jlog"\)')
KAFKA = re.compile(r"kafka://|jlogtool mirror")
RUN = ("console", "python", "sh")  # the languages


@dataclass
class Block:
    language: str
    text: str
    line: int
    notes: list[tuple[str, str]]
    """The comments right above it, which no reader sees: the kind and the text of each.

    before: a command that creates what a reader would have. program: the same in Python. run by: the test that runs the block.
    not run: why no test can."""

    def __str__(self) -> str:
        return f"{self.language} in line {self.line}"

    @property
    def is_code(self) -> bool:
        return self.language in RUN

    @property
    def is_run_here(self) -> bool:
        return self.is_code and not any(kind in ("not run", "run by") for kind, _ in self.notes)

    @property
    def room(self) -> str:
        """The directory of the tests that has what the block needs."""
        if SPARK.search(self.text):
            return "spark"
        return "kafka" if KAFKA.search(self.text) else "docs"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for block in BLOCK.finditer(text):
        notes, indent, _, language, content = block.groups()
        lines = [line.removeprefix(indent) for line in content.splitlines(keepends=True)]
        line = text.count("\n", 0, block.start(2)) + 1
        found.append(Block(language.strip(), "".join(lines), line, NOTE.findall(notes)))
    return found


def pages_for(room: str) -> dict[str, Path]:
    """The pages with a block that is run in this room, by their names below the project."""
    return {
        str(page.relative_to(ROOT)): page
        for page in PAGES
        if any(block.is_run_here and block.room == room for block in blocks(page))
    }


@dataclass
class Command:
    text: str
    shown: str | None  # None: the page does not say
    host: str = ""


def command_before(text: str) -> Command:
    """The command of a comment. `HOST$ ` in front of it says on which of several machines it is typed."""
    host, prompt, typed = text.partition("$ ")
    return Command(typed, None, host) if prompt and host.isalnum() else Command(text, None)


def commands(block: Block) -> Iterator[Command]:
    """Yields each command of a block. In a console it is typed after `$ `, or `HOST$ ` if there are several machines, and goes
    on in the next line after a backslash."""
    if block.language == "console":
        parts = re.split(r"^(\w*)\$ ((?:.*\\\n)*.*)\n", block.text, flags=re.MULTILINE)
        assert parts[0] == "", "a console begins with a command"
        for host, typed, shown in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            yield Command(typed, shown, host)
    else:
        yield from (Command(text, None) for text in whole_lines(block.text))


def whole_lines(text: str) -> Iterator[str]:
    """Yields the commands of a script: a line with those that it goes on in. Lines that are comments are left out."""
    begun = ""
    for line in text.splitlines():
        begun += line
        here = re.search(r"(?<!<)<<'?(\w+)", begun)
        if begun.endswith("\\") or not is_closed(begun) or (here and line != here[1]):
            begun += "\n"
        elif begun:
            if not begun.startswith("#"):
                yield begun
            begun = ""
    assert not begun, f"a line that does not end: {begun}"


def is_closed(text: str) -> bool:
    """Returns whether each quotation in it has an end."""
    without_comment = re.sub(r"(^|\s)#.*$", "", text, flags=re.MULTILINE)
    quotations = re.sub(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", "", without_comment)
    return not re.search(r"['\"]", quotations)
