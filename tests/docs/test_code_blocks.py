"""Code blocks of all pages: programs compile and use names that exist, commands and their options are those of jlogtool.

tests/docs/test_pages.py runs them, but for those that no test can run.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator

import click
import pytest

import jlog
from docs.console import DOCS, PAGES, Block, blocks, commands
from docs.running import words_of
from jlog.cli.tool import tool

ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "2>", "<", "#"}  # of a command in a line
SHELL = ("sh", "console")


PLACED = {f"{page.relative_to(DOCS.parent)}:{block.line}": block for page in PAGES for block in blocks(page)}
PROGRAMS = {place: block for place, block in PLACED.items() if block.language == "python"}
COMMANDS = {place: block for place, block in PLACED.items() if block.language in SHELL}


def commands_in(block: Block) -> Iterator[list[str]]:
    """Yields the words of each command `jlogtool`."""
    for command in commands(block):
        words: list[str] = []
        for word in [*words_of(command.text), ";"]:
            if word in ENDS:
                names = [at for at, one in enumerate(words) if one.rpartition("/")[2] == "jlogtool"]
                if names:
                    yield words[names[0] + 1 :]
                words = []
            else:
                words.append(word)


def check(words: list[str]) -> None:
    """Fails where jlogtool has no such command, or the command no such option."""
    command: click.Command = tool
    context = click.Context(tool, info_name="jlogtool")
    known = {"--help", *(name for parameter in tool.params for name in parameter.opts)}
    for word in words:
        if word == "--":
            return
        if word.startswith("-") and not re.fullmatch(r"-\d*", word):
            name = word.partition("=")[0]
            assert name in known or name[:2] in known, f"{command.name} has no option {name}"
        elif isinstance(command, click.Group) and word != "…":
            found = command.get_command(context, word)
            assert found is not None, f"{command.name} has no command {word}"
            command = found
            known |= {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}


def test_each_block_names_its_language() -> None:
    assert [place for place, block in PLACED.items() if not block.language] == []


@pytest.mark.parametrize("block", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_compiles_and_its_names_exist(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "jlog":
            module = importlib.import_module(node.module or "")
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "jlog":
                    importlib.import_module(alias.name)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "jlog" and not hasattr(jlog, node.attr):
            importlib.import_module(f"jlog.{node.attr}")


@pytest.mark.parametrize("block", COMMANDS.values(), ids=COMMANDS)
def test_a_command_is_one_of_jlogtool(block: Block) -> None:
    for words in commands_in(block):
        check(words)


def test_a_command_that_does_not_exist_is_found() -> None:
    for line in ("jlogtool dumb /tmp/orders", "cat x | jlogtool dump --nonsense /tmp/orders", "jlogtool mirror too-kafka a b"):
        block = Block("sh", line, 1, [])
        with pytest.raises(AssertionError, match="has no"):
            check(next(commands_in(block)))
