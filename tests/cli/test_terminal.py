"""The differences at a terminal."""

from __future__ import annotations

import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import do
from cli.terminal import terminal
from patience import HUNG_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

SHOW = [["dump", "--format", "pretty"], ["info"], ["dump", "--format", "hex"], ["subscriber", "ls"]]


def shown(*arguments: object) -> bytes:
    with terminal(*arguments) as tool:
        assert tool.wait() == 0
        return tool.shown


@pytest.mark.parametrize("command", SHOW, ids=" ".join)
def test_a_terminal_has_colours(numbers: Path, command: list[str]) -> None:
    assert b"\x1b[" in shown(*command, numbers)


@pytest.mark.parametrize("command", SHOW, ids=" ".join)
@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_a_terminal_whose_user_wants_no_colours_has_none(
    numbers: Path, command: list[str], name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert b"\x1b[" not in shown(*command, numbers)


@pytest.mark.parametrize("command", SHOW, ids=" ".join)
def test_a_pipe_has_no_colours_whatever_the_environment_says(
    numbers: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert b"\x1b[" not in do(*command, numbers).out


def test_a_table_fits_a_narrow_terminal(numbers: Path) -> None:
    do("subscriber", "add", numbers, "a-name-that-is-longer-than-the-terminal-is-wide")
    with terminal("ls", numbers.parent, columns=40) as tool:
        assert tool.wait() == 0
    assert "records" in tool.text
    assert all(len(line) <= 40 for line in tool.text.splitlines())


def test_typed_lines_are_appended_as_they_end(
    journal: Path,
) -> None:
    """Nothing is drawn between them."""
    do("create", journal)
    says = "jlogtool: reads lines from the terminal; Ctrl-D ends"
    with terminal("append", journal) as tool, jlog.Reader(journal) as reader:
        tool.shows(says)
        tool.type(b"first\n")
        assert reader.read(timeout=HUNG_SECONDS).values() == [b"first"]
        tool.type(b"second\n\x04")
        assert tool.wait() == 0
        assert list(reader.values()) == [b"second"]
        assert tool.text == f"{says}\nfirst\nsecond"


def test_ctrl_c_ends_what_follows_with_130_and_without_a_word(numbers: Path) -> None:
    with terminal("tail", "-f", "-n", 1, "--format", "raw", numbers) as tool:
        tool.read_until(lambda text: "99" in text)
        tool.type(b"\x03")
        assert tool.wait() == 130
        assert tool.text.replace("^C", "").strip() == "99"


def test_ctrl_d_at_a_question_does_nothing(numbers: Path) -> None:
    with terminal("rm", numbers) as tool:
        tool.type(b"\x04")
        assert tool.wait() == 130
    assert len(jlog.Journal(numbers)) == 100


def test_appending_a_long_file_shows_how_far_it_is(journal: Path, tmp_path: Path) -> None:
    records = 4_000_000
    (tmp_path / "long").write_bytes(struct.pack("<I", 0) * records)
    with terminal("append", "--framing", "length32", journal, tmp_path / "long") as tool:
        assert tool.wait() == 0
        assert (b"Appending" in tool.shown, "Appending" in tool.text) == (True, False)
    assert len(jlog.Journal(journal)) == records
    do("rm", "--yes", journal)  # the oracle would take a minute


def test_dumping_into_a_file_shows_progress_and_into_a_pipe_none(journal: Path, tmp_path: Path) -> None:
    value = b"." * (1 << 20)
    with jlog.Writer(journal) as writer:
        for _ in range(16):
            writer.append(value)
    with (
        open(tmp_path / "file", "wb") as file,
        terminal("dump", "--format", "hex", journal, stdout=file) as tool,
    ):
        assert tool.wait() == 0
        assert (b"Reading" in tool.shown, tool.text) == (True, "")
    with terminal("dump", "--format", "hex", journal, stdout=subprocess.DEVNULL) as tool:
        assert tool.wait() == 0
        assert tool.shown == b""
