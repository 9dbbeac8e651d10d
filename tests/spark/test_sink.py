"""frame.write and writeStream with format("jlog"): each row becomes a record, once."""

from __future__ import annotations

import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import jlog
from behaviour.journals import records, values
from jlog.spark import clean, forget, queries
from jlog.spark.writing.background import repeated_in_background
from jlog.spark.writing.checkpoint import Content, content_of
from jlog.spark.writing.driver import master_of
from jlog.spark.writing.ledger import BATCH, NAMELESS, STREAM, Ledger
from jlog.spark.writing.left_over import BEGUN, STALE_SECONDS
from jlog.spark.writing.sink import BatchSink, StagingSink
from jlog.spark.writing.staging import AT_ONCE_BYTES, Staged

VALUE = StructType().add("value", "binary")


def save(frame: DataFrame, path: Path, **options: Any) -> None:
    frame.write.format("jlog").options(**options).mode("append").save(str(path))


def numbers(spark: SparkSession, count: int, partitions: int = 3, size: int = 1) -> DataFrame:
    value = f"rpad(cast(id AS string), {size}, '.')" if size > 1 else "cast(id AS string)"
    return spark.range(count, numPartitions=partitions).selectExpr(f"{value} AS value")


def numbered(count: int, size: int = 1) -> list[bytes]:
    return [str(number).encode().ljust(size, b".") for number in range(count)]


def names_in(path: Path) -> set[str]:
    return {name.rpartition(".")[2] if name[0].isdigit() else name for name in os.listdir(path)}


# --- What becomes of a row ------------------------------------------------------------------------------------------


def test_a_row_becomes_a_record_with_all_that_it_has(spark: SparkSession, tmp_path: Path) -> None:
    at = datetime(2026, 11, 20, 12, 34, 56, 123456, timezone.utc)
    schema = "value binary, key string, timestamp timestamp, headers array<struct<key: string, value: binary>>"
    rows = [(b"one", "k", at, [("h", b"x"), ("h", None)]), (None, None, at, None)]
    save(spark.createDataFrame(rows, schema).coalesce(1), tmp_path / "journal")
    first, second = records(tmp_path / "journal")
    assert (first.value, first.key, first.timestamp) == (b"one", b"k", at)
    assert list(first.headers) == [("h", b"x"), ("h", None)]
    assert (second.value, second.key, list(second.headers)) == (None, None, [])


def test_records_come_in_the_order_of_partitions_and_rows(spark: SparkSession, tmp_path: Path) -> None:
    save(numbers(spark, 1_000, partitions=7), tmp_path / "journal")
    assert values(tmp_path / "journal") == numbered(1_000)


def test_many_records_come_in_the_same_order(spark: SparkSession, tmp_path: Path) -> None:
    count = 3 * AT_ONCE_BYTES // 1_000
    save(numbers(spark, count, size=1_000), tmp_path / "journal")
    assert values(tmp_path / "journal") == numbered(count, 1_000)


