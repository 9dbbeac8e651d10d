"""Runs what a page of the documentation shows, as its reader would."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cli.command import COMMAND

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^( *)(```+)([^\n]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# ([\w.]+):")
KILLED = re.compile(r"^bash: line \d+: +\d+ Killed .*$", re.MULTILINE)
DONE = "--- done, with code "
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass
class Block:
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for block in BLOCK.finditer(text):
        indent, _, language, content = block.groups()
        lines = [line.removeprefix(indent) for line in content.splitlines(keepends=True)]
        found.append(Block(language.strip(), "".join(lines), text.count("\n", 0, block.start()) + 1))
    return found


def commands(text: str) -> list[tuple[str, str]]:
    """(what is typed behind each `$ `, what is shown for it)."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    assert parts[0] == "", "a console begins with a command"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def codes(wanted: str) -> range:
    """The exit codes of a command that shows this: one that shows an error of jlogtool's ends with an error."""
    if "Killed" in wanted:
        return range(137, 138)
    return range(1, 4) if wanted.startswith("jlogtool: ") else range(1)


class Shell:
    """A bash that lives through the page, in an empty directory, with `jlogtool` and `python` on its path."""

    def __init__(self, directory: Path) -> None:
        programs = directory / "programs"
        programs.mkdir()
        for name, command in (("jlogtool", COMMAND), ("python", [sys.executable])):
            (programs / name).write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
            (programs / name).chmod(0o755)
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        )

    def run(self, command: str) -> tuple[str, int]:
        """What it shows, and its code."""
        process = self._process
        process.stdin.write(f"{command}\necho '{DONE}'$?\n")
        process.stdin.flush()
        shown = []
        for line in process.stdout:
            before, done, code = line.partition(DONE)
            shown.append(before)
            if done:
                return KILLED.sub("Killed", "".join(shown)), int(code)
        raise AssertionError(f"the shell ended in {command!r}")

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def run_page(page: Path, directory: Path, not_run: str = "") -> None:
    """Each block in order. Python that begins with `# name.py:` is saved under that name. not_run: the language of blocks that
    are only shown."""
    shell = Shell(directory)
    checker = doctest.OutputChecker()
    try:
        for block in blocks(page):
            where = f"{page.name}, line {block.line}"
            if block.language == not_run:
                continue
            if block.language == "python":
                folder = Path(shell.run("pwd")[0].strip())
                name = FILE.match(block.text)
                assert name, f"{where}: a program says what file it is"
                (folder / name[1]).write_text(block.text)
                continue
            assert block.language == "console", f"{where}: nothing runs {block.language!r}"
            for command, wanted in commands(block.text):
                shown, code = shell.run(command)
                assert checker.check_output(wanted, shown, SAME), f"{where}: {command}\n{shown}"
                assert code in codes(wanted), f"{where}: {command} ended with {code}"
    finally:
        shell.close()
