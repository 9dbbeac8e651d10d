"""`jlogtool append --follow`: a log file through its rotations, and through kills of the program that ships it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

import jlog
from behaviour.journals import values
from cli.command import HUNG_SECONDS, run
from cli.shipping import LOGROTATE, add, later_than, shipping, texts, wait_for, wait_for_place
from jlog.cli.records import growing_file, log_file
from jlog.cli.records.log_file import LogFile
from jlog.positions.log_place import LogPlace
from jlog.storage.attaching import hold_as_follower

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Step = Callable[[], list[bytes]]

WAYS = {"rename": "create", "copytruncate": "copytruncate", "dated": "create\ndateext\ndateformat -%Y%m%d-%s"}


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


@pytest.mark.parametrize(
    "mode",
    [
        "create",
        "copytruncate",
        "create\ncompress",
        "create\ncompress\ndelaycompress",
        "copytruncate\ncompress\ndelaycompress",
        "create\ndateext\ndateformat -%Y%m%d-%s",
        "nocreate\nextension .log",
        "create\nolddir old\ncreateolddir",
        "copytruncate\nolddir old\ncreateolddir",
    ],
)
def test_each_line_comes_once_in_each_mode_of_logrotate_while_it_runs(journal: Path, log: Path, mode: str) -> None:
    if LOGROTATE is None:
        pytest.skip("needs logrotate: apt-get install logrotate")
    (log.parent / "old").mkdir()
    config = log.parent.parent / "logrotate.conf"
    config.write_text(f'"{log}" {{\nrotate 3\n{mode}\n}}\n')
    config.chmod(0o644)
    with shipping(journal, log) as tool:
        for number in range(5):
            add(log, f"{number}\n{number}, more\n")
            wait_for(journal, 2 * number + 2)
            later_than(log)
            subprocess.run([LOGROTATE, "-f", "-s", f"{config}.state", config], check=True, capture_output=True)
        tool.terminate()
        assert tool.wait(HUNG_SECONDS) == 0
        told = tool.stderr.read().decode()
    assert texts(journal) == [line for number in range(5) for line in (f"{number}", f"{number}, more")]
    assert "left out" not in told


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
    monkeypatch.setattr(growing_file, "PIECE_BYTES", 1 << 10)
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
    file = LogFile(str(log), file._series.place(), print)
    begun = file.next()
    assert begun is not None
    found += begun.values
    rotate_to(6)  # the files that were found at the start have other names
    found += drained(file)
    file.close()
    assert found == written


def put(log: Path, name: str, changed: int) -> list[bytes]:
    """A rotated file."""
    lines = [b"%d of %s" % (number, name.encode()) for number in range(3)]
    log.with_name(name).write_bytes(b"\n".join(lines) + b"\n")
    os.utime(log.with_name(name), (changed, changed))
    return lines


def resumed(log: Path, place: LogPlace) -> list[bytes]:
    file = LogFile(str(log), LogPlace.from_bytes(place.to_bytes()), print)
    found = drained(file)
    file.close()
    return found


def begun(log: Path) -> LogPlace:
    """The place that is stored before the first line."""
    file = LogFile(str(log), None, print)
    first = file.next()
    file.close()
    assert first is not None
    assert first.after.files[-1].offset == 0
    return first.after


def copytruncate(log: Path) -> None:
    if log.with_name(f"{log.name}.1").exists():
        log.with_name(f"{log.name}.1").rename(f"{log}.2")
    shutil.copy(log, f"{log}.1")
    os.truncate(log, 0)


@pytest.mark.parametrize(
    ("names", "step"),
    [
        (["app.log.10", "app.log.9", "app.log.1", "app.log"], 0),
        (["app-1.log", "app-2.log", "app-10.log", "app.log"], 0),
        (["app.log-20261125", "app.log-20261126-3", "app.log-20261126-20", "app.log"], 0),
        (["app-2026-11-25.log", "app-2026-11-26.log", "app.log"], 0),
        (["app-2026-11-25.log", "app-2026-11-26.log", "app.log"], -1),  # restored from a backup, the newest first
    ],
)
def test_files_of_one_time_of_change_have_the_order_of_their_names(
    log: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], step: int
) -> None:
    monkeypatch.setattr(log_file, "QUIET_SECONDS", 0)
    lines = put(log, names[0], 1_000)
    log.with_name(names[0]).rename(log)
    place = begun(log)
    log.rename(log.with_name(names[0]))
    for number, name in enumerate(names[1:], 1):
        lines += put(log, name, 1_100 + step * number)
    assert resumed(log, place) == lines


@pytest.mark.parametrize("rotations", [0, 1, 2])
@pytest.mark.parametrize("content", [b"", b"first\n"])
@pytest.mark.parametrize("older", [False, True])
def test_lines_that_copytruncate_moved_before_the_first_was_stored_are_read(
    log: Path, monkeypatch: pytest.MonkeyPatch, rotations: int, content: bytes, older: bool
) -> None:
    monkeypatch.setattr(log_file, "QUIET_SECONDS", 0)
    log.write_bytes(content)
    if older:
        put(log, "app.log.1", 1_000)
    place = begun(log)
    lines = content.splitlines()
    for number in range(rotations):
        lines += write(log, 10 * number)
        copytruncate(log)
    lines += write(log, 100)
    assert resumed(log, place) == lines


def test_a_copy_of_the_file_is_not_read_beside_it(log: Path) -> None:
    expected = write(log, 0)
    place = begun(log)
    shutil.copy(log, f"{log}.bak")
    assert resumed(log, place) == expected


def test_what_was_rotated_after_a_file_that_is_compressed_now_is_read(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "QUIET_SECONDS", 0)
    write(log, 0)
    file = LogFile(str(log), None, print)
    assert len(drained(file)) == 10
    place = file._series.place()
    file.close()
    log.unlink()
    expected = write(log, 10)
    log.rename(f"{log}.1")
    expected += write(log, 20)
    assert resumed(log, place) == expected


@pytest.mark.parametrize("name", ["app-old.log", "app.1", "kept"])
def test_a_file_that_was_given_any_name_in_its_directory_is_read_to_its_end(
    log: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(log_file, "QUIET_SECONDS", 0)
    place, expected = read_so_far(log)
    expected += write(log, 10)
    log.rename(log.with_name(name))
    expected += write(log, 20)
    assert resumed(log, place) == expected[10:]


@pytest.mark.parametrize("repointed", [False, True])
def test_the_file_behind_a_symbolic_link_is_read_through_its_rotations(
    log: Path, monkeypatch: pytest.MonkeyPatch, repointed: bool
) -> None:
    monkeypatch.setattr(log_file, "QUIET_SECONDS", 0)
    link = log.parent.parent / "current"
    link.symlink_to(log)
    place, expected = read_so_far(log, link)
    expected += write(log, 10)
    if repointed:
        link.unlink()
        link.symlink_to(log.with_name("other.log"))
    else:
        log.rename(f"{log}.1")
    expected += write(link, 20)
    assert resumed(link, place) == expected[10:]


def read_so_far(log: Path, path: Path | None = None) -> tuple[LogPlace, list[bytes]]:
    lines = write(log, 0)
    file = LogFile(str(path or log), None, print)
    assert drained(file) == lines
    file.close()
    return file._series.place(), lines


@pytest.mark.parametrize("reads", range(1, 9))
def test_a_file_that_is_truncated_between_two_reads_is_read_once(
    log: Path, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    monkeypatch.setattr(log_file, "QUIET_SECONDS", 0)
    place, expected = read_so_far(log)
    expected += write(log, 10)
    pread, left = os.pread, reads

    def truncating(fd: int, size: int, offset: int) -> bytes:
        nonlocal left
        left -= 1
        found = pread(fd, size, offset)
        if left == 0:
            copytruncate(log)
        return found

    monkeypatch.setattr(os, "pread", truncating)
    file = LogFile(str(log), place, print)
    found = drained(file)
    expected += write(log, 20)
    for _ in range(3):  # where it finds another file, next() returns None once
        found += drained(file)
    file.close()
    assert found == expected[10:]


def test_a_second_program_that_follows_the_file_is_refused(journal: Path, log: Path) -> None:
    expected = write(log, 0)
    with shipping(journal, log):
        wait_for(journal, 10)
        result = run("append", journal, "--follow", log)
        assert (result.code, "another `jlogtool append --follow` of this file (PID " in result.err) == (1, True)
        other = log.with_name("other.log")
        expected += write(other, 10)
        with shipping(journal, other):
            wait_for(journal, 20)
    with shipping(journal, log):
        expected += write(log, 20)
        wait_for(journal, 30)
    assert values(journal) == expected


def test_two_files_whose_paths_have_one_crc_are_followed_at_a_time(journal: Path) -> None:
    jlog.Journal.create(journal)
    keys = b"jlog.follow:/plumless", b"jlog.follow:/buckeroo"
    assert crc32(keys[0]) == crc32(keys[1])
    with closing(hold_as_follower(str(journal), keys[0])), closing(hold_as_follower(str(journal), keys[1])):
        pass


def test_only_plain_files_are_read(journal: Path, log: Path) -> None:
    expected = write(log, 0)
    os.mkfifo(f"{log}.1")
    log.with_name("app.log.2").mkdir()
    with shipping(journal, log):
        wait_for(journal, 10)
    assert values(journal) == expected
    assert "it is not a regular file" in run("append", journal, "--follow", f"{log}.1").err


def test_a_kill_between_the_first_place_and_the_first_line_loses_no_line(journal: Path, log: Path) -> None:
    log.touch()
    with shipping(journal, log):
        wait_for_place(journal)
    expected = write(log, 0)
    copytruncate(log)
    expected += write(log, 10)
    with shipping(journal, log):
        wait_for(journal, 20)
    assert values(journal) == expected


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
