"""Processes are killed, journals damaged, segments moved while Spark reads: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import exhaustive
import jlog
from behaviour.journals import SMALL, fill, read_away, value_of
from crash.tampering import flip
from jlog.pipeline.checkpoint import Checkpoint
from patience import HUNG_SECONDS
from spark.running import Driver
from spark.sessions import ROOT

KILLS = exhaustive.count(1, 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@contextmanager
def appending(path: Path) -> Iterator[None]:
    """A writer appends and rolls meanwhile."""
    stopped = threading.Event()

    def append() -> None:
        with jlog.Writer(path, precommit=4096, segment_bytes=16 << 10) as writer:
            while not stopped.wait(0.02):
                fill(writer, 10)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def batches_of(folder: Path) -> int:
    """Returns the number of batches that the query has completed."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


@pytest.mark.timeout(900)
def test_kills_of_the_driver_at_any_time_lose_and_repeat_nothing(
    spark: SparkSession, drive: Callable[[Path], Driver], path: Path, tmp_path: Path
) -> None:
    """The subscriber's commits remove the records that the query has completed, so none could be read again."""
    folder = tmp_path / "lake"
    options = {"subscriber": "lake", "maxRecordsPerTrigger": "400"}
    jlog.Journal.create(path)
    with appending(path):
        for kill in range(KILLS):
            before = batches_of(folder)
            driver = drive(folder)
            driver.call("lake", path, folder, options)
            driver.said("(started)")
            if kill % 2 == 0:  # the others may be killed before they have done anything
                driver.until(lambda before=before: batches_of(folder) > before)  # type: ignore[misc]
            time.sleep(random.Random(kill).uniform(0, 2))
            driver.kill()
    Checkpoint(spark, str(folder)).query("checkpoint").forget_first_batch()
    for records in (2000, 10):  # the second run commits what the first one has read, which are several segments
        with jlog.Writer(path) as writer:
            fill(writer, records)
        frame = spark.readStream.format("jlog").option("subscriber", "lake").load(str(path))
        query = frame.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        assert query.trigger(availableNow=True).start(str(folder / "rows")).awaitTermination(HUNG_SECONDS)
    rows = spark.read.parquet(str(folder / "rows")).select("sequence", "value").collect()
    end = jlog.Journal(path).next_sequence
    assert sorted(row.sequence for row in rows) == list(range(end))
    assert all(bytes(row.value) == value_of(row.sequence) for row in rows)
    assert jlog.Journal(path).first_sequence > 0
    assert jlog.Journal(path).subscribers()["lake"].lag == 0


def test_a_user_sees_that_the_first_subscriber_begins_to_remove(
    drive: Callable[[Path], Driver], path: Path, tmp_path: Path
) -> None:
    """On stderr, although the subscriber is created in a Python worker of Spark's."""
    jlog.Journal.create(path)
    driver = drive(tmp_path / "lake")
    driver.call("lake", path, tmp_path / "lake", {"subscriber": "lake"})
    assert driver.said("^(.*): lake is the first subscriber, created for this query") == str(path)


def test_a_first_batch_that_was_never_noted_is_forgotten(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """Spark itself refuses to go on beside the files that it left."""
    with jlog.Writer(path) as writer:
        fill(writer, 10)
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / ".0.5a0c.tmp").touch()

    def run() -> None:
        stream = spark.readStream.format("jlog").load(str(path)).writeStream.format("parquet")
        stream = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert stream.start(str(tmp_path / "rows")).awaitTermination(HUNG_SECONDS)

    with pytest.raises(PySparkException, match="should be empty on batch 0"):
        run()
    Checkpoint(spark, str(tmp_path)).query("checkpoint").forget_first_batch()
    run()
    Checkpoint(spark, str(tmp_path)).query("checkpoint").forget_first_batch()  # does nothing: this one is noted
    run()
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 10


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_loses_and_repeats_nothing(cluster: Driver, path: Path, tmp_path: Path) -> None:
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 1000)
        for name in ("tasks", "go"):
            os.mkfifo(tmp_path / name)
        cluster.call("count", path, tmp_path)
        with cluster.told_through(tmp_path / "tasks") as executor:
            os.kill(int(executor), signal.SIGKILL)
            with open(tmp_path / "go", "r+b", buffering=0):
                (found,) = json.loads(cluster.said(r"^(\[\[.*\]\])$"))
    assert found == list(range(1000))


# --- Writers, retention and the archive meanwhile ---------------------------------------------------------------------


