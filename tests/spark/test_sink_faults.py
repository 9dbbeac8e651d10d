"""Drivers, executors and tasks die while they write to a journal: each row is in it once."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import jlog
from behaviour.journals import values
from spark.running import Running
from spark.sink_driver import RECORDS
from spark.test_faults import master, start  # noqa: F401

KILLS = 10
FILES, LINES = 30, 12_000
DRIVER = Path(__file__).with_name("sink_driver.py")

Start = Callable[..., Running]


def drive(start: Start, folder: Path, master: str, *arguments: object) -> Running:  # noqa: F811
    return start(sys.executable, DRIVER, folder, master, *arguments)


def line(number: int) -> bytes:
    return str(number).encode().ljust(1_000, b".")


def write_files(folder: Path) -> None:
    """A batch of each is more than is appended at once."""
    folder.mkdir()
    for number in range(FILES):
        lines = [line(at) for at in range(number * LINES, (number + 1) * LINES)]
        (folder / f"{number:03}.txt").write_bytes(b"\n".join(lines) + b"\n")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_kills_of_the_driver_at_any_time_lose_and_repeat_nothing(start: Start, tmp_path: Path) -> None:  # noqa: F811
    """Somebody else appends meanwhile."""
    path, lines, stopped = tmp_path / "journal", tmp_path / "lines", threading.Event()
    write_files(lines)
    jlog.Journal.create(path)
    arguments = ["local[2]", "follow", lines, tmp_path / "query", path]

    def append() -> None:
        with jlog.Writer(path) as writer:
            while not stopped.wait(0.01):
                writer.append(b"foreign")

    other = threading.Thread(target=append)
    other.start()
    try:
        for _ in range(KILLS):
            driver = drive(start, tmp_path / "query", *arguments)
            driver.said("(started)")
            before, until = jlog.Journal(path).size_bytes, time.monotonic() + 30
            while jlog.Journal(path).size_bytes < before + 1_000_000 and time.monotonic() < until:
                time.sleep(0.001)  # until a commit is at work
            time.sleep(random.choice([0, random.uniform(0, 1)]))
            driver.kill()
        driver = drive(start, tmp_path / "query", *arguments)
        while driver.said("(at work|done)") != "done":
            pass
    finally:
        stopped.set()
        other.join()
    found = [value for value in values(path) if value != b"foreign"]
    assert len(found) == FILES * LINES
    assert sorted(found) == sorted(line(number) for number in range(FILES * LINES))
    assert "spark" not in os.listdir(path)


def expected() -> list[bytes]:
    return [line(number) for number in range(RECORDS)]


@pytest.mark.timeout(600)
def test_tasks_that_fail_and_are_tried_again_leave_nothing_twice(start: Start, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "journal"
    driver = drive(start, tmp_path / "driver", "local[2,3]", "fail", path)
    driver.said("(done)")
    assert values(path) == expected()
    assert "spark" not in os.listdir(path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_leaves_nothing_twice(start: Start, master: str, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "journal"
    for name in ("tasks", "go"):
        os.mkfifo(tmp_path / name)
    driver = drive(start, tmp_path / "driver", master, "wait", path, tmp_path)
    with driver.told_through(tmp_path / "tasks") as executor:
        os.kill(int(executor), signal.SIGKILL)
        with open(tmp_path / "go", "r+b", buffering=0):
            driver.said("(done)")
    assert values(path) == expected()
    assert "spark" not in os.listdir(path)
