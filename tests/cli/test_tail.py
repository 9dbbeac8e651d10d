"""`jlogtool tail`."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import jlog
from cli.command import HUNG_SECONDS, do, run, start
from jlog.cli.records.past_damage import sequence_before

if TYPE_CHECKING:
    from pathlib import Path


def test_it_prints_the_last_ten(numbers: Path) -> None:
    assert do("tail", numbers).lines == [b"%d" % number for number in range(90, 100)]


def test_n_is_how_many(numbers: Path) -> None:
    assert do("tail", "-n", 2, numbers).lines == [b"98", b"99"]
    assert do("tail", "-n", 0, numbers).lines == []
    assert len(do("tail", "-n", 1000, numbers).lines) == 100


def test_n_counts_no_number_that_was_never_given_out() -> None:
    gaps = [(10, 100), (105, 200)]
    assert sequence_before(203, 3, gaps) == 200
    assert sequence_before(203, 4, gaps) == 104
    assert sequence_before(203, 8, gaps) == 100
    assert sequence_before(203, 9, gaps) == 9


def test_a_start_beyond_the_end_is_told_as_dump_tells_it(numbers: Path) -> None:
    assert do("tail", "--from", 100, numbers).lines == []
    for command in ("tail", "dump"):
        found = run(command, "--from", 101, numbers)
        assert (found.code, found.out) == (2, b"")
        assert f"{numbers} ends at sequence 100; 101 is beyond it" in found.err


def test_n_counts_what_grep_finds(numbers: Path) -> None:
    assert do("tail", "-n", 2, "--grep", "1$", numbers).lines == [b"81", b"91"]
    assert do("tail", "-n", 50, "--grep", "^[34]$", numbers).lines == [b"3", b"4"]
    assert do("tail", "-n", 1, "--grep", "9", "-v", numbers).lines == [b"88"]
    assert do("tail", "-n", 0, "--grep", "9", numbers).lines == []


def test_following_it_prints_what_grep_finds(numbers: Path) -> None:
    with start("tail", "-f", "-n", 1, "--grep", "^99|^new", numbers) as tool:
        assert tool.stdout.readline() == b"99\n"
        do("append", numbers, stdin=b"old\nnew\nnot new\nnewer\n")
        assert tool.stdout.readline() == b"new\n"
        assert tool.stdout.readline() == b"newer\n"
        tool.terminate()


def test_it_has_the_formats_of_dump(numbers: Path) -> None:
    (record,) = do("tail", "-n", 1, "--json", numbers).json_lines
    assert (record["sequence"], record["value"]) == (99, "99")
    assert do("tail", "-n", 1, "--framing", "length32", numbers).out == b"\x02\x00\x00\x0099"
    assert run("tail", "--json", "--framing", "length32", numbers).code == 2


def test_following_it_sees_what_another_process_appends(numbers: Path) -> None:
    with start("tail", "-f", "-n", 1, numbers) as tool:
        assert tool.stdout.readline() == b"99\n"
        for value in (b"new", b"newer"):
            do("append", numbers, stdin=value)
            assert tool.stdout.readline() == value + b"\n"
        tool.send_signal(signal.SIGINT)
        assert tool.wait(HUNG_SECONDS) == 130
        assert tool.stderr.read() == b""


def test_following_it_sees_a_record_in_the_buffer_at_once(numbers: Path) -> None:
    with jlog.Writer(numbers) as writer, start("tail", "-f", "-n", 1, numbers) as tool:
        assert tool.stdout.readline() == b"99\n"
        writer.append(b"now")
        assert tool.stdout.readline() == b"now\n"
        tool.terminate()


def test_following_it_ends_when_nobody_reads_any_more(numbers: Path) -> None:
    """Without a record that it could fail to write."""
    with start("tail", "-f", numbers) as tool:
        tool.stdout.readline()
        tool.stdout.close()
        assert tool.wait(HUNG_SECONDS) == 0
        assert tool.stderr.read() == b""


def test_it_holds_nothing_back(numbers: Path) -> None:
    with start("tail", "-f", numbers) as tool:
        tool.stdout.readline()
        assert jlog.Journal(numbers).subscribers() == {}
        assert os.listdir(numbers / "subscribers") == []
        tool.terminate()