def test_rows_larger_than_an_append_are_records_too(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(3, numPartitions=1).selectExpr("repeat(cast(id AS string), 5000000) AS value")
    save(frame, tmp_path / "journal")
    assert values(tmp_path / "journal") == [b"%d" % number * 5_000_000 for number in range(3)]


def test_without_rows_there_is_a_journal_without_records(spark: SparkSession, tmp_path: Path) -> None:
    save(numbers(spark, 0), tmp_path / "journal")
    assert values(tmp_path / "journal") == []


def test_extra_columns_of_a_read_journal_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("SELECT 7L AS sequence, 'x' AS value, 'elsewhere' AS journal")
    save(frame, tmp_path / "journal")
    (record,) = records(tmp_path / "journal")
    assert (record.sequence, record.value) == (0, b"x")


def test_others_may_append_meanwhile(spark: SparkSession, tmp_path: Path) -> None:
    count, path, done = 4 * AT_ONCE_BYTES // 1_000, tmp_path / "journal", threading.Event()

    def append() -> None:
        with jlog.Writer(path) as writer:
            while not done.is_set():
                writer.append(b"foreign")

    other = threading.Thread(target=append)
    other.start()
    try:
        save(numbers(spark, count, size=1_000), path)
    finally:
        done.set()
        other.join()
    found = values(path)
    assert [value for value in found if value != b"foreign"] == numbered(count, 1_000)
    assert b"foreign" in found


# --- The journal ----------------------------------------------------------------------------------------------------


def test_a_journal_is_made_with_the_options_given(spark: SparkSession, tmp_path: Path) -> None:
    save(numbers(spark, 10), tmp_path / "journal", compression="lz4", segmentBytes=65536, precommit=8192)
    options = jlog.Journal(tmp_path / "journal").options
    assert (options.compression, options.segment_bytes, options.precommit) == ("lz4", 65536, 8192)


def test_a_journal_that_must_be_there_is_not_made(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="JournalNotFound"):
        save(numbers(spark, 10), tmp_path / "journal", create="false")
    assert not (tmp_path / "journal").exists()


def test_no_directory_is_made_for_a_journal_unless_told(spark: SparkSession, tmp_path: Path) -> None:
    """The path may be that of another host, or mistyped."""
    path = tmp_path / "missing" / "journal"
    with pytest.raises(Exception, match=rf"no journal at {path} on {socket.gethostname()}, .*create=true"):
        save(numbers(spark, 10), path)
    assert not path.parent.exists()
    save(numbers(spark, 10), path, create="true")
    assert values(path) == numbered(10)


def submitted(*arguments: str) -> list[str]:
    return ["java", "-cp", "jars/*", "org.apache.spark.deploy.SparkSubmit", *arguments, ""]


@pytest.mark.parametrize(
    ("arguments", "master"),
    [
        (submitted("--conf", "spark.master=local[2]", "--conf", "spark.ui.enabled=false", "pyspark-shell"), "local[2]"),
        (submitted("pyspark-shell"), "local[*]"),
        (submitted("--verbose", "--master", "spark://host:7077", "program.py", "--master", "local"), "spark://host:7077"),
        (submitted("--master=yarn", "program.py"), "yarn"),
        (submitted("program.py", "--master", "spark://host:7077"), "local[*]"),
        (submitted("--deploy-mode", "cluster", "--master", "local", "program.py"), ""),
        (["java", "org.apache.spark.deploy.worker.DriverWrapper", "spark://host:7077", "program.py"], ""),
        (["java", "org.apache.spark.deploy.yarn.ApplicationMaster", "--primary-py-file", "program.py"], ""),
    ],
)
def test_the_drivers_command_line_tells_the_master(arguments: list[str], master: str, tmp_path: Path) -> None:
    assert master_of(arguments, str(tmp_path)) == master


def test_the_file_of_settings_tells_the_master(tmp_path: Path) -> None:
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text("# spark.master local\nspark.ui.enabled  false\nspark.master\tk8s://https://host:443\n")
    assert master_of(submitted("program.py"), str(tmp_path)) == "k8s://https://host:443"
    assert master_of(submitted("--master", "local", "program.py"), str(tmp_path)) == "local"
    (tmp_path / "properties").write_text("spark.master=yarn\n")
    assert master_of(submitted("--properties-file", str(tmp_path / "properties"), "program.py"), None) == "yarn"


def test_nothing_but_the_journal_is_left(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    save(numbers(spark, 10), path)
    save(numbers(spark, 2 * AT_ONCE_BYTES // 1_000, size=1_000), path)
    jlog.Journal.create(tmp_path / "other")
    assert names_in(path) - {"seg", "idx"} == names_in(tmp_path / "other") - {"seg"} | {"precommit"}
    assert list(tmp_path.iterdir()) == [path, tmp_path / "other"]


def test_rows_may_be_staged_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    save(numbers(spark, 100), tmp_path / "journal", stagingDirectory=str(staging))
    assert values(tmp_path / "journal") == numbered(100)
    assert list(staging.iterdir()) == []


# --- What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["s3://bucket/orders", "kafka://host:9092/orders"])
def test_a_url_is_no_journal(spark: SparkSession, url: str) -> None:
    with pytest.raises(Exception, match=url):
        numbers(spark, 1).write.format("jlog").mode("append").save(url)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("'x' AS text", "no column 'text'.*to_json"),
        ("'x' AS value, 1 AS n", "no column 'n'"),
        ("1 AS value", "column value is int and must be binary or string"),
        ("'x' AS key", "no column value"),
        ("'x' AS value, to_timestamp_ntz('2026-11-20') AS timestamp", "timestamp is timestamp_ntz"),
        ("'x' AS value, array('h') AS headers", "headers is array<string>"),
    ],
)
def test_a_frame_that_cannot_be_records_is_refused(spark: SparkSession, tmp_path: Path, columns: str, told: str) -> None:
    """The error says what to do."""
    with pytest.raises(Exception, match=told):
        save(spark.sql(f"SELECT {columns}"), tmp_path / "journal")
    assert not (tmp_path / "journal").exists()


def test_overwriting_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    save(numbers(spark, 10), path)
    with pytest.raises(Exception, match=r"never overwritten.*jlog\.Journal\.delete"):
        numbers(spark, 10).write.format("jlog").mode("overwrite").save(str(path))
    assert values(path) == numbered(10)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"transaction": "a b"}, "transaction's name"),
        ({"txnAppId": "daily"}, "txnVersion.* are given together"),
        ({"txnAppId": "daily", "txnVersion": "first"}, "txnVersion is a number"),
        ({"txnAppId": "daily", "txnVersion": 1, "transaction": "a"}, "not by both"),
        ({"segmentBytes": "64m"}, "number of bytes"),
        ({"compression": "zip"}, "compression"),
        ({"compresion": "lz4"}, "no option compresion; it has compression, "),
    ],
)
def test_an_option_that_is_not_allowed_is_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        save(numbers(spark, 10), tmp_path / "journal", **options)


