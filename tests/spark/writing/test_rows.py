"""frame.write.format("jlog"): each row becomes a record."""

from __future__ import annotations

import socket
import threading
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import jlog
from behaviour.journals import records, values
from jlog.spark.writing.driver import master_of
from jlog.spark.writing.staging import AT_ONCE_BYTES
from spark.writing.rows import names_in, numbered, numbers, save

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


def test_names_of_columns_are_compared_as_spark_compares_them(spark: SparkSession, tmp_path: Path) -> None:
    save(spark.sql("SELECT 'x' AS Value, 'k' AS KEY, 7 AS Sequence"), tmp_path / "journal")
    (record,) = records(tmp_path / "journal")
    assert (record.value, record.key, record.sequence) == (b"x", b"k", 0)


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


@pytest.mark.parametrize("create", [{}, {"create": "true"}])
def test_a_directory_with_other_files_is_named_as_such(spark: SparkSession, tmp_path: Path, create: dict[str, str]) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "part-0.parquet").touch()
    with pytest.raises(Exception, match=r"lake is a directory with other files"):
        save(numbers(spark, 10), tmp_path / "lake", **create)


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
    assert sorted(tmp_path.iterdir()) == [path, tmp_path / "other"]


def test_rows_may_be_staged_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    save(numbers(spark, 100), tmp_path / "journal", stagingDirectory=str(staging))
    assert values(tmp_path / "journal") == numbered(100)
    assert list(staging.iterdir()) == []


# --- What is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["s3://bucket/orders", "kafka://host:9092/orders"])
def test_a_url_is_not_a_journal(spark: SparkSession, url: str) -> None:
    with pytest.raises(Exception, match=url):
        numbers(spark, 1).write.format("jlog").mode("append").save(url)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("'x' AS text", "no column 'text'.*to_json"),
        ("'x' AS value, 1 AS n", "no column 'n'"),
        ("1 AS value", "column value is int and must be binary or string"),
        ("'x' AS key", "has no column 'value'"),
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
        ({"txnAppId": "daily"}, "txnVersion.* must be given together"),
        ({"txnAppId": "daily", "txnVersion": "first"}, "txnVersion must be a number"),
        ({"txnAppId": "daily", "txnVersion": 1, "transaction": "a"}, "not by both"),
        ({"segmentBytes": "64x"}, "option segmentBytes: '64x' is not a number of bytes; write 131072, 128K or 64MiB"),
        ({"create": "yes"}, "option create: 'yes' is neither true nor false"),
        ({"compression": "zip"}, "compression"),
        ({"compresion": "lz4"}, "no option compresion; it has compression, "),
    ],
)
def test_an_option_that_is_not_allowed_is_refused(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        save(numbers(spark, 10), tmp_path / "journal", **options)
