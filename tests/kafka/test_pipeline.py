"""A topic as the pipeline's source: through Spark's own source for Kafka, in a virtual machine of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from kafka.witness import Witness
from patience import HUNG_SECONDS
from spark.sessions import QUICK_JAVA

ROOT = Path(__file__).parent.parent.parent

Pipeline = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def pipeline(url: str, jars: str, tmp_path: Path) -> Pipeline:
    """Runs it once, from the topic to tmp_path / "lake"."""

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jlog.pipeline", url, str(tmp_path / "lake"), *options]
        command += ["--conf", f"spark.jars={jars}"]
        command += ["--conf", f"spark.driver.extraJavaOptions={QUICK_JAVA}"]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
        return subprocess.run(
            [*command, "--master", "local[2]"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=HUNG_SECONDS,
        )

    return run


def finished(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert (done.returncode, done.stderr) == (0, "")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def rows(directory: Path) -> list[dict[str, Any]]:
    found = pyarrow.dataset.dataset(str(directory), format="parquet", partitioning="hive")
    return list(found.to_table().to_pylist())


@pytest.mark.timeout(900)
def test_a_topic_becomes_parquet_and_what_comes_later_is_added(
    witness: Witness, topic: str, url: str, tmp_path: Path, pipeline: Pipeline
) -> None:
    witness.make(topic, partitions=2)
    for partition in (0, 1):
        witness.produce(topic, [b'{"n": %d}' % n for n in range(partition, 300, 2)], partition=partition)
    witness.produce(topic, [{"value": b"no JSON", "key": b"k", "headers": [("h", b"1")]}], partition=1)
    summary = finished(pipeline("--parse", "json"))
    assert {name: summary[name] for name in ("records_in", "records_out", "records_bad")} == {
        "records_in": 301, "records_out": 300, "records_bad": 1,
    }  # fmt: skip
    found = rows(tmp_path / "lake")
    assert sorted(row["n"] for row in found) == list(range(300))
    files = Counter(path.parent for path in (tmp_path / "lake").rglob("*.parquet"))
    assert set(files.values()) == {1}, "a small batch has one file, however many partitions the topic has"
    assert Counter(row["journal"] for row in found) == {f"{url}?partition={p}": 150 for p in (0, 1)}
    assert all(row["sequence"] == row["n"] // 2 for row in found)
    (bad,) = rows(Path(summary["quarantine"]))
    assert (bad["value"], bad["key"], bad["sequence"]) == (b"no JSON", b"k", 150)

    witness.produce_and_abort(topic, [b'{"n": -1}'])
    witness.produce(topic, [b'{"n": 300}'])
    summary = finished(pipeline("--parse", "json"))
    assert (summary["records_in"], summary["records_out"]) == (1, 1)
    assert sorted(row["n"] for row in rows(tmp_path / "lake")) == list(range(301))


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_a_topic_that_is_not_there_is_said(url: str, topic: str, witness: Witness, pipeline: Pipeline) -> None:
    done = pipeline()
    assert done.returncode == 1
    assert topic in done.stderr
    assert "Traceback" not in done.stderr
    assert topic not in witness.topics()


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_types_are_those_of_a_topics_first_and_newest_records(
    witness: Witness, topic: str, url: str, tmp_path: Path, pipeline: Pipeline
) -> None:
    witness.make(topic, partitions=2)
    witness.produce(topic, [b'{"n": 1}'] * 12_000, partition=0)
    witness.produce(topic, [b'{"n": 0.5, "late": "x"}'], partition=0)
    done = pipeline("--parse", "json", "--batch-records", "10000", "--progress")
    *reports, last = done.stdout.splitlines(keepends=True)
    assert [json.loads(report)["behind"] for report in reports] == [{url: {"records": 2_001}}, {url: {"records": 0}}]
    summary = finished(subprocess.CompletedProcess(done.args, done.returncode, last, done.stderr))
    assert (summary["records_out"], summary["records_bad"], summary["batches"]) == (12_001, 0, 2)
    (newest,) = [row for row in rows(tmp_path / "lake") if row["sequence"] == 12_000]
    assert (newest["n"], newest["late"]) == (0.5, "x")
