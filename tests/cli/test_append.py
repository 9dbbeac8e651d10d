"""`jlogtool append`."""

from __future__ import annotations

import os
import shlex
import signal
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

import jlog
from behaviour.journals import values
from cli.command import COMMAND, HUNG_SECONDS, do, run, start
from cli.terminal import terminal
from crash.tampering import newest_segment, zero
from filesystems import CannotMount, mounted

if TYPE_CHECKING:
    from pathlib import Path

# An empty line, bytes that are not UTF-8, a carriage return, a NUL, a line longer than what is read at once.
LINES = [b"first", b"", b"\xff\xfe", b"with return\r", b"\x00", b"long" * 600_000, b"last"]


def framed(records: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(record)) + record for record in records)


def test_a_line_keeps_every_byte_but_its_newline(journal: Path) -> None:
    do("append", journal, stdin=b"\n".join(LINES) + b"\n")
    assert values(journal) == LINES


def test_the_last_line_needs_no_newline(journal: Path) -> None:
    do("append", journal, stdin=b"one\ntwo")
    assert values(journal) == [b"one", b"two"]


def test_the_last_line_of_a_file_does_not_run_into_the_next_file(journal: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\ntwo")
    (tmp_path / "b").write_bytes(b"three\n")
    do("append", journal, tmp_path / "a", "-", tmp_path / "b", stdin=b"stdin")
    assert values(journal) == [b"one", b"two", b"stdin", b"three"]


def test_length32_takes_any_bytes(journal: Path) -> None:
    records = [b"", b"\n", b"\x00" * 5, b"a\nb", b"long" * 600_000]
    do("append", journal, "--framing", "length32", stdin=framed(records))
    assert values(journal) == records


def test_json_gives_the_first_sequence_and_the_number_of_records(journal: Path) -> None:
    assert do("append", "--json", journal, stdin=b"a\nb\n").json == {"first_sequence": 0, "records": 2}
    assert do("append", "--json", journal, stdin=b"c\n").json == {"first_sequence": 2, "records": 1}


def test_no_input_appends_nothing(journal: Path) -> None:
    do("append", journal, stdin=b"a\n")
    assert do("append", "--json", journal).json == {"first_sequence": 1, "records": 0}
    assert values(journal) == [b"a"]


@pytest.mark.parametrize("precommit", ["0", "4K", "1MiB", "65536"])
def test_every_size_of_the_buffer_keeps_every_record(journal: Path, precommit: str) -> None:
    lines = [b"line %d" % number for number in range(5000)]
    do("append", journal, "--precommit", precommit, stdin=b"\n".join(lines))
    assert values(journal) == lines


@pytest.mark.parametrize("framing", ["lines", "length32"])
def test_records_from_a_slow_pipe_are_readable_at_once(journal: Path, framing: str) -> None:
    do("create", journal)
    with start("append", journal, "--framing", framing) as tool, jlog.Reader(journal) as reader:
        for value in (b"first", b"second"):
            tool.stdin.write(value + b"\n" if framing == "lines" else framed([value]))
            assert reader.read(timeout=HUNG_SECONDS).values() == [value]
        tool.stdin.close()
        assert tool.wait(HUNG_SECONDS) == 0


def test_half_a_line_waits_for_its_other_half(journal: Path) -> None:
    do("create", journal)
    with start("append", journal) as tool, jlog.Reader(journal) as reader:
        tool.stdin.write(b"whole\nha")
        assert reader.read(timeout=HUNG_SECONDS).values() == [b"whole"]
        tool.stdin.write(b"lf\n")
        assert reader.read(timeout=HUNG_SECONDS).values() == [b"half"]
        tool.stdin.close()


def test_length32_that_ends_within_a_record_keeps_those_before(journal: Path) -> None:
    """The command fails."""
    result = run("append", journal, "--framing", "length32", stdin=framed([b"whole", b"torn"])[:-1])
    assert result.code == 1
    assert "ends in the middle of a record" in result.err
    assert values(journal) == [b"whole"]


def test_an_impossible_length_is_refused_and_not_waited_for(journal: Path) -> None:
    with start("append", journal, "--framing", "length32") as tool:
        tool.stdin.write(framed([b"before"]) + struct.pack("<I", (1 << 30) + 1))
        assert tool.wait(HUNG_SECONDS) == 1
        assert tool.stderr.read().count(b"\n") == 1
    assert values(journal) == [b"before"]


def test_a_full_disk_fails_with_the_number_of_records_that_are_appended(tmp_path: Path) -> None:
    lines = b"".join(b"%0100d\n" % number for number in range(40_000))
    try:
        with mounted("tmpfs", 2) as small:
            result = run("append", "--segment-bytes", "1M", small / "journal", stdin=lines)
            held = len(jlog.Journal(small / "journal"))
    except CannotMount as error:
        pytest.skip(str(error))
    assert result.code == 1
    assert "No space left on device" in result.err
    assert f"{held:,} records of the input were appended before the error" in result.err


@pytest.mark.damage
def test_damage_that_an_append_meets_is_told_by_the_exit_code(journal: Path) -> None:
    do("create", "--segment-bytes", "4K", journal)
    with start("append", journal) as tool, jlog.Reader(journal) as reader:
        tool.stdin.write(b"one\n")
        reader.read(timeout=HUNG_SECONDS)
        zero(newest_segment(journal), 0, 64)
        tool.stdin.write(b"%0100d\n" % 0 * 1000)
        tool.stdin.close()
        assert tool.wait(HUNG_SECONDS) == 3
        assert b"1 records of the input were appended before the error" in tool.stderr.read()


def test_interrupted_it_keeps_what_it_has_appended(journal: Path) -> None:
    """It ends quietly."""
    do("create", journal)
    with start("append", journal) as tool, jlog.Reader(journal) as reader:
        tool.stdin.write(b"one\n")
        reader.read(timeout=HUNG_SECONDS)
        tool.send_signal(signal.SIGINT)
        assert tool.wait(HUNG_SECONDS) == 130
        assert tool.stderr.read() == b""
    assert values(journal) == [b"one"]


def test_a_file_that_cannot_be_read_makes_no_journal(journal: Path, tmp_path: Path) -> None:
    result = run("append", journal, tmp_path / "missing")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "missing does not exist; name a file" in result.err
    assert not journal.exists()


def test_a_value_that_the_writer_refuses_is_an_error_of_usage(journal: Path) -> None:
    assert run("append", journal, "--precommit", "5").code == 2
    assert run("append", journal, "--precommit", "many").code == 2
    assert run("append", journal, "--compression", "zip").code == 2


def test_a_directory_is_not_an_input_and_makes_no_journal(journal: Path, tmp_path: Path) -> None:
    result = run("append", journal, tmp_path)
    assert (result.code, result.err) == (1, f"jlogtool: {tmp_path}: Is a directory\n")
    assert not journal.exists()


def test_a_stdin_that_the_caller_has_closed_is_one_line_and_1(journal: Path) -> None:
    """And not whatever file has got its number since."""
    line = shlex.join([*COMMAND, "append", str(journal)])
    done = subprocess.run(["sh", "-c", f"{line} <&-"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "jlogtool: stdin: Bad file descriptor\n")
    assert not journal.exists()


def test_a_pipe_that_does_not_block_is_waited_for(journal: Path) -> None:
    do("create", journal)
    its, ours = os.pipe()
    os.set_blocking(its, False)
    with start("append", journal, stdin=its) as tool, jlog.Reader(journal) as reader:
        os.close(its)
        for value in (b"first", b"second"):
            os.write(ours, value + b"\n")
            assert reader.read(timeout=HUNG_SECONDS).values() == [value]
        os.close(ours)
        assert tool.wait(HUNG_SECONDS) == 0


def test_at_a_terminal_it_says_what_it_waits_for(journal: Path, tmp_path: Path) -> None:
    with terminal("append", journal) as shown:
        shown.shows("jlogtool: reads lines from the terminal; Ctrl-D ends")
        shown.type(b"typed\n\x04")
        assert shown.wait() == 0
    assert do("dump", journal).lines == [b"typed"]
    with open(tmp_path / "errors", "wb") as errors, terminal("append", journal, stderr=errors) as shown:
        shown.type(b"\x04")
        assert shown.wait() == 0
    assert (tmp_path / "errors").read_bytes() == b""