# --- Exactly once ---------------------------------------------------------------------------------------------------


def test_a_task_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    frame = spark.range(1_000, numPartitions=2).selectExpr(
        "CASE WHEN id = 900 THEN raise_error('no') ELSE cast(id AS string) END AS value"
    )
    with pytest.raises(Exception, match="no"):
        save(frame, path)
    assert values(path) == []
    assert "spark" not in os.listdir(path)
    save(numbers(spark, 10), path)
    assert values(path) == numbered(10)


def test_a_repeated_named_batch_write_adds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for _ in range(2):
        save(numbers(spark, 10), path, transaction="load-2026-11-20")
    save(numbers(spark, 10), path)
    assert values(path) == numbered(10) * 2
    assert queries(path)["load-2026-11-20"].records == 10


def run(frame: DataFrame, path: Path, checkpoint: Path | None) -> None:
    writer = frame.writeStream.format("jlog").queryName("checkpoint")
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(path))
    query.awaitTermination()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Callable[..., None]:
    """Lets a query take so many new lines from files."""
    lines = tmp_path / "lines"
    lines.mkdir()
    written = 0

    def take(count: int, checkpoint: Path | None = tmp_path / "checkpoint") -> None:
        nonlocal written
        if count:
            text = "".join(f"{number}\n" for number in range(written, written + count))
            (lines / f"{written:09}.txt").write_text(text)
        written += count
        frame = spark.readStream.format("text").schema("value string").load(str(lines))
        run(frame, tmp_path / "journal", checkpoint)

    return take


def test_a_query_that_is_started_again_appends_what_is_new(stream: Callable[..., None], tmp_path: Path) -> None:
    for count in (10, 20, 0, 30):
        stream(count)
    assert values(tmp_path / "journal") == numbered(60)
    ((_, entry),) = queries(tmp_path / "journal").items()
    assert (entry.kind, entry.batch, entry.records, entry.manifest) == ("stream", 2, 30, None)


def test_a_batch_that_spark_runs_again_adds_nothing(stream: Callable[..., None], tmp_path: Path) -> None:
    """As where the driver was killed behind the commit, and before Spark had noted it."""
    stream(10)
    stream(20)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    stream(5)
    assert values(tmp_path / "journal") == numbered(35)


# --- A number that comes back with other rows -----------------------------------------------------------------------


def lose(checkpoint: Path, batches: int, *folders: str) -> None:
    """Takes the last files from a checkpoint, as a power loss or a backup that is brought back does."""
    for folder in folders:
        names = sorted((path for path in (checkpoint / folder).glob("[0-9]*")), key=lambda path: int(path.name))
        for path in names[-batches:]:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink()


def refused(reason: str) -> Any:
    return pytest.raises(Exception, match=rf"{reason}.*new checkpoint directory.*jlog\.spark\.forget\(")


