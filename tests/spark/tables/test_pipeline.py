"""The pipeline from journals to tables of Delta Lake and Iceberg."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
    assert found["query"] == [{"n": 1, "error": "the value is no JSON object"}]
    for name in ("0", ".0.crc"):  # as where it was killed behind the batch, and before Spark had noted it
        Path(checkpoint, "records", "commits", name).unlink()
    append(tmp_path / "journal", b'{"n": 2}')
    for expected in (2, 1):  # Spark 4.1 ends a run when it has repeated a batch
        assert tables.load([source], dest, checkpoint, compact_every=1, **plan)["records_in"] == expected
    assert [row["n"] for row in sorted(tables.rows(kind, dest), key=lambda row: row["sequence"])] == [1, 2]
    assert len(tables.rows(kind, f"{dest}_quarantine")) == 1
    with pytest.raises(Refused, match="has rows of a pipeline already"):
        tables.load([source], dest, checkpoint + "-new", **plan)


def test_a_batch_with_other_offsets_is_refused(tables: TableDriver, tmp_path: Path) -> None:
    """As where the checkpoint has lost its newest files, and the journal has gone on."""
    dest, checkpoint = str(tmp_path / "dest"), tmp_path / "checkpoint"
    source = append(tmp_path / "journal", b"a")
    tables.load([source], dest, checkpoint, format="iceberg")
    for folder in ("commits", "offsets"):
        for name in ("0", ".0.crc"):
            Path(checkpoint, "records", folder, name).unlink()
    append(tmp_path / "journal", b"b")
    with pytest.raises(Refused, match="other records under the number 0"):
        tables.load([source], dest, checkpoint, format="iceberg")
    assert len(tables.rows("iceberg", dest)) == 1


def test_a_catalog_that_spark_does_not_know_is_named(tables: TableDriver, tmp_path: Path) -> None:
    source = append(tmp_path / "journal", b"a")
    with pytest.raises(Refused, match=r"JournalError.*no catalog nowhere; add its settings"):
        tables.load([source], "nowhere.db.t", tmp_path / "checkpoint", format="iceberg")


@pytest.mark.usefixtures("_spark_environment")
def test_the_command_writes_to_a_table_of_a_catalog(jars: str, tmp_path: Path) -> None:
    source = append(tmp_path / "journal", b"a", b"b")
    command = [sys.executable, "-m", "jlog.cli", "pipeline", source, "--format", "iceberg", "--table", "lake.db.rows"]
    command += ["--checkpoint", str(tmp_path / "checkpoint"), "--compact-every", "1", "--master", "local[2]"]
    command += ["--query", "SELECT count(*) AS n FROM records"]
    conf = {
        "spark.jars": jars,
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "lake"),
    }
    settings = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PYSPARK), str(ROOT)])}
    done = subprocess.run(
        [*command, *settings], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=HUNG_SECONDS
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["records_out"], found["dest"], found["query"]) == (2, "lake.db.rows", [{"n": 2}])
    assert (tmp_path / "lake" / "db" / "rows" / "metadata").is_dir()
