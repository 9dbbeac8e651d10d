"""`--pace` of dump and tail."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.command import HUNG_SECONDS, do, run, start

if TYPE_CHECKING:
    from pathlib import Path

NEVER_US = 1 << 60

paced = pytest.mark.parametrize("command", [["dump"], ["tail"], ["tail", "-f"]], ids=" ".join)


@pytest.fixture
def slow(journal: Path) -> Path:
    """The values b"0" to b"4", a tenth of a second apart."""
    with jlog.Writer(journal) as writer:
        writer.extend([b"%d" % n for n in range(5)], timestamps_us=[n * 100_000 for n in range(5)])
    return journal


@pytest.mark.parametrize("command", ["dump", "tail"])
def test_records_are_printed_when_they_are_due_and_not_before(slow: Path, command: str) -> None:
    began = time.monotonic()
    assert do(command, "--pace", 0.5, slow).out == b"0\n1\n2\n3\n4\n"
    assert time.monotonic() - began >= 0.8


def test_it_goes_together_with_what_selects_and_formats(slow: Path) -> None:
    found = do("dump", "--pace", 100, "--from", 1, "--limit", 2, "--json", slow).json_lines
    assert [record["value"] for record in found] == ["1", "2"]
    assert do("dump", "--pace", 100, "--grep", "[24]", slow).out == b"2\n4\n"
    assert do("tail", "-n", 2, "--pace", 100, slow).out == b"3\n4\n"


def test_following_at_a_pace_goes_on_with_what_is_appended(slow: Path) -> None:
    with start("tail", "-f", "-n", 1, "--pace", 100, slow) as tool:
        assert tool.stdout.readline() == b"4\n"
        with jlog.Writer(slow) as writer:
            writer.append(b"more", timestamp_us=500_000)
        assert tool.stdout.readline() == b"more\n"
        tool.terminate()


@pytest.fixture
def endless(journal: Path) -> Path:
    with jlog.Writer(journal) as writer:
        writer.extend([b"now", b"never"], timestamps_us=[0, NEVER_US])
    return journal


@paced
def test_ctrl_c_works_while_nothing_is_due(endless: Path, command: list[str]) -> None:
    with start(*command, "--pace", 1, endless) as tool:
        assert tool.stdout.readline() == b"now\n"
        tool.send_signal(signal.SIGINT)
        assert tool.wait(HUNG_SECONDS) == 130
        assert tool.stderr.read() == b""


@paced
def test_it_ends_when_nobody_reads_any_more_while_nothing_is_due(endless: Path, command: list[str]) -> None:
    with start(*command, "--pace", 1, endless) as tool:
        assert tool.stdout.readline() == b"now\n"
        tool.stdout.close()
        assert tool.wait(HUNG_SECONDS) == 0
        assert tool.stderr.read() == b""


@paced
@pytest.mark.parametrize("factor", ["0", "-1", "nan", "inf", "fast"])
def test_a_factor_is_a_number_above_0(slow: Path, command: list[str], factor: str) -> None:
    result = run(*command, "--pace", factor, slow)
    assert result.code == 2
    assert "above 0" in result.err


@pytest.mark.parametrize("other", ["--reverse", "--blocks"])
def test_it_does_not_go_together_with(slow: Path, other: str) -> None:
    result = run("dump", "--pace", 1, other, slow)
    assert result.code == 2
    assert "do not go together" in result.err
