"""The pipeline from journals to tables of Delta Lake and Iceberg."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import jlog
from patience import HUNG_SECONDS
from spark.sessions import QUICK_JAVA, ROOT
from spark.tables.running import PYSPARK, Refused, TableDriver


def append(path: Path, *values: bytes) -> str:
    with jlog.Writer(path) as writer:
        writer.extend(values)
    return str(path)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_records_are_rows_once_and_bad_ones_are_quarantined(tables: TableDriver, tmp_path: Path, kind: str) -> None:
    dest, checkpoint, plan = str(tmp_path / "dest"), str(tmp_path / "checkpoint"), {"parse": "json", "format": kind}
    source = append(tmp_path / "journal", b'{"n": 1}', b"bad")
    query = "SELECT r.n, q.error FROM records r, quarantine q"
    found = tables.load([source], dest, checkpoint, query=query, **plan)
    assert (found["records_in"], found["records_out"], found["records_bad"]) == (2, 1, 1)
    assert found["query"] == [{"n": 1, "error": "the value is not a JSON object"}]
    for name in ("0", ".0.crc"):  # as if it was killed after the batch, before Spark noted that
        Path(checkpoint, "records", "commits", name).unlink()
    append(tmp_path / "journal", b'{"n": 2}')
    for expected in (2, 1):  # Spark 4.1 ends a run when it has repeated a batch
        assert tables.load([source], dest, checkpoint, compact_every=1, **plan)["records_in"] == expected
    assert [row["n"] for row in sorted(tables.rows(kind, dest), key=lambda row: row["sequence"])] == [1, 2]
    assert len(tables.rows(kind, f"{dest}_quarantine")) == 1
    with pytest.raises(Refused, match=f"belongs to another pipeline, with the checkpoint {checkpoint}"):
        tables.load([source], dest, checkpoint + "-new", **plan)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_what_can_be_parsed_by_now_leaves_the_quarantine_once(tables: TableDriver, tmp_path: Path, kind: str) -> None:
    dest, checkpoint, plan = str(tmp_path / "dest"), str(tmp_path / "checkpoint"), {"parse": "json", "format": kind}
    source = append(tmp_path / "journal", b'{"n": 1}', b'{"n": 2, "s": "x"}')
    tables.load([source], dest, checkpoint, schema="n int, s int", **plan)
    for retried in (1, 0):
        found = tables.load([source], dest, checkpoint, schema="n int", retry_quarantine=True, **plan)
        assert found["records_retried"] == retried
    rows = sorted(tables.rows(kind, dest), key=lambda row: row["sequence"])
    assert [(row["n"], row["s"]) for row in rows] == [(1, None), (2, None)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_replaced_table_keeps_its_records_in_the_journal_and_is_loaded_again(
    tables: TableDriver, tmp_path: Path, kind: str
) -> None:
    dest = "shop.db.replaced" if kind == "iceberg" else "spark_catalog.default.replaced"
    plan = {"format": kind, "subscriber": "lake"}
    source = append(tmp_path / "journal", b"a", b"b")
    tables.load([source], dest, str(tmp_path / "checkpoint"), **plan)
    tables.load([source], dest, str(tmp_path / "checkpoint"), **plan)
    passed = jlog.Journal(source).subscribers()["lake"].sequence
    columns = "sequence BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY, journal STRING, date DATE"
    columns += ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    tables.sql(f"CREATE OR REPLACE TABLE {dest} ({columns}) USING {kind} PARTITIONED BY (date)")
    append(tmp_path / "journal", b"c")
    with pytest.raises(Refused, match=r"up to batch 0, and .* has taken away all rows"):
        tables.load([source], dest, str(tmp_path / "checkpoint"), **plan)
    assert tables.rows(kind, dest) == []
    assert jlog.Journal(source).subscribers()["lake"].sequence == passed
    tables.load([source], dest, str(tmp_path / "new"), adopt=True, **plan)
    assert sorted(row["sequence"] for row in tables.rows(kind, dest)) == [0, 1, 2]


def test_a_batch_with_other_offsets_is_refused(tables: TableDriver, tmp_path: Path) -> None:
    """The checkpoint has lost its newest files, and the journal has newer records."""
    dest, checkpoint = str(tmp_path / "dest"), tmp_path / "checkpoint"
    source = append(tmp_path / "journal", b"a")
    tables.load([source], dest, checkpoint, format="iceberg")
    for folder in ("commits", "offsets"):
        for name in ("0", ".0.crc"):
            Path(checkpoint, "records", folder, name).unlink()
    append(tmp_path / "journal", b"b")
    with pytest.raises(Refused, match=r"has batch 0, and the checkpoint .* does not know it"):
        tables.load([source], dest, checkpoint, format="iceberg")
    assert len(tables.rows("iceberg", dest)) == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_new_fields_become_columns(tables: TableDriver, tmp_path: Path, kind: str) -> None:
    dest, checkpoint = str(tmp_path / "dest"), str(tmp_path / "checkpoint")
    plan = {"parse": "json", "format": kind, "evolve": "add"}
    source = append(tmp_path / "journal", b'{"n": 1}')
    tables.load([source], dest, checkpoint, **plan)
    new = [
        b'{"n": 2, "whole": 1, "real": 1, "text": 1, "is": true, "at": {"x": 1}, "long": 1e3, "none": null}',
        b'{"n": 3, "whole": 2, "real": 0.5, "text": "1", "N": 5, "": 6, "timestamp": "noon", "big": 18446744073709551616}',
        b'{"n": "x", "bad": 1}',
        b'{"n": 9, "endless": 1e400}',
        b'{"n": 4, "an (odd). name`": "x", "digits": %s}' % (b"1" * 51),
    ]
    append(tmp_path / "journal", *new)
    found = tables.load([source], dest, checkpoint, **plan)
    assert (found["records_out"], found["records_bad"]) == (3, 2)
    append(tmp_path / "journal", b'{"whole": 3, "at": "y"}', b'{"whole": "x"}', b'{"none": 1}')
    found = tables.load([source], dest, checkpoint, **plan)
    assert (found["records_out"], found["records_bad"]) == (2, 1)
    rows = sorted(tables.rows(kind, dest), key=lambda row: row["sequence"])
    assert [row["n"] for row in rows] == [1, 2, 3, 4, None, None]
    assert [row["whole"] for row in rows] == [None, 1, 2, None, 3, None]
    assert [row["real"] for row in rows[:3]] == [None, 1.0, 0.5]
    assert [row["text"] for row in rows[:3]] == [None, "1", "1"]
    assert [row["at"] for row in rows] == [None, '{"x":1}', None, None, "y", None]
    assert (rows[1]["is"], rows[1]["long"], rows[1]["other"]) == (True, 1000.0, {"none": None})
    assert (rows[2]["big"], rows[2]["value_timestamp"]) == ("18446744073709551616", "noon")
    assert rows[2]["other"] == {"N": "5", "": "6"}
    assert (rows[3]["an (odd). name`"], rows[3]["digits"], rows[5]["none"]) == ("x", "1" * 51, 1)
    assert not {"bad", "endless"} & rows[0].keys()


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_killed_batch_comes_again_with_its_new_columns(
    tables: TableDriver, start: Callable[[], TableDriver], tmp_path: Path, kind: str
) -> None:
    dest, checkpoint = str(tmp_path / "dest"), str(tmp_path / "checkpoint")
    plan = {"parse": "json", "format": kind, "evolve": "add"}
    source = append(tmp_path / "journal", b'{"n": 1}')
    tables.load([source], dest, checkpoint, **plan)
    append(tmp_path / "journal", b'{"n": 2, "new": 1}', b"bad")
    driver = start()
    driver.die_in(kind, "write")
    driver.begin("load", [source], dest, checkpoint, **plan)
    driver.wait_for_its_death()
    assert "new" in Path(checkpoint, "fields.json").read_text()
    assert [row["n"] for row in tables.rows(kind, dest)] == [1]
    append(tmp_path / "journal", b'{"n": 3, "new": "text"}', b'{"n": 4, "newer": 1}')
    for _ in range(2):  # Spark 4.1 ends a run when it has repeated a batch
        tables.load([source], dest, checkpoint, **plan)
    rows = sorted(tables.rows(kind, dest), key=lambda row: row["sequence"])
    assert [(row["n"], row["new"], row["newer"]) for row in rows] == [(1, None, None), (2, 1, None), (4, None, 1)]
    assert len(tables.rows(kind, f"{dest}_quarantine")) == 2


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_partition_is_the_value_that_came_or_its_record_is_quarantined(
    tables: TableDriver, tmp_path: Path, kind: str
) -> None:
    """These tables have the type and the value of a partition in files of their own."""
    texts = ["007", "1.50", "1d", "x" * 200, "a/b", "null", "_", "x" * 300, "ü" * 200, "", "__HIVE_DEFAULT_PARTITION__", "a\0b"]
    bad = texts[7:9] if kind == "iceberg" else texts[7:]
    dest, name = str(tmp_path / "dest"), "_type"
    source = append(tmp_path / "journal", *(json.dumps({name: text}).encode() for text in [*texts, None]))
    tables.load([source], dest, str(tmp_path / "checkpoint"), parse="json", format=kind, partition_by=[name])
    rows = sorted(tables.rows(kind, dest), key=lambda row: row["sequence"])
    assert [row[name] for row in rows] == [*(text for text in texts if text not in bad), None]
    quarantined = sorted(tables.rows(kind, f"{dest}_quarantine"), key=lambda row: row["sequence"])
    assert [texts[row["sequence"]] for row in quarantined] == bad


def test_a_name_that_a_table_does_not_map_stays_in_other(tables: TableDriver, tmp_path: Path) -> None:
    dest, checkpoint = str(tmp_path / "dest"), str(tmp_path / "checkpoint")
    source = append(tmp_path / "journal", b'{"n": 1}')
    tables.load([source], dest, checkpoint, parse="json", format="delta")
    append(tmp_path / "journal", b'{"n": 2, "a b": 1, "c": 1}')
    tables.load([source], dest, checkpoint, parse="json", format="delta", evolve="add")
    (row,) = [row for row in tables.rows("delta", dest) if row["n"] == 2]
    assert (row["c"], row["other"]) == (1, {"a b": "1"})


def test_a_catalog_that_spark_does_not_know_is_named(tables: TableDriver, tmp_path: Path) -> None:
    source = append(tmp_path / "journal", b"a")
    with pytest.raises(Refused, match=r"JournalError.*no catalog nowhere; add its settings"):
        tables.load([source], "nowhere.db.t", tmp_path / "checkpoint", format="iceberg")


@pytest.fixture
def command(_spark_environment: None, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command in a process of its own."""

    def run(*arguments: str, conf: dict[str, str], packages: Path | None) -> subprocess.CompletedProcess[str]:
        settings = {"spark.driver.extraJavaOptions": QUICK_JAVA, **conf}
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        path = os.pathsep.join(str(directory) for directory in (packages, ROOT) if directory is not None)
        return subprocess.run(
            [sys.executable, "-m", "jlog.cli", "pipeline", *arguments, "--master", "local[2]", *words],
            env={**os.environ, "PYTHONPATH": path},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HUNG_SECONDS,
        )

    return run