@pytest.mark.parametrize(
    ("lost", "folders", "reason"),
    [
        (1, ["offsets", "commits"], "batch 2 of .* its sources begin or end elsewhere"),
        (2, ["offsets", "commits"], "batch 1 of .* batch 2 of it is in the journal already"),
        # The source, which has lost its list of files too, takes the old file and the new one as what it had taken before.
        (1, ["offsets", "commits", "sources/0"], "batch 2 of .* already with 30 records, and it has 70 now"),
    ],
)
def test_a_checkpoint_that_lost_its_tail_is_refused(
    stream: Callable[..., None], tmp_path: Path, lost: int, folders: list[str], reason: str
) -> None:
    for count in (10, 20, 30):
        stream(count)
    lose(tmp_path / "checkpoint", lost, *folders)
    with refused(reason):
        stream(40)
    assert values(tmp_path / "journal") == numbered(60)
    assert "spark" not in os.listdir(tmp_path / "journal")


def test_a_refused_query_goes_on_once_it_is_forgotten(stream: Callable[..., None], tmp_path: Path) -> None:
    stream(10)
    stream(20)
    lose(tmp_path / "checkpoint", 1, "offsets", "commits")
    with refused("elsewhere"):
        stream(5)
    (query,) = queries(tmp_path / "journal")
    forget(tmp_path / "journal", query)
    lose(tmp_path / "checkpoint", 1, "offsets")  # that of the refused batch
    stream(1)
    assert set(values(tmp_path / "journal")) == set(numbered(36))


def test_a_checkpoint_out_of_sight_is_compared_by_counts(
    spark: SparkSession, stream: Callable[..., None], tmp_path: Path
) -> None:
    """As one on HDFS: the sink is not told where it is."""
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path))
    try:
        stream(10, checkpoint=None)
        stream(20, checkpoint=None)
        ((_, entry),) = queries(tmp_path / "journal").items()
        assert entry.offsets is None
        lose(tmp_path / "checkpoint", 1, "commits")
        stream(5, checkpoint=None)
        lose(tmp_path / "checkpoint", 1, "offsets", "commits")
        with refused("already with 5 records, and it has 12 now"):
            stream(7, checkpoint=None)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert values(tmp_path / "journal") == numbered(35)


def test_a_named_load_with_other_rows_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    save(numbers(spark, 10), path, transaction="load")
    with pytest.raises(Exception, match=r"'load' is refused.* with 10 records, and it has 11 now.*another name.*forget"):
        save(numbers(spark, 11), path, transaction="load")
    save(numbers(spark, 10), path, txnAppId="daily", txnVersion=7)
    with pytest.raises(Exception, match=r"version 6 of 'daily' is refused.*txnVersion above 7"):
        save(numbers(spark, 10), path, txnAppId="daily", txnVersion=6)
    assert values(path) == numbered(10) * 2


def test_the_checkpoint_is_synced_before_the_journal_knows_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def note(fd: int, sync: Callable[[int], None] = os.fsync) -> None:
        synced.append(os.path.relpath(os.readlink(f"/proc/self/fd/{fd}"), tmp_path))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    for name in ("metadata", "offsets/0", "offsets/.0.crc", "offsets/1"):
        (checkpoint / name).write_text(f"v1\n{{}}\n{name}")
    assert content_of(3, f"file:{checkpoint}", 0).offsets is not None
    assert synced == [f"checkpoint/{name}" for name in ("offsets/0", "offsets/.0.crc", "offsets", "metadata")] + [
        "checkpoint",
        ".",
    ]
    synced.clear()
    assert content_of(3, str(checkpoint), 1).offsets is not None
    assert synced == ["checkpoint/offsets/1", "checkpoint/offsets"]


@pytest.mark.parametrize("location", [None, "hdfs://host/checkpoint", "s3a://bucket/checkpoint", "/nowhere", "nowhere:8020/x"])
def test_a_checkpoint_that_is_not_here_tells_the_count(location: str | None) -> None:
    assert content_of(3, location, 0) == Content(3)


def test_a_streaming_query_cannot_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().groupBy("value").count().selectExpr("'x' AS value")
    writer = frame.writeStream.format("jlog").outputMode("complete")
    with pytest.raises(Exception, match="never overwritten"):
        writer.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "j")).awaitTermination()


# --- A commit, without Spark around it ------------------------------------------------------------------------------


def batches_of(values: list[bytes]) -> Iterator[pyarrow.RecordBatch]:
    for first in range(0, len(values), 1_000):
        yield pyarrow.record_batch({"value": pyarrow.array(values[first : first + 1_000], pyarrow.binary())})


