"""Drivers, executors and tasks die while they write to a journal: each row is in it once."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest

import exhaustive
import jlog
from behaviour.journals import values
from cli.command import run
from patience import HUNG_SECONDS
from spark.driver import RECORDS
from spark.running import Driver

KILLS = exhaustive.count(1, 10)
FILES, LINES = exhaustive.count(4, 30), 12_000


def line(number: int) -> bytes:
    return str(number).encode().ljust(1_000, b".")


def write_files(folder: Path) -> None:
    """Each batch is larger than one append."""
    folder.mkdir()
    for number in range(FILES):
        lines = [line(at) for at in range(number * LINES, (number + 1) * LINES)]
        (folder / f"{number:03}.txt").write_bytes(b"\n".join(lines) + b"\n")


@pytest.mark.exhaustive
@pytest.mark.timeout(1_800)
def test_kills_of_the_driver_at_any_time_lose_and_repeat_nothing(
    drive: Callable[[Path], Driver], cluster: Driver, tmp_path: Path
) -> None:
    """Another writer appends meanwhile."""
    path, lines, stopped = tmp_path / "journal", tmp_path / "lines", threading.Event()
    write_files(lines)
    jlog.Journal.create(path)
    query = [lines, tmp_path / "query", path]

    def append() -> None:
        with jlog.Writer(path) as writer:
            while not stopped.wait(0.01):
                writer.append(b"foreign")

    other = threading.Thread(target=append)
    other.start()
    try:
        for kill in range(KILLS):
            driver = drive(tmp_path / "query")
            driver.call("follow", *query)
            driver.said("(started)")
            before = jlog.Journal(path).size_bytes
            driver.until(lambda before=before: jlog.Journal(path).size_bytes > before + 1_000_000)  # type: ignore[misc]
            # A commit is at work now.
            time.sleep(random.Random(kill).choice([0, 0.3, 0.9]))
            driver.kill()
        cluster.call("follow", *query)
        while cluster.said("(at work|done)") != "done":
            pass
    finally:
        stopped.set()
        other.join()
    found = [value for value in values(path) if value != b"foreign"]
    assert len(found) == FILES * LINES
    assert sorted(found) == sorted(line(number) for number in range(FILES * LINES))
    assert "spark" not in os.listdir(path)


@pytest.mark.usefixtures("_spark_environment", "failpoints")
def test_clean_removes_what_a_killed_nameless_write_staged(tmp_path: Path) -> None:
    """No other write of Spark ever comes, and the rows were staged elsewhere."""
    path, staging = tmp_path / "journal", tmp_path / "staging"
    driver = Driver(tmp_path / "driver", "local[2]", JLOG_FAILPOINTS="direct.written=stop@2")
    try:
        driver.call("stage", path, staging)
        driver.until(lambda: any(Path(path, "spark").glob("_*/begun")))
        assert list(staging.glob("*/*/0/*"))
    finally:
        driver.kill()
    # The process of the commit is in a group of its own, and ends a moment after the driver.
    until = time.monotonic() + HUNG_SECONDS
    while "of 1 writes of Spark that died" not in run("clean", path).err:
        assert time.monotonic() < until, "the rows stay"
        time.sleep(0.1)
    assert list(staging.iterdir()) == []
    assert "spark" not in os.listdir(path)


@pytest.fixture
def master(_spark_environment: None) -> Iterator[str]:
    """The URL of a cluster that has no workers."""
    home = Path(pyspark.__file__).parent
    arguments = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    process = subprocess.Popen(
        [home / "bin" / "spark-class", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "SPARK_HOME": str(home)},
    )
    try:
        assert process.stderr is not None
        found = (re.search(r"Starting Spark master at (spark:\S+)", line) for line in process.stderr)
        yield next(url[1] for url in found if url is not None)
    finally:
        process.kill()
        process.communicate()


def test_a_driver_of_a_cluster_makes_no_journal(master: str, tmp_path: Path) -> None:
    """The driver may be on another host than the journal."""
    driver = Driver(tmp_path / "driver", master)
    try:
        driver.call("stage", tmp_path / "journal", tmp_path / "staging")
        driver.said(f"(there is no journal at {tmp_path}/journal on {socket.gethostname()}, where Spark's driver runs)")
    finally:
        driver.kill()
    assert not (tmp_path / "journal").exists()


def expected() -> list[bytes]:
    return [line(number) for number in range(RECORDS)]


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_tasks_that_fail_and_are_tried_again_leave_nothing_twice(cluster: Driver, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    cluster.call("fail", path)
    cluster.said("(done)")
    assert values(path) == expected()
    assert "spark" not in os.listdir(path)


@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_leaves_nothing_twice(cluster: Driver, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for name in ("tasks", "go"):
        os.mkfifo(tmp_path / name)
    cluster.call("wait", path, tmp_path)
    with cluster.told_through(tmp_path / "tasks") as executor:
        os.kill(int(executor), signal.SIGKILL)
        with open(tmp_path / "go", "r+b", buffering=0):
            cluster.said("(done)")
    assert values(path) == expected()
    assert "spark" not in os.listdir(path)
