"""The commands that messages name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

import jlog
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
