"""Queries of users on a master and two workers, each on a host of its own: each row is there once, after any kill too."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

import jlog
from behaviour.journals import values
from spark.clusters import Cluster, both_ways
from spark.driver import RECORDS
from spark.running import Driver

pytestmark = [pytest.mark.timeout(900), pytest.mark.exhaustive]
FILES, LINES = 6, 5_000
places = pytest.mark.parametrize("place", ["shared", "private"])


@pytest.fixture
def drive(hosts: Cluster, name: str) -> Iterator[Callable[..., Driver]]:
    """Starts drivers on the cluster, to be killed; none is left."""
    started: list[Driver] = []

    def start(**conf: str) -> Driver:
        started.append(hosts.driver(hosts.shared / name / "driver", conf))
        return started[-1]

    yield start
    for driver in started:
        driver.kill()


@pytest.fixture
def folder(hosts: Cluster, name: str) -> Iterator[Path]:
    """A directory that all hosts share, with the pipes through which tasks and the test wait for each other."""
    path = hosts.shared / name
    for pipe in ("tasks", "go"):
        os.mkfifo(path / pipe)
    with open(path / "tasks", "r+b", buffering=0):  # tasks that start later find somebody who listens
        yield path


def fill(path: Path, records: int) -> None:
    with jlog.Writer(path, segment_bytes=64 << 10) as writer:
        for _ in range(0, records, 1_000):
            writer.extend([b"%050d" % 1] * 1_000)


def kill_an_executor(driver: Driver, folder: Path) -> None:
    """Kills the executor of the first task that waits."""
    with driver.told_through(folder / "tasks") as executor:
        os.kill(int(executor), signal.SIGKILL)


def released(folder: Path) -> BinaryIO:
    """Lets waiting tasks go on, until it is closed."""
    return open(folder / "go", "r+b", buffering=0)


# --- From a journal ---------------------------------------------------------------------------------------------------


@both_ways
def test_a_batch_has_all_records_despite_a_killed_executor(
    drive: Callable[..., Driver], folder: Path, conf: dict[str, str]
) -> None:
    fill(folder / "journal", 20_000)
    driver = drive(**conf)
    driver.call("count", folder / "journal", folder)
    kill_an_executor(driver, folder)
    with released(folder):
        (found,) = json.loads(driver.said(r"^(\[\[.*\]\])$"))
    assert found == list(range(20_000))


@pytest.mark.parametrize("query", [("count",), ("lake", {})], ids=["batch", "stream"])
def test_a_journal_that_the_hosts_lack_is_refused(
    drive: Callable[..., Driver], hosts: Cluster, folder: Path, name: str, query: tuple[object, ...]
) -> None:
    journal = hosts.private / name / "journal"
    fill(journal, 1_000)
    driver = drive()
    verb, *options = query
    driver.call(str(verb), journal, folder, *options)
    with released(folder):
        assert driver.said(f"there is no journal at {journal} on (worker-[12]), where this task runs")


@both_ways
def test_a_stream_has_all_records_despite_kills(
    drive: Callable[..., Driver], hosts: Cluster, folder: Path, conf: dict[str, str]
) -> None:
    """An executor is killed, and then the driver."""
    journal = folder / "journal"
    fill(journal, 20_000)
    query = [journal, folder, {"subscriber": "lake", "maxRecordsPerTrigger": "2000", "minPartitions": "2"}]
    driver = drive(**conf)
    driver.call("lake", *query)
    batches = folder / "checkpoint" / "commits"
    driver.until(lambda: len(list(batches.glob("[0-9]*"))) >= 2)
    hosts.kill_an_executor()
    done = len(list(batches.glob("[0-9]*")))
    fill(journal, 20_000)
    driver.until(lambda: len(list(batches.glob("[0-9]*"))) > done)
    driver.kill()
    driver = drive(**conf)
    driver.call("rest", *query)
    assert driver.said(r'^\["rows", (.*)\]') == "40000, 40000, 39999"
    assert jlog.Journal(journal).first_sequence > 0


# --- To a journal -----------------------------------------------------------------------------------------------------


def journal_at(hosts: Cluster, folder: Path, name: str, place: str) -> tuple[Path, dict[str, str]]:
    """Creates a journal that all hosts see, or only the driver's. Returns it with the options for the sink."""
    if place == "shared":
        path, options = folder / "journal", {}
    else:
        path, options = hosts.private / name / "journal", {"stagingDirectory": str(folder / "staging")}
    jlog.Journal.create(path)
    return path, options


@both_ways
@places
def test_a_write_is_there_once_despite_a_killed_executor(
    drive: Callable[..., Driver], hosts: Cluster, folder: Path, name: str, place: str, conf: dict[str, str]
) -> None:
    journal, options = journal_at(hosts, folder, name, place)
    driver = drive(**conf)
    driver.call("wait", journal, folder, options)
    kill_an_executor(driver, folder)
    with released(folder):
        driver.said("(done)")
    assert Counter(values(journal)) == Counter(str(number).encode().ljust(1_000, b".") for number in range(RECORDS))


def test_staging_that_the_hosts_do_not_share_is_refused(
    drive: Callable[..., Driver], hosts: Cluster, folder: Path, name: str
) -> None:
    journal, _ = journal_at(hosts, folder, name, "private")
    driver = drive()
    driver.call("wait", journal, folder, {"stagingDirectory": str(hosts.private / name / "staging")})
    with released(folder):
        driver.said("(staging)")
    assert values(journal) == []


@both_ways
@places
def test_a_stream_is_written_once_despite_kills(
    drive: Callable[..., Driver], hosts: Cluster, folder: Path, name: str, place: str, conf: dict[str, str]
) -> None:
    """An executor is killed, and then the driver."""
    journal, options = journal_at(hosts, folder, name, place)
    lines = folder / "lines"
    lines.mkdir()
    for number in range(FILES):
        texts = [b"%d" % at for at in range(number * LINES, (number + 1) * LINES)]
        (lines / f"{number:03}.txt").write_bytes(b"\n".join(texts) + b"\n")
    query = [lines, folder, journal, options]
    driver = drive(**conf)
    driver.call("follow", *query)
    driver.until(lambda: jlog.Journal(journal).next_sequence >= LINES)
    hosts.kill_an_executor()
    driver.until(lambda: jlog.Journal(journal).next_sequence >= 2 * LINES)
    time.sleep(0.3)  # where in its work it is hit
    driver.kill()
    driver = drive(**conf)
    driver.call("follow", *query)
    while driver.said("(at work|done)") != "done":
        pass
    assert Counter(values(journal)) == Counter(b"%d" % number for number in range(FILES * LINES))
