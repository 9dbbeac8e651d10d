"""`jlogtool append --follow`: which files are of the log, and in which order they are read."""

from __future__ import annotations

import gzip
import json
import logging
import os
import shutil
import time
import zlib
from logging.handlers import RotatingFileHandler, TimedRotatingFileHandler
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jlog
from cli.shipping import add, drained_texts, later_than, shipped, shipping, texts, wait_for, wait_for_place, wait_until
from jlog.cli.records import log_file
from jlog.cli.records.candidates import candidates
from jlog.cli.records.log_file import LogFile
from jlog.cli.records.rotated_names import NameKind, names_beside
from jlog.metrics import exposition
from jlog.positions.log_place import LogPlace

if TYPE_CHECKING:
    from collections.abc import Iterator


NAMES = {
    "logrotate": ("app.log.2", "app.log.1"),
    "pm2": ("app__2026-11-28_01-00-00.log", "app__2026-11-28_02-00-00.log"),
    "ISO": ("app.log.2026-11-28T01:00:00Z", "app.log.2026-11-28T02:00:00Z"),
    "offset": ("app.log.2026-11-28T01:00:00+0100", "app.log.2026-11-28T02:00:00+0100"),
    "lumberjack": ("app-2026-11-28T01-00-00.000.log", "app-2026-11-28T02-00-00.000.log"),
    "loguru": ("app.2026-11-28_01-00-00_123456.log", "app.2026-11-28_02-00-00_123456.log"),
    "log4j": ("app.log.Nov-27-2026", "app.log.Nov-28-2026"),
    "months across a year": ("app.log.Dec-31-2026", "app.log.Jan-01-2027"),
    "text": ("app.log-2.txt", "app.log-1.txt"),
    "winston": ("app1.log", "app2.log"),
    "old": ("app.log.1.old", "app.log.old"),
    "before": ("old-app2.log", "old-app1.log"),
    "week": ("app.log.2026-W47", "app.log.2026-W48"),
    "upwards": ("app.log.1", "app.log.2"),
    "month first": ("app.log-12-31-2026", "app.log-01-01-2027"),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_files_that_were_rotated_twice_while_it_was_dead_are_read_whatever_their_names_are(
    journal: Path, log: Path, names: tuple[str, str]
) -> None:
    add(log, "1\n")
    shipped(journal, log, 1)
    for number, name in enumerate(names, 2):
        add(log, f"{number}\n")
        log.rename(log.with_name(name))
        later_than(log.with_name(name))
    add(log, "4\n")
    assert (shipped(journal, log, 4), texts(journal)) == ("", ["1", "2", "3", "4"])


def test_an_old_file_that_was_written_to_last_keeps_its_place_in_the_order(journal: Path, log: Path) -> None:
    add(log, "1\n")
    shipped(journal, log, 1)
    log.rename(f"{log}.3")
    for number in (2, 3):
        add(log, f"{number}\n")
        later_than(log)
        log.rename(f"{log}.{4 - number}")
    add(log, "4\n")
    later_than(log)
    add(log.with_name("app.log.2"), "2, late\n")
    later_than(log.with_name("app.log.2"))
    add(log.with_name("app.log.3"), "1, late\n")
    shipped(journal, log, 6)
    assert texts(journal) == ["1", "1, late", "2", "2, late", "3", "4"]


def test_a_file_that_begins_as_a_short_one_before_it_is_read(journal: Path, log: Path) -> None:
    def rotate() -> None:
        for number in (3, 2, 1):
            if (name := log.with_name(f"app.log.{number}")).exists():
                name.rename(f"{log}.{number + 1}")
        log.rename(f"{log}.1")

    add(log, "#header\n")
    with shipping(journal, log):
        wait_for(journal, 1)
        rotate()
        add(log, "#header\nA1\n")
        wait_for(journal, 3)
    add(log, "A2\n")
    rotate()
    add(log, "#header\nB1\nB2\n")
    rotate()
    second = log.with_name("app.log.2")
    later_than(second)
    os.utime(second, ns=(time.time_ns(), time.time_ns()))
    changed_ns = second.stat().st_mtime_ns
    with open(second, "rb") as plain, gzip.open(f"{second}.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    os.utime(f"{second}.gz", ns=(changed_ns, changed_ns))
    second.unlink()
    add(log, "#header\nC1\n")
    told = shipped(journal, log, 8)
    assert texts(journal) == ["#header", "#header", "A1", "#header", "B1", "B2", "#header", "C1"]
    assert "app.log.2.gz is left out: it was compressed while this program did not run" in told


def test_files_with_nothing_but_one_header_are_all_read(journal: Path, log: Path) -> None:
    add(log, "#header\n")
    shipped(journal, log, 1)
    for number in (3, 2, 1):
        log.rename(f"{log}.{number}")
        later_than(log.with_name(f"app.log.{number}"))
        add(log, "#header\n")
    shipped(journal, log, 4)
    assert texts(journal) == ["#header"] * 4


@pytest.mark.parametrize("running", [False, True])
def test_a_link_that_moves_on_by_the_day_leaves_out_no_day(journal: Path, log: Path, running: bool) -> None:
    link = log.with_name("current.log")
    days = [log.with_name(f"app-2026-11-{day}.log") for day in (27, 28, 29, 30)]
    add(log.with_name("app-2026-11-26.log"), "of a day before\n")
    add(log.with_name("app-error-2026-11-26.log"), "of another log\n")

    def begin(number: int) -> None:
        add(days[number], f"{number}\n")
        later_than(days[number])
        link.unlink(missing_ok=True)
        link.symlink_to(days[number].name)

    begin(0)
    with shipping(journal, link):
        wait_for(journal, 1)
        if running:
            for number in (1, 2, 3):
                begin(number)
            wait_for(journal, 4)
    for number in (1, 2, 3):
        begin(number) if not running else None
    add(link, "the last\n")
    told = shipped(journal, link, 5)
    assert (told, texts(journal)) == ("", ["0", "1", "2", "3", "the last"])


@pytest.mark.parametrize("running", [False, True])
def test_the_files_behind_the_links_of_kubernetes_are_read_through_rotations_and_restarts(
    journal: Path, log: Path, running: bool
) -> None:
    """/var/log/containers/… leads to /var/log/pods/…/0.log, which the kubelet renames; a new container writes 1.log."""
    pod = log.parent / "pods" / "default_web_uid" / "web"
    pod.mkdir(parents=True)
    link = log.with_name("web.log")

    def rotate(number: int, time: str) -> None:
        later_than(pod / f"{number}.log")
        (pod / f"{number}.log").rename(pod / f"{number}.log.{time}")

    def restart(number: int) -> None:
        add(pod / f"{number}.log", f"of container {number}\n")
        link.unlink(missing_ok=True)
        link.symlink_to(f"pods/default_web_uid/web/{number}.log")

    def steps() -> Iterator[str]:
        restart(0)
        yield "of container 0"
        rotate(0, "20261128-120000")
        add(pod / "0.log", "after a rotation\n")
        yield "after a rotation"
        rotate(0, "20261128-130000")
        add(pod / "0.log", "after another\n")
        yield "after another"
        later_than(pod / "0.log")
        restart(1)
        yield "of container 1"
        rotate(1, "20261128-140000")
        add(pod / "1.log", "the last\n")
        yield "the last"

    expected: list[str] = []
    lines = steps()
    expected.append(next(lines))
    with shipping(journal, link):
        wait_for(journal, 1)
        for line in lines if running else ():
            expected.append(line)
            wait_for(journal, len(expected))
    expected += [*lines, "after all"]
    add(link, "after all\n")
    told = shipped(journal, link, 6)
    assert (told, texts(journal)) == ("", expected)


def test_the_log_of_another_program_beside_it_is_left_out_and_told(journal: Path, log: Path) -> None:
    add(log.with_name("app-2.log"), "of a worker that was there\n")
    add(log, "1\n")
    with shipping(journal, log) as tool:
        wait_for(journal, 1)
        add(log.with_name("app-3.log"), "of a worker that came\n")
        assert b"app-3.log is left out" in tool.stderr.readline()
        wait_until(lambda: b'"files_left_out":1' in jlog.Journal(journal).state()[b"jlog.follow:" + os.fsencode(log)])
    add(log.with_name("app-error.log"), "of its errors\n")
    for number in (2, 3):
        add(log.with_name(f"app-{number}.log"), "and its next line\n")
    log.rename(f"{log}.1")
    add(log, "2\n")
    told = shipped(journal, log, 2)
    assert texts(journal) == ["1", "2"]
    assert "app-error.log is left out: its name is not one of a rotated file" in told
    assert "app-2.log" not in told
    add(log, "3\n")
    assert shipped(journal, log, 3) == ""
    assert f'jlog_follow_files_left_out_total{{file="{log}",journal="{journal}"}} 2.0' in exposition([journal])


def test_a_backup_beside_it_is_not_read_also_after_the_next_rotation(journal: Path, log: Path) -> None:
    add(log, "a line of the log\n" * 100)
    with shipping(journal, log):
        wait_for(journal, 100)
        shutil.copy(log, f"{log}.bak")
        add(log, "101\n")
        wait_for(journal, 101)
        log.rename(f"{log}.1")
        add(log, "102\n")
        wait_for(journal, 102)
    add(log, "103\n")
    shipped(journal, log, 103)
    assert texts(journal) == ["a line of the log"] * 100 + ["101", "102", "103"]


def test_a_file_that_was_unpacked_again_is_not_read_again(journal: Path, log: Path) -> None:
    add(log, "1\n")
    shipped(journal, log, 1)
    log.rename(f"{log}.1")
    later_than(log.with_name("app.log.1"))
    add(log, "2\n")
    shipped(journal, log, 2)
    shutil.copy2(f"{log}.1", f"{log}.9")
    os.unlink(f"{log}.1")
    log.rename(f"{log}.1")
    add(log, "3\n")
    shipped(journal, log, 3)
    assert texts(journal) == ["1", "2", "3"]


def test_directories_that_were_restored_from_a_backup_are_read_on(journal: Path, log: Path) -> None:
    for number in (1, 2):
        add(log, f"{number}\n" + "x" * 2000 + "\n")
        shipped(journal, log, 2 * number)
        if number == 1:
            log.rename(f"{log}.1")
            later_than(log.with_name("app.log.1"))
    backup = log.parent.with_name("backup")
    shutil.copytree(log.parent, backup)
    shutil.rmtree(log.parent)
    backup.rename(log.parent)
    add(log, "3\n")
    shipped(journal, log, 5)
    assert texts(journal) == ["1", "x" * 2000, "2", "x" * 2000, "3"]


@pytest.mark.parametrize("before", ["end", "none", "missing"])
def test_a_place_that_an_older_jlog_has_stored_is_understood(log: Path, monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    monkeypatch.setattr(log_file, "QUIET_SECONDS", 0)
    if before != "none":
        add(log, "of the file before\n")
        log.rename(f"{log}.3")
        later_than(log.with_name("app.log.3"))
    add(log, "read\n")
    files = {os.path.basename(file.path): file for file in candidates(str(log), "", (), print)}
    status = log.stat()
    ends = {"end": [19, marked(log.with_name("app.log.3"))], "none": [], "missing": None}
    stored = {
        "device": status.st_dev,
        "inode": status.st_ino,
        "offset": 5,
        "mark": marked(log),
        "time_us": 7,
        "before": ends[before],
    }
    assert files["app.log"].inode == status.st_ino
    add(log, "unread\n")
    log.rename(f"{log}.2")
    later_than(log.with_name("app.log.2"))
    add(log, "rotated\n")
    log.rename(f"{log}.1")
    later_than(log.with_name("app.log.1"))
    add(log, "new\n")
    place = LogPlace.from_bytes(json.dumps(stored).encode())
    assert place.time_us == 7
    told: list[str] = []
    file = LogFile(str(log), place, told.append)
    assert (drained_texts(file), told) == (["unread", "rotated", "new"], [])
    file.close()


def marked(path: Path) -> int:
    """The checksum as it was stored: of a short file, CRC-32 of its bytes twice."""
    data = path.read_bytes() if path.exists() else b""
    return zlib.crc32(data, zlib.crc32(data))


def test_more_rotated_files_than_may_be_open_are_read_in_their_order(journal: Path, log: Path) -> None:
    add(log, "0\n")
    shipped(journal, log, 1)
    for number in range(1, 101):
        log.rename(log.with_name(f"app.log.{number}"))
        later_than(log.with_name(f"app.log.{number}"))
        add(log, f"{number}\n")
    shipped(journal, log, 101)
    assert texts(journal) == [str(number) for number in range(101)]
    state = jlog.Journal(journal).state()
    assert len(next(iter(state.values()))) < 8_000


@pytest.mark.parametrize("kind", [RotatingFileHandler, TimedRotatingFileHandler])
def test_each_line_of_a_handler_of_python_comes_once_through_rotations_beside_kills(
    journal: Path, log: Path, kind: type[RotatingFileHandler | TimedRotatingFileHandler]
) -> None:
    handler = kind(log, backupCount=20)
    expected: list[str] = []

    def write(rotations: int) -> None:
        for _ in range(rotations):
            for number in range(20):
                expected.append(f"{number} after {len(expected)}")
                handler.emit(logging.LogRecord("program", logging.INFO, "", 0, expected[-1], None, None))
            handler.flush()
            later_than(log)
            if kind is TimedRotatingFileHandler:  # it names files by the hour
                handler.rolloverAt -= 3600 * (20 - len(expected) // 20)  # type: ignore[union-attr]
            handler.doRollover()

    for _ in range(2):
        with shipping(journal, log):
            wait_for_place(journal)  # files that were rotated before it began are not read
            write(1)
            wait_for(journal, len(expected))
            write(1)
        write(2)
    handler.close()
    add(log, "the last\n")
    shipped(journal, log, len(expected) + 1)
    assert texts(journal) == [*expected, "the last"]


def test_the_place_of_a_log_with_many_old_files_is_small(journal: Path, log: Path) -> None:
    """Many logs go to one journal, whose state has 64 KiB."""
    for number in range(50):
        add(log.with_name(f"app.log.{number}"), f"{number}\n")
        os.utime(log.with_name(f"app.log.{number}"), (10**9, 10**9 - 86_400 * number))
    add(log, "1\n")
    shipped(journal, log, 1)
    log.rename(f"{log}.0")
    add(log, "2\n")
    assert (shipped(journal, log, 2), texts(journal)) == ("", ["1", "2"])
    assert len(jlog.Journal(journal).state()[b"jlog.follow:" + os.fsencode(log)]) < 800


def test_a_name_with_many_digits_is_judged(tmp_path: Path) -> None:
    kind, _ = names_beside(str(tmp_path / "app.log"), is_target=False)(f"app-{'12345678' * 8}-web.log")
    assert kind == NameKind.SIMILAR


def test_a_backup_that_was_copied_while_the_shipper_was_down_is_not_read(journal: Path, log: Path) -> None:
    add(log, "1\n")
    shipped(journal, log, 1)
    shutil.copy(log, f"{log}.bak")
    add(log, "2\n")
    shipped(journal, log, 2)
    assert texts(journal) == ["1", "2"]