def test_every_read_is_whole_while_segments_move_to_the_archive(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    archive = (tmp_path / "archive").as_uri()
    jlog.Journal.create(path, retention=jlog.Retention(archive=archive))
    with appending(path):
        for _ in range(5):
            while len(jlog.Journal(path).segments()) < 2:
                time.sleep(0.01)
            known = read_away(path, "billing")
            cleaning = threading.Thread(target=jlog.Journal(path).clean)
            cleaning.start()
            frame = spark.read.format("jlog").schema("sequence bigint, value binary").option("maxRecordsPerPartition", 400)
            found = sorted(row.sequence for row in frame.load(str(path)).collect())
            cleaning.join()
            assert found == list(range(len(found)))
            assert len(found) >= known
    assert jlog.Journal(path).first_sequence > 0


def test_a_journal_missing_in_a_task_is_reported_with_the_host(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    with jlog.Writer(path) as writer:
        fill(writer, 10)
    frame = spark.read.format("jlog").load(str(path))
    assert frame.rdd.getNumPartitions() == 1  # it is planned
    path.rename(tmp_path / "elsewhere")
    told = f"there is no journal at {path} on {socket.gethostname()}, where this task runs, though there is one where"
    with pytest.raises(PySparkException, match=told):
        frame.collect()


def test_a_task_that_sees_less_than_was_planned_fails(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    """As on a host where the newest records have not arrived."""
    with jlog.Writer(path) as writer:
        fill(writer, 10)
        backup = jlog.Journal(path).backup(tmp_path / "backup")
        fill(writer, 10)
    frame = spark.read.format("jlog").load(str(path))
    assert frame.rdd.getNumPartitions() == 1  # it is planned
    path.rename(tmp_path / "elsewhere")
    Path(backup.path).rename(path)
    with pytest.raises(PySparkException, match=r"ends at sequence 10 on .*, where this task runs, and at 20 or later where"):
        frame.collect()


def test_a_python_without_pyarrow_is_named(tmp_path: Path) -> None:
    """The interpreter has all packages of this one but pyarrow."""
    venv.create(tmp_path / "lacking", symlinks=True)
    python = tmp_path / "lacking" / "bin" / "python"
    (packages,) = (tmp_path / "lacking" / "lib").glob("python*/site-packages")
    for entry in Path(pyspark.__file__).parent.parent.iterdir():
        if not entry.name.startswith("pyarrow"):
            (packages / entry.name).symlink_to(entry)
    ran = subprocess.run(
        [python, "-c", "from pyspark_jlog import DefaultSource; DefaultSource({})"],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert f"{python}, which Spark has started for its Python workers, has no pyarrow" in ran.stderr
    assert "Set PYSPARK_PYTHON" in ran.stderr


# --- Damage -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(path: Path) -> tuple[Path, int, list[int]]:
    """A journal with one damaged block: its segment's file, its offset in it, and the sequences that are lost."""
    with jlog.Writer(path, **SMALL) as writer:
        fill(writer, 1000)
    blocks = [(Path(file), block) for file, block in jlog.Journal(path).blocks() if getattr(block, "records", 0)]
    file, block = blocks[len(blocks) // 2]
    flip(file, block.offset + 500, 3)
    return file, block.offset, list(range(block.first_sequence, block.first_sequence + block.records))


@pytest.mark.damage
def test_damage_fails_the_query_with_its_place(spark: SparkSession, path: Path, damaged: tuple[Path, int, list[int]]) -> None:
    file, offset, lost = damaged
    told = f"{file}: damaged at byte {offset}: .*; the records from {lost[0]} to {lost[-1]} cannot be read"
    with pytest.raises(PySparkException, match=told):
        spark.read.format("jlog").load(str(path)).collect()


@pytest.mark.damage
@pytest.mark.parametrize("partitions", [1, 60])
def test_permissive_reads_the_rest_and_counts_what_is_lost(
    spark: SparkSession, path: Path, tmp_path: Path, damaged: tuple[Path, int, list[int]], partitions: int
) -> None:
    """Partitions may begin and end within the damage."""
    file, offset, lost = damaged
    frame = spark.read.format("jlog").option("mode", "permissive").option("damagePath", str(tmp_path / "lost"))
    found = sorted(row.sequence for row in frame.option("minPartitions", partitions).load(str(path)).collect())
    assert found == [number for number in range(1000) if number not in lost]
    notes = [json.loads(note.read_text()) for note in (tmp_path / "lost").iterdir()]
    assert {(note["journal"], note["path"], note["offset"]) for note in notes} == {(str(path), str(file), offset)}
    told = sorted(
        number for note in notes for number in range(note["first_sequence"], note["first_sequence"] + note["records_lost"])
    )
    assert told == lost


@pytest.mark.damage
def test_a_stream_reads_past_damage_if_it_may(
    spark: SparkSession, path: Path, tmp_path: Path, damaged: tuple[Path, int, list[int]]
) -> None:
    _, _, lost = damaged
    frame = spark.readStream.format("jlog").option("mode", "permissive").load(str(path)).select("sequence")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start(str(tmp_path / "rows")).awaitTermination(HUNG_SECONDS)
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(row.sequence for row in rows) == [number for number in range(1000) if number not in lost]


@pytest.mark.damage
def test_a_segment_file_that_is_gone_is_damage(spark: SparkSession, path: Path, damaged: tuple[Path, int, list[int]]) -> None:
    """A user has removed it, and not retention."""
    file, _, _ = damaged
    begins = [segment.first_sequence for segment in jlog.Journal(path).segments()]
    gone = begins.index(int(file.stem))
    file.unlink()
    told = f"the records from {begins[gone]} to {begins[gone + 1] - 1} cannot be read"
    with pytest.raises(PySparkException, match=told):
        spark.read.format("jlog").load(str(path)).collect()
