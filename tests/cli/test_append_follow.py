"""`jlogtool append --follow`: a log file through its rotations, and through kills of the program that ships it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import jlog
from behaviour.journals import values
from cli.command import HUNG_SECONDS, run, start
from jlog.cli.records import log_file
from jlog.cli.records.log_file import LogFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Step = Callable[[], list[bytes]]

LOGROTATE = shutil.which("logrotate", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
WAYS = {"rename": "create", "copytruncate": "copytruncate", "dated": "create\ndateext\ndateformat -%Y%m%d-%s"}


@pytest.fixture
def log(tmp_path: Path, journal: Path) -> Path:
    jlog.Journal.create(journal)
    directory = tmp_path / "log"
    directory.mkdir(mode=0o755)
    return directory / "app.log"


def wait_for(journal: Path, records: int) -> None:
    """Waits until the journal has so many records."""
    with jlog.Reader(journal) as reader:
        for record in reader.follow(timeout=HUNG_SECONDS):
            if record.sequence + 1 >= records:
                return


@contextmanager
def shipping(journal: Path, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the command, and kills it in the end."""
    with start("append", journal, "--follow", log, *options) as tool:
        try:
            yield tool
        finally:
            tool.kill()


def write(log: Path, first: int, ends: bytes = b"\n") -> list[bytes]:
    lines = [b"line %d of the program" % number for number in range(first, first + 10)]
    with open(log, "ab") as file:
        file.write(b"\n".join(lines) + ends)
    return lines


def rotate(log: Path, way: str) -> list[bytes]:
    assert LOGROTATE is not None
    config = log.parent.parent / "logrotate.conf"
    config.write_text(f'"{log}" {{\nrotate 9\nnocompress\n{WAYS[way]}\n}}\n')
    config.chmod(0o644)
    subprocess.run([LOGROTATE, "-f", "-s", str(log.parent.parent / "status"), str(config)], check=True, capture_output=True)
    return []


def steps_of(log: Path, way: str) -> list[Step]:
    return [
        lambda: write(log, 0),
        lambda: rotate(log, way),
        lambda: write(log, 10),
        lambda: write(log, 20),
        lambda: rotate(log, way),
        lambda: write(log, 30),
    ]


@pytest.mark.parametrize("killed_from", range(1, 6))
@pytest.mark.parametrize("way", WAYS)
def test_every_line_comes_once_through_rotations_and_a_kill_before_each_step(
    journal: Path, log: Path, way: str, killed_from: int
) -> None:
    """It is dead during two steps, and finds afterwards the lines that were written and rotated meanwhile."""
    if LOGROTATE is None:
        pytest.skip("needs logrotate: apt-get install logrotate")
    steps, expected = steps_of(log, way), []
    with shipping(journal, log):
        for step in steps[:killed_from]:
            expected += step()
            wait_for(journal, len(expected)) if expected else None
    for step in steps[killed_from : killed_from + 2]:
        expected += step()
    with shipping(journal, log):
        wait_for(journal, len(expected))
        for step in steps[killed_from + 2 :]:
            expected += step()
            wait_for(journal, len(expected))
    assert values(journal) == expected


def test_a_file_that_was_deleted_and_created_is_read_from_its_beginning(journal: Path, log: Path) -> None:
    expected = write(log, 0)
    with shipping(journal, log):
        wait_for(journal, 10)
        log.unlink()
        expected += write(log, 10)
        wait_for(journal, 20)
    log.unlink()
    expected += write(log, 20)
    with shipping(journal, log) as tool:
        wait_for(journal, 30)
        tool.terminate()
        assert tool.wait(HUNG_SECONDS) == 0
        assert b"is neither in this file nor in one that it was rotated to" in tool.stderr.read()
    assert values(journal) == expected


def test_a_last_line_without_a_newline_counts_once_the_file_was_rotated_away(journal: Path, log: Path) -> None:
    expected = write(log, 0, ends=b"\nunfinished")
    with shipping(journal, log):
        wait_for(journal, 10)
        log.rename(f"{log}.1")
        expected += [b"unfinished", *write(log, 10)]
        wait_for(journal, 21)
    assert values(journal) == expected


def test_a_kill_at_any_moment_of_a_long_file_leaves_each_line_once(journal: Path, log: Path) -> None:
    lines = [b"%d " % number + b"x" * 200 for number in range(100_000)]
    log.write_bytes(b"\n".join(lines) + b"\n")
    for wanted in range(10_000, 100_001, 15_000):
        with shipping(journal, log):
            wait_for(journal, wanted)
    with shipping(journal, log):
        wait_for(journal, len(lines))
    assert values(journal) == lines


def drained(file: LogFile) -> list[bytes]:
    found: list[bytes] = []
    while (lines := file.next()) is not None:
        found += lines.values
    return found


def test_rotations_while_an_old_file_is_read_leave_out_no_file(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "QUIET_SECONDS", 0)
    monkeypatch.setattr(log_file, "PIECE_BYTES", 1 << 10)
    written: list[bytes] = []

    def rotate_to(number: int) -> None:
        for old in range(number, -1, -1):
            name = log.with_name(f"{log.name}.{old}") if old else log
            if name.exists():
                name.rename(log.with_name(f"{log.name}.{old + 1}"))
        lines = [b"%d of file %d" % (line, number) for line in range(200)]
        log.write_bytes(b"\n".join(lines) + b"\n")
        os.utime(log, (number, number))
        written.extend(lines)

    rotate_to(0)
    file = LogFile(str(log), None, print)
    file.next()
    first = file.next()
    assert first is not None
    found = list(first.values)
    rotate_to(1)  # the file that is open becomes .1, and then .2
    rotate_to(2)
    found += drained(file)
    file.close()
    for number in (3, 4, 5):
        rotate_to(number)
    file = LogFile(str(log), file._place, print)
    begun = file.next()
    assert begun is not None
    found += begun.values
    rotate_to(6)  # the files that were found at the start have other names
    found += drained(file)
    file.close()
    assert found == written


def test_a_file_that_comes_later_is_waited_for(journal: Path, log: Path) -> None:
    with shipping(journal, log) as tool:
        assert b"does not exist yet; waiting for it" in tool.stderr.readline()
        expected = write(log, 0)
        wait_for(journal, 10)
    assert values(journal) == expected


def test_lines_keep_their_own_time_also_after_a_restart(journal: Path, log: Path) -> None:
    log.write_bytes(b"2026-11-20T12:00:00Z first\n  of a stack trace\n")
    with shipping(journal, log, "--time-regex", r"^\S+T\S+"):
        wait_for(journal, 2)
    with open(log, "ab") as file:
        file.write(b"  its end\n2026-11-20T12:00:01Z second\n")
    with shipping(journal, log, "--time-regex", r"^\S+T\S+"):
        wait_for(journal, 4)
    with jlog.Reader(journal) as reader:
        assert [record.timestamp.isoformat()[11:19] for record in reader] == ["12:00:00"] * 3 + ["12:00:01"]


@pytest.mark.parametrize("arguments", [[], ["-"], ["a", "b"], ["a", "--format", "jsonl"], ["a", "--framing", "length32"]])
def test_it_follows_one_file_of_lines(journal: Path, arguments: list[str]) -> None:
    assert run("append", journal, "--follow", *arguments).code == 2