def stage(sink: StagingSink, query: str, batch: int, parts: list[list[bytes]]) -> list[Staged]:
    return [
        sink.staging(query).write(
            batches_of(part),
            sink.columns,
            batch,
            partition,
        )
        for partition, part in enumerate(parts)
    ]


@pytest.fixture
def sink(tmp_path: Path) -> StagingSink:
    return StagingSink(VALUE, {"path": str(tmp_path / "journal")}, False)


LARGE = [numbered(10_000, 1_000), [b"%d-" % n + bytes(1_000) for n in range(10_000)]]
ALL = [*LARGE[0], *LARGE[1]]


@pytest.mark.parametrize("parts", [[[b"a"], [b"b", b"c"]], LARGE], ids=["small", "large"])
def test_a_commit_that_is_repeated_adds_nothing(sink: StagingSink, parts: list[list[bytes]]) -> None:
    staged = stage(sink, "q", 3, parts)
    sink.commit(STREAM, "q", 3, staged)
    sink.commit(STREAM, "q", 3, staged)
    assert values(sink.path) == [value for part in parts for value in part]


def cut_short(sink: StagingSink, staged: list[Staged], appended: int, query: str = "q") -> None:
    """Leaves what a driver leaves that is killed when so many records of batch 0 are in."""
    staging = sink.staging(query)
    with jlog.Writer(sink.path) as writer:
        ledger = Ledger(sink.path, query, STREAM)
        ledger.begin(0, Content(sum(part.records for part in staged)))
        note = ledger.note(appended, staging.keep(staged))
        writer.extend(ALL[:appended], state=note)


def ends(staged: list[Staged]) -> list[int]:
    """How many records may be in when a commit is cut short."""
    pieces = [piece for part in staged for file in part.files for piece in file.pieces]
    return list(accumulate(piece.records for piece in pieces))


@pytest.mark.parametrize("which", [0, 4, 5, -2])
def test_a_commit_cut_short_is_completed_with_the_same_rows(sink: StagingSink, which: int) -> None:
    """They are in their order."""
    staged = stage(sink, "q", 0, LARGE)
    cut_short(sink, staged, ends(staged)[which])
    again = stage(sink, "q", 0, [part[::-1] for part in reversed(LARGE)])
    sink.commit(STREAM, "q", 0, again)
    assert values(sink.path) == ALL
    assert "spark" not in os.listdir(sink.path)


SMALL_FILES = "jlog.spark.writing.staging.FIRST_FILE_BYTES, jlog.spark.writing.staging.SEGMENT_BYTES_MIN = 1 << 20, 1 << 20"


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 10 MB the first 2 MB are a file that is copied, the others one that becomes a segment."""
    monkeypatch.setattr("jlog.spark.writing.staging.FIRST_FILE_BYTES", 1 << 20)
    monkeypatch.setattr("jlog.spark.writing.staging.SEGMENT_BYTES_MIN", 1 << 20)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_large_files_become_segments(tmp_path: Path, compression: str) -> None:
    options = {"path": str(tmp_path / "journal"), "compression": compression, "segmentBytes": str(16 << 20)}
    sink = StagingSink(VALUE, options, False)
    noise = random.Random(0)
    parts = [[noise.randbytes(1_000) for _ in range(10_000)] for _ in range(2)]
    staged = stage(sink, "q", 0, parts)
    assert [len(part.files) for part in staged] == [2, 2]
    large = {os.stat(path).st_ino for path in Path(sink.staging("q").batch(0)).glob("*-00001")}
    sink.commit(STREAM, "q", 0, staged)
    segments = {path.stat().st_ino for path in Path(sink.path).glob("*.seg")}
    assert len(large) == 2
    assert large < segments
    assert values(sink.path) == [value for part in parts for value in part]
    sink.commit(STREAM, "q", 0, staged)
    assert jlog.Journal(sink.path).next_sequence == 20_000
    assert jlog.Journal(sink.path).verify().ok


@pytest.mark.usefixtures("small_files")
def test_files_that_cannot_become_segments_are_copied(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "journal"), "segmentBytes": str(16 << 20)}
    sink = StagingSink(VALUE, options, False)
    with jlog.Writer(sink.path) as writer:  # which leaves no room in front for a larger one
        writer.extend([], state={b"large": random.Random(0).randbytes(64_800)})
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert values(sink.path) == ALL


@pytest.mark.usefixtures("small_files", "failpoints")
@pytest.mark.parametrize("visit", [1, 2])
@pytest.mark.parametrize("point", ["adopt.linked", "adopt.completed", "roll.renamed", "rotate.turned"])
def test_the_next_driver_ends_the_adoption_of_a_killed_one(tmp_path: Path, point: str, visit: int) -> None:
    options = {"path": str(tmp_path / "journal"), "segmentBytes": str(16 << 20)}
    sink = StagingSink(VALUE, options, False)
    staged = stage(sink, "q", 0, LARGE)
    (tmp_path / "commit").write_bytes(pickle.dumps((sink, staged)))
    program = (
        f"import pickle, sys, jlog.spark.writing.sink; {SMALL_FILES}\n"
        "sink, staged = pickle.load(open(sys.argv[1], 'rb')); sink.commit('stream', 'q', 0, staged)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "commit")],
        env={**os.environ, "JLOG_FAILPOINTS": f"{point}=kill@{visit}"},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert len(values(sink.path)) < len(ALL)
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert values(sink.path) == ALL
    assert "spark" not in os.listdir(sink.path)


@pytest.mark.parametrize("query", ["q", NAMELESS + "1"])
def test_rows_of_a_query_are_synced_before_a_part_of_them_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Nobody completes a nameless write, so its rows need no sync."""
    synced: list[str] = []

    def note(fd: int, sync: Callable[[int], None] = os.fsync) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    sink = StagingSink(VALUE, {"path": str(tmp_path / "journal")}, False)
    staged = stage(sink, query, 0, LARGE)
    sink.commit(STREAM, query, 0, staged)
    files = {file.name for part in staged for file in part.files}
    assert (files <= {Path(path).name for path in synced}) == (query == "q")
    assert values(sink.path) == ALL


