"""A master and two workers, each on a host of its own: no record is lost, whatever they share, and after any kill."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pyarrow.dataset
import pytest

import jlog
from cli.command import start
from spark.clusters import Cluster, both_ways

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("_spark_environment")]
RECORDS = 20_000
MANY = 250_000  # which take more than one task


@pytest.fixture
def journal(hosts: Cluster, name: str) -> Path:
    path = hosts.shared / name / "journal"
    fill(path, RECORDS)
    return path


def fill(path: Path, records: int) -> None:
    """Many small segments, so that retention can remove those that were read."""
    with jlog.Writer(path, segment_bytes=64 << 10) as writer:
        for _ in range(0, records, 1000):
            writer.extend([b'{"level": "info", "message": "%050d"}' % 1] * 1000)


def sequences(*directories: Path) -> Counter[int]:
    found: Counter[int] = Counter()
    for directory in directories:
        files = pyarrow.dataset.dataset(str(directory), format="parquet", partitioning="hive")
        found.update(files.to_table(columns=["sequence"]).column("sequence").to_pylist())
    return found


def assert_nothing_counts(journal: Path, dest: Path) -> None:
    """No record is removed, the subscriber stands at the first one, and the directory has no rows."""
    found = jlog.Journal(journal)
    assert found.first_sequence == 0
    assert all(subscriber.sequence == 0 for subscriber in found.subscribers().values())
    assert not list(dest.glob("date=*"))


# --- Directories that not all hosts share -----------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_destination_of_each_host_is_refused_with_the_hosts(hosts: Cluster, journal: Path, name: str) -> None:
    dest = hosts.private / name / "lake"
    told = hosts.pipeline("--subscriber", "lake", "--checkpoint", hosts.shared / name / "checkpoint", journal, dest).error()
    assert f"worker-1 does not share {dest}" in told
    assert f"worker-2 does not share {dest}" in told
    assert_nothing_counts(journal, dest)


@pytest.mark.exhaustive
def test_a_destination_that_one_host_lacks_is_refused(hosts: Cluster, journal: Path, name: str) -> None:
    dest = hosts.partly / name / "lake"
    told = hosts.pipeline("--subscriber", "lake", journal, dest).error()
    assert f"worker-2 does not share {dest}" in told
    assert "worker-1" not in told
    assert_nothing_counts(journal, dest)


@pytest.mark.exhaustive
def test_a_mount_lost_during_a_run_fails_the_batch(hosts: Cluster, journal: Path, name: str) -> None:
    """Records that the batch lacks are not lost: the next run has them."""
    dest = hosts.shared / name / "lake"
    arguments = ["--subscriber", "lake", "--trigger", "1s", journal, dest]
    running = hosts.pipeline(*arguments)
    try:
        running.until(lambda: list(dest.glob("date=*/*.parquet")))
        hosts.hide(2, dest)
        try:
            while running.process.poll() is None:  # until a task runs there
                fill(journal, 1_000)
                time.sleep(0.5)
            told = running.error()
        finally:
            hosts.show(2, dest)
    finally:
        running.kill()
    assert f"worker-2 does not share {dest}" in told
    hosts.pipeline("--subscriber", "lake", journal, dest).summary()
    assert sequences(dest) == Counter(range(jlog.Journal(journal).next_sequence))


@pytest.mark.exhaustive
def test_a_journal_that_the_hosts_lack_is_named(hosts: Cluster, name: str) -> None:
    journal = hosts.private / name / "journal"
    fill(journal, 1000)
    told = hosts.pipeline(journal, hosts.shared / name / "lake").error()
    assert f"there is no journal at {journal} on worker-" in told


# --- The roads to a cluster -------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@both_ways
def test_a_shared_journal_arrives_once_despite_kills(hosts: Cluster, journal: Path, name: str, conf: dict[str, str]) -> None:
    """An executor is killed while tasks write a batch, and then the driver."""
    dest = hosts.shared / name / "lake"
    fill(journal, MANY)

    def files() -> int:
        return len(list(dest.glob("date=*/*.parquet")))

    arguments = ["--subscriber", "lake", "--batch-records", MANY, "--trigger", "1s", journal, dest]
    running = hosts.pipeline(*arguments, conf=conf)
    try:
        running.until(lambda: files() >= 2)
        before = files()
        fill(journal, MANY)
        running.until(lambda: files() > before or list(dest.glob("_staging-*/_temporary/**/*.parquet")))
        hosts.kill_an_executor()
        running.until(lambda: files() > before)
    finally:
        running.kill()
    hosts.pipeline(*arguments[:4], journal, dest, conf=conf).summary()
    assert sequences(dest) == Counter(range(RECORDS + 2 * MANY))
    assert jlog.Journal(journal).subscribers()["lake"].lag == 0
    assert jlog.Journal(journal).first_sequence > 0


@pytest.mark.exhaustive
def test_an_archive_is_followed_where_no_host_has_the_journal(hosts: Cluster, name: str, s3: str) -> None:
    """The process that archives is killed meanwhile, an executor, and the driver. Executors get the credentials from the
    options."""
    journal, dest = hosts.private / name / "journal", hosts.shared / name / "lake"
    url = f"{s3}/{name}"
    jlog.Journal.create(journal, retention=jlog.Retention(archive=url))
    fill(journal, RECORDS)
    keys = {key: value for key, value in os.environ.items() if key.startswith("AWS_")}
    conf = {f"spark.executorEnv.{key}": value for key, value in keys.items()}
    archiving = start("archive", "--follow", "--every", "1s", journal)
    running = hosts.pipeline("--batch-records", 2_000, "--trigger", "1s", url, dest, conf=conf, env=keys)
    try:
        running.until(lambda: list(dest.glob("date=*/*.parquet")))
        fill(journal, RECORDS)
        hosts.kill_an_executor()
        archiving.kill()
        archiving.communicate()
        archiving = start("archive", "--follow", "--every", "1s", journal)
        running.until(lambda: jlog.archive.Archive(url).next_sequence == 2 * RECORDS)
        time.sleep(1)  # where in its work it is hit
    finally:
        running.kill()
        archiving.terminate()
        archiving.communicate()
    hosts.pipeline(url, dest, conf=conf, env=keys).summary()
    assert sequences(dest) == Counter(range(2 * RECORDS))
