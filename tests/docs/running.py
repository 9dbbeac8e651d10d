"""Runs the blocks of a page, as a reader who copies them from top to bottom."""

from __future__ import annotations

import doctest
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from manual import all_commands

from docs.console import DOCS, Block, Command, blocks, command_before, commands
from docs.shell import Shell

PAGE_SECONDS = 1_000.0  # guards against hanging only; a page may start a hundred commands
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FILE = re.compile(r"# ([\w.]+):")
PATH = re.compile(r"(?<![\w./*-])(file://)?(/(?:etc|lake|mnt|shared|srv|tmp|var)\b[\w./-]*)")
PORT = re.compile(r"(?<=[ :])(8080|9464|9465)\b")
GO_ON = {"-f", "--follow", "--interval", "--listen"}  # with one of these a command goes on until it is ended
CAN_END = [name for name, command in all_commands() if any(option.name == "until_end" for option in command.params)]
REPORT = re.compile(r"jlogtool (verify|repair --dry-run)\b")  # with code 3 it reports damage, which is not an error
PACKAGES = {"jq": "jq", "journalctl": "systemd", "curl": "curl"}


class Places:
    """Where the paths and the addresses of a page are in a test: paths below its directory, ports where one is free."""

    def __init__(self, directory: Path, addresses: Mapping[str, str]) -> None:
        self._directory = directory
        self._addresses = dict(addresses)

    def moved(self, text: str, host: str = "") -> str:
        """Returns the text of a block with the addresses of this test. The directories above each path are created."""
        text = self.addressed(text)
        text = PATH.sub(lambda found: (found[1] or "") + self._path(found[2], host), text)
        return PORT.sub(lambda found: self._port(found[1]), text)

    def addressed(self, text: str) -> str:
        for pattern, address in self._addresses.items():
            text = re.sub(pattern, address, text)
        return text

    def _path(self, path: str, host: str) -> str:
        moved = self._directory / host / path[1:]
        moved.parent.mkdir(parents=True, exist_ok=True)
        return str(moved) + "/" * path.endswith("/")

    def _port(self, port: str) -> str:
        if port not in self._addresses:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._addresses[port] = str(free.getsockname()[1])
        return self._addresses[port]

    def moved_back(self, shown: str) -> str:
        return re.sub(re.escape(str(self._directory)) + r"(?:/\w+)?(?=/(?:etc|lake|mnt|shared|srv|tmp|var)\b)", "", shown)


class Session:
    """Python at its prompt."""

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        program = Path(__file__).with_name("session.py")
        self._process = subprocess.Popen(
            [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=directory, env=environment
        )

    def run(self, program: str) -> bool:
        """Returns whether it succeeds. If not, its traceback is on stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(program) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline() == "done\n"

    def close(self) -> None:
        self._process.communicate()


class Run:
    """The blocks of one page in one directory. Programs share their names, as in a session, and commands share a shell.

    A program that begins with `# name.py:` is saved under that name. What would go on for ever is told to end where its source
    ends now. What cannot be told so gets SIGTERM when it waits."""

    def __init__(self, page: Path, directory: Path, addresses: Mapping[str, str]) -> None:
        environment = {**os.environ, "HOME": str(directory), "EXAMPLES": str(DOCS / "examples")}
        self._page = page
        self._places = Places(directory, addresses)
        self._shell = Shell(directory, environment)
        self._session = Session(directory, environment)
        self._checker = doctest.OutputChecker()
        self._missing: set[str] = set()

    def run(self, block: Block) -> None:
        for kind, text in block.notes:
            if kind == "before":
                self._command(block, command_before(text))
            elif kind == "program":
                self._program(block, text)
        name = FILE.match(block.text)
        if block.language != "python":
            for command in commands(block):
                self._command(block, command)
        elif name:
            folder = Path(self._shell.run("pwd")[0].strip())
            (folder / name[1]).write_text(self._places.moved(block.text))
        else:
            self._program(block, block.text)

    def _program(self, block: Block, text: str) -> None:
        assert self._session.run(ending_program(self._places.moved(text))), f"{self._where(block)}\n{text}"

    def _command(self, block: Block, command: Command) -> None:
        missing = missing_in(command.text)
        if missing:
            self._missing |= missing
            return
        wanted = None if command.shown is None else self._places.addressed(command.shown.replace("…", "..."))
        text = self._places.moved(ending(command.text), command.host)

        def is_shown(shown: str) -> bool:
            return wanted is None or self._checker.check_output(wanted, self._places.moved_back(shown), SAME)

        if goes_on(text):
            shown, code = self._shell.run_until_quiet(text, is_shown)
            allowed = {0, 143}
        else:
            shown, code = self._shell.run(text)
            allowed = {*codes(wanted or ""), *([3] if REPORT.search(text) else [])}
        assert is_shown(shown), f"{self._where(block)}: {text}\n{shown}"
        assert code in allowed, f"{self._where(block)}: {text} ended with {code}\n{shown}"

    def _where(self, block: Block) -> str:
        return f"{self._page.name}, line {block.line}"

    def close(self) -> None:
        self._session.close()
        self._shell.close()

    def skip_if_incomplete(self) -> None:
        if self._missing:
            names = " ".join(sorted(PACKAGES[name] for name in self._missing))
            pytest.skip(f"lines with {', '.join(sorted(self._missing))} did not run: apt-get install {names}")


def run_page(page: Path, directory: Path, room: str, addresses: Mapping[str, str]) -> None:
    """Runs each block of the page that is run in this room, in order. addresses: what stands in place of which pattern."""
    if shutil.which("bash") is None:
        pytest.skip("no bash: apt-get install bash")
    run = Run(page, directory, addresses)
    try:
        for block in blocks(page):
            if block.is_run_here and block.room == room:
                run.run(block)
    finally:
        run.close()
    run.skip_if_incomplete()


def codes(wanted: str) -> range:
    """The exit codes of a command that shows this: one that shows an error of jlogtool's ends with an error."""
    if "Killed" in wanted:
        return range(137, 138)
    return range(1, 4) if wanted.startswith("jlogtool: ") else range(1)


def words_of(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    return list(lexer)


def missing_in(line: str) -> set[str]:
    """Programs of the line that this machine does not have."""
    return {word for word in words_of(line) if word in PACKAGES and shutil.which(word) is None}


def goes_on(line: str) -> bool:
    """Returns whether the line goes on until it is ended. In the background it does not."""
    words = words_of(line)
    return not GO_ON.isdisjoint(words) and words[-1] != "&" and "--limit" not in words


def ending_program(program: str) -> str:
    """Returns the program with the arguments that let it end where its sources end now."""
    program = program.replace(".follow()", ".follow(timeout=0)")
    return re.sub(r"(= (?:Mirror|Capture)\([^()]*)\)", r"\1, until_end=True)", program)


def ending(line: str) -> str:
    """Returns the line with the options that let its commands end where their sources end now."""
    line = re.sub(r"--trigger \d+\w*", "--trigger available-now", line)
    return line if "--until-end" in line else re.sub(rf"\bjlogtool (?:{'|'.join(CAN_END)})\b(?!-)", r"\g<0> --until-end", line)