def test_an_error_in_the_background_is_raised_at_the_end() -> None:
    with pytest.raises(OSError, match="Bad file descriptor"), repeated_in_background(lambda: os.fdatasync(1_000_000)) as sync:
        sync()


def test_staging_that_a_resumed_commit_needs_is_never_removed(sink: StagingSink) -> None:
    """Neither an abort nor its age removes it."""
    staged = stage(sink, "q", 0, LARGE)
    cut_short(sink, staged, ends(staged)[0])
    sink.abort("q")
    backdate(Path(sink.path, "spark", "q"))
    sink.commit(STREAM, "other", 0, stage(sink, "other", 0, [[b"other"]]))
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert sorted(values(sink.path)) == sorted([*ALL, b"other"])


def test_a_commit_without_its_staged_rows_says_what_is_in(sink: StagingSink) -> None:
    """The error says what to do, too."""
    staged = stage(sink, "q", 0, LARGE)
    cut_short(sink, staged, 5)
    sink.staging("q").remove()
    with pytest.raises(jlog.JournalError, match=r"5 records .* are in .*jlog\.spark\.forget"):
        sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    forget(sink.path, "q")
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert len(values(sink.path)) == 20_005


def test_an_abort_after_the_commit_removes_no_record(sink: StagingSink) -> None:
    sink.commit(BATCH, "q", 0, stage(sink, "q", 0, [[b"a"]]))
    sink.abort("q")
    assert values(sink.path) == [b"a"]


def test_an_abort_removes_what_was_staged(sink: StagingSink) -> None:
    stage(sink, "q", 0, [[b"a"]])
    sink.abort("q")
    assert "spark" not in os.listdir(sink.path)


def backdate(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in ["", *names]:
            at = os.path.join(folder, name)
            os.utime(at, (0, os.stat(at).st_mtime - STALE_SECONDS - 60))


def test_leftovers_of_others_are_removed_after_a_day(sink: StagingSink) -> None:
    stage(sink, "dead", 0, [[b"a"]])
    stage(sink, "slow", 0, [[b"b"]])
    backdate(Path(sink.path, "spark", "dead"))
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, [[b"c"]]))
    assert os.listdir(os.path.join(sink.path, "spark")) == ["slow"]


