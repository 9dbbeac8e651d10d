"""Everything reaches stdout, or the command fails."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import COMMAND, HUNG_SECONDS, arguments_of, start
from cli.terminal import terminal_of

if TYPE_CHECKING:
    from pathlib import Path

VALUES = [b"%06d" % number * 100 for number in range(2_000)]  # more than a pipe holds, and more than one batch writes
COMMANDS = {
    "dump": ["dump"],
    "tail": ["tail", "-n", "2000"],
    "read": ["read"],
}


@pytest.fixture
def large(journal: Path) -> Path:
    with jlog.Writer(journal) as writer:
        writer.extend(VALUES)
    return journal


def arguments(command: str, path: Path) -> list[object]:
    return [*COMMANDS[command], path, *(["billing"] if command == "read" else [])]


def read_all(fd: int) -> bytes:
    found = b""
    while piece := os.read(fd, 1 << 16):
        found += piece
    os.close(fd)
    return found


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "PYTHONUNBUFFERED"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_pipe_that_does_not_block_gets_every_record(large: Path, command: str, unbuffered: str) -> None:
    ours, its = os.pipe()
    os.set_blocking(its, False)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with start(*arguments(command, large), stdout=its, env=environment) as tool:
        os.close(its)
        assert read_all(ours) == b"".join(value + b"\n" for value in VALUES)
        assert tool.wait(HUNG_SECONDS) == 0
    if command == "read":
        assert jlog.Journal(large).subscribers()["billing"].sequence == len(VALUES)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_process_that_was_stopped_within_a_write_writes_the_rest(large: Path, command: str) -> None:
    ours, its = os.pipe()
    with start(*arguments(command, large), stdout=its, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as tool:
        os.close(its)
        found = os.read(ours, 100)
        tool.send_signal(signal.SIGSTOP)
        os.waitpid(tool.pid, os.WUNTRACED)
        tool.send_signal(signal.SIGCONT)
        assert found + read_all(ours) == b"".join(value + b"\n" for value in VALUES)
        assert tool.wait(HUNG_SECONDS) == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_z_and_fg_in_a_shell_change_nothing_of_the_output(large: Path, command: str) -> None:
    ours, its = os.pipe()
    job = """"$@"; echo "stopped: $?" >&2; read -r _; fg >/dev/null"""
    shell = ["sh", "-mc", job, "sh", *COMMAND, *arguments_of(arguments(command, large))]
    with terminal_of(shell, stdout=its) as screen:
        os.close(its)
        found = os.read(ours, 100)
        screen.type(b"\x1a")
        screen.shows(f"stopped: {128 + signal.SIGTSTP}")
        screen.press("\n")
        assert found + read_all(ours) == b"".join(value + b"\n" for value in VALUES)
        assert screen.wait() == 0


def test_records_that_the_disk_cannot_hold_are_not_committed(large: Path) -> None:
    with open("/dev/full", "wb") as full, start(*arguments("read", large), stdout=full) as tool:
        assert tool.wait(HUNG_SECONDS) == 1
        assert b"No space left on device" in tool.stderr.read()
    assert jlog.Journal(large).subscribers()["billing"].sequence == 0


def test_a_reader_that_has_seen_enough_ends_it_quietly(large: Path) -> None:
    with start("dump", large, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as tool:
        tool.stdout.read(1)
        tool.stdout.close()
        assert tool.wait(HUNG_SECONDS) == 0
        assert tool.stderr.read() == b""
