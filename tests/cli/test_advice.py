"""The commands that messages name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import jlog
from cli.command import run
from jlog.cli.tool import tool

PACKAGE = Path(jlog.__file__).parent
QUOTED = re.compile(r"`jlogtool ([^`]+)`")


def texts(node: ast.AST) -> Iterator[str]:
    """The strings of a module, with `…` for what is known only when it runs."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from texts(child)


def unknown(words: list[str]) -> list[str]:
    """The first word that is not a command, and the options that the command does not have."""
    command: click.Command = tool
    while isinstance(command, click.Group) and words != ["--help"]:
        if words[:1] == ["…"]:
            return []  # one of several commands, known when it runs
        found = command.get_command(click.Context(command), words[0]) if words else None
        if found is None:
            return words[:1]
        command, words = found, words[1:]
    known = {"--help"} | {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return [word for word in words if word.startswith("-") and word.partition("=")[0] not in known]


def test_messages_name_commands_and_options_that_exist() -> None:
    found = {
        (path.name, command)
        for path in PACKAGE.rglob("*.py")
        if path.name != "tool.py"  # it speaks of all commands
        for text in texts(ast.parse(path.read_text()))
        for command in QUOTED.findall(text)
    }
    assert len(found) > 50
    assert {one: wrong for one in found if (wrong := unknown(one[1].split()))} == {}


REST = {  # what a command takes besides the journal
    "backup": ["copy"],
    "checkpoint rm": ["name"],
    "checkpoint set": ["name", "begin"],
    "read": ["name"],
    "rewind": ["name", "name"],
    "rm": ["--yes"],
    "sql": [],
    "subscriber add": ["name"],
    "subscriber copy": ["name", "other"],
    "subscriber rm": ["name"],
    "subscriber set": ["name", "begin"],
    "work": ["name", "true"],
}
PLAIN = "info options dump tail work-retry subscriber\tls checkpoint\tls doctor verify repair clean archive roll stats metrics"
COMMANDS = [*REST, *(name.replace("\t", " ") for name in PLAIN.split(" "))]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_journal_is_named_by_every_command(command: str, tmp_path: Path) -> None:
    """The kernel's own words alone would not say what is missing."""
    for journal in (tmp_path / "missing", tmp_path / "no" / "such" / "directory"):
        before = ["select * from j"] if command == "sql" else []
        place = f"j={journal}" if command == "sql" else journal
        result = run(*command.split(), *before, place, *REST.get(command, ()), cwd=tmp_path)
        assert result.code not in (0, 2), result
        said = result.err + result.out.decode()
        assert str(journal) in said
        assert "No such file or directory" not in said
        assert "Traceback" not in said
        assert not journal.exists()