@pytest.fixture
def nameless_commit(tmp_path: Path, sink: StagingSink) -> Callable[[str], subprocess.Popen[bytes]]:
    """Starts a driver of a batch write without a name, with these failpoints; in its commit it meets them."""

    def start(failpoints: str) -> subprocess.Popen[bytes]:
        (tmp_path / "commit").write_bytes(pickle.dumps((sink, stage(sink, NAMELESS + "1", 0, LARGE))))
        program = (
            "import pickle, sys, jlog.spark.writing.sink\n"
            "sink, staged = pickle.load(open(sys.argv[1], 'rb'))\n"
            f"sink.commit('batch', '{NAMELESS}1', 0, staged)"
        )
        return subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "commit")],
            env={**os.environ, "JLOG_FAILPOINTS": failpoints},
        )

    return start


@pytest.mark.usefixtures("failpoints")
def test_the_next_commit_removes_a_dead_nameless_writes_staging(
    sink: StagingSink, nameless_commit: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    assert nameless_commit("direct.written=kill@2").wait() == -signal.SIGKILL
    assert os.listdir(os.path.join(sink.path, "spark")) == [NAMELESS + "1"]
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, [[b"a"]]))
    assert "spark" not in os.listdir(sink.path)


@pytest.mark.usefixtures("failpoints")
def test_staging_of_a_nameless_write_in_its_commit_stays(
    sink: StagingSink, nameless_commit: Callable[[str], subprocess.Popen[bytes]]
) -> None:
    committing = nameless_commit("direct.written=stop@2")
    os.waitid(os.P_PID, committing.pid, os.WSTOPPED | os.WNOWAIT)
    stage(sink, "q", 0, [[b"a"]])
    backdate(Path(sink.path, "spark", NAMELESS + "1"))
    assert clean(sink.path) == []
    committing.send_signal(signal.SIGCONT)
    assert committing.wait() == 0
    assert values(sink.path) == ALL


def test_no_file_leads_a_clean_up_to_files_of_others(sink: StagingSink, tmp_path: Path) -> None:
    """Another user of the journal may write it."""
    name = NAMELESS + "1"
    victim = tmp_path / "documents" / name
    victim.mkdir(parents=True)
    home = Path(sink.path, "spark", name)
    for content in (os.fsencode(victim), b"", bytes(1 << 17)):
        home.mkdir(parents=True, exist_ok=True)
        (home / BEGUN).write_bytes(content)
        clean(sink.path)
        assert victim.is_dir()
    (home / BEGUN).unlink(missing_ok=True)
    home.mkdir(parents=True, exist_ok=True)
    (home / BEGUN).symlink_to(victim)
    clean(sink.path)
    assert victim.is_dir()


def test_staging_of_a_nameless_write_before_its_commit_stays(sink: StagingSink) -> None:
    staged = stage(sink, NAMELESS + "1", 0, [[b"a"]])
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, [[b"b"]]))
    sink.commit(BATCH, NAMELESS + "1", 0, staged)
    assert values(sink.path) == [b"b", b"a"]


@pytest.mark.parametrize("name", ["stray", NAMELESS + "stray"])
@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_files_among_the_staged_queries_stay(tmp_path: Path, name: str, is_link: bool, elsewhere: bool) -> None:
    options = {"stagingdirectory": str(tmp_path / "staging")} if elsewhere else {}
    sink = StagingSink(VALUE, {"path": str(tmp_path / "journal"), **options}, False)
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "begun").touch()
    with sink.staging("q").held():  # makes the directory
        staged = stage(sink, "q", 0, [[b"a"]])
    stray = Path(sink.path, "spark", name)
    if is_link:
        stray.symlink_to(victim)
    else:
        stray.touch()
    if elsewhere:  # what the query with this name has staged there
        Path(sink.staging(name).batch(0)).mkdir(parents=True)
        backdate(Path(sink.staging(name).batch(0)).parent)
    for path in (victim / "begun", victim, stray):
        os.utime(path, (0, 0))
    sink.commit(STREAM, "q", 0, staged)
    assert values(sink.path) == [b"a"]
    assert stray.is_symlink() if is_link else stray.is_file()
    assert os.listdir(victim) == ["begun"]


def test_the_abort_of_a_nameless_write_removes_its_staging(sink: StagingSink) -> None:
    staged = stage(sink, NAMELESS + "1", 0, LARGE)
    cut_short(sink, staged, ends(staged)[0], NAMELESS + "1")
    sink.abort(NAMELESS + "1")
    assert "spark" not in os.listdir(sink.path)