def test_the_command_writes_to_a_table_of_a_catalog(
    command: Callable[..., subprocess.CompletedProcess[str]], jars: str, tmp_path: Path
) -> None:
    source = append(tmp_path / "journal", b"a", b"b")
    arguments = [source, "--format", "iceberg", "--table", "lake.db.rows", "--checkpoint", str(tmp_path / "checkpoint")]
    conf = {
        "spark.jars": jars,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "lake"),
    }
    query = "SELECT count(*) AS n FROM records"
    done = command(*arguments, "--compact-every", "1", "--query", query, conf=conf, packages=PYSPARK)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["records_out"], found["dest"], found["query"]) == (2, "lake.db.rows", [{"n": 2}])
    assert (tmp_path / "lake" / "db" / "rows" / "metadata").is_dir()


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_connector_for_another_spark_is_refused(
    command: Callable[..., subprocess.CompletedProcess[str]], jars: str, tmp_path: Path, kind: str
) -> None:
    source = append(tmp_path / "journal", b"a")
    done = command(source, str(tmp_path / "dest"), "--format", kind, conf={"spark.jars": jars}, packages=None)
    assert done.returncode == 1
    assert re.search(rf"{kind}-spark\S+\.jar is made for Spark 4\.1, and this is Spark", done.stderr)
    assert not (tmp_path / "dest").exists()