def test_a_write_without_a_transaction_has_an_id_of_its_own(sink: StagingSink) -> None:
    write = BatchSink(VALUE, {"path": sink.path}, False)
    assert write.query.startswith(NAMELESS)
    with pytest.raises(ValueError, match="a transaction's name"):
        BatchSink(VALUE, {"path": sink.path, "transaction": write.query}, False)


# --- What the journal remembers -------------------------------------------------------------------------------------


def names(count: int) -> Iterator[str]:
    return (f"{number:03}-" + "x" * 96 for number in range(count))


def test_nameless_writes_leave_no_entry(sink: StagingSink) -> None:
    sink.commit(BATCH, "load", 0, stage(sink, "load", 0, [[b"a"]]))
    for number in range(150):
        query = f"{NAMELESS}{number}"
        sink.commit(BATCH, query, 0, stage(sink, query, 0, [[b"b"]]))
    sink.commit(BATCH, NAMELESS + "large", 0, stage(sink, NAMELESS + "large", 0, LARGE))
    sink.commit(BATCH, "load", 0, stage(sink, "load", 0, [[b"a"]]))
    assert list(queries(sink.path)) == ["load"]
    assert values(sink.path) == [b"a"] + [b"b"] * 150 + ALL


@pytest.mark.parametrize("kind", [BATCH, STREAM])
def test_no_named_query_is_pushed_out_by_others(sink: StagingSink, kind: str) -> None:
    staged = stage(sink, "begun", 0, LARGE)
    cut_short(sink, staged, ends(staged)[0], "begun")
    for query in names(150):
        sink.commit(kind, query, 0, stage(sink, query, 0, [[b"a"]]))
    assert {"begun", *names(150)} == set(queries(sink.path))
    for query in names(150):
        sink.commit(kind, query, 0, stage(sink, query, 0, [[b"a"]]))
    sink.commit(STREAM, "begun", 0, stage(sink, "begun", 0, LARGE))
    found = values(sink.path)
    assert [value for value in found if value != b"a"] == ALL
    assert found.count(b"a") == 150


def test_a_write_that_the_journal_cannot_remember_is_refused(sink: StagingSink) -> None:
    """The error says how to make room, and nothing is appended."""

    def fill() -> None:
        for query in names(1_000):
            sink.commit(BATCH, query, 0, stage(sink, query, 0, [[b"a"]]))

    with pytest.raises(jlog.JournalError, match=r"no room .* jlog\.spark\.queries\(.*jlog\.spark\.forget\("):
        fill()
    known = len(queries(sink.path))
    assert len(values(sink.path)) == known > 300
    with pytest.raises(jlog.JournalError, match="no room"):
        sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    sink.abort("q")
    assert len(values(sink.path)) == known
    for name in list(names(5)):
        forget(sink.path, name)
    sink.commit(STREAM, "q", 0, stage(sink, "q", 0, LARGE))
    assert values(sink.path)[known:] == ALL
    with pytest.raises(LookupError, match="no query"):
        forget(sink.path, next(names(1)))


def test_a_commit_that_has_begun_has_room_to_its_end(sink: StagingSink) -> None:
    """However narrow the room is, all of its records go in, or none."""
    rows, room = numbered(9_000, 1_000), 150
    while True:
        with jlog.Writer(sink.path) as writer:
            writer.extend([], state={b"others": bytes((64 << 10) - len("others") - room)})
        before = len(values(sink.path))
        try:
            sink.commit(STREAM, "q", 0, stage(sink, "q", 0, [rows]))
        except jlog.JournalError:
            assert len(values(sink.path)) == before > 0
            return
        assert len(values(sink.path)) == before + len(rows)
        forget(sink.path, "q")
        room -= 1


def test_loads_with_growing_versions_need_one_entry(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for version in (1, 2, 2, 7, 7):
        save(numbers(spark, version), path, txnAppId="daily", txnVersion=version)
    assert values(path) == numbered(1) + numbered(2) + numbered(7)
    ((name, entry),) = queries(path).items()
    assert (name, entry.batch, entry.records) == ("daily", 7, 7)


def test_a_staged_file_that_is_cut_is_an_error_and_adds_nothing(sink: StagingSink) -> None:
    (part,) = stage(sink, "q", 0, [[b"a" * 1_000]])
    os.truncate(os.path.join(sink.staging("q").batch(0), part.files[0].name), 66_000)
    with pytest.raises(jlog.JournalError, match="fails its checksum"):
        sink.commit(STREAM, "q", 0, [part])
    assert values(sink.path) == []
