"""Sinks for the tests below."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jlog.spark.writing.ledger import NAMELESS
from jlog.spark.writing.sink import StagingSink
from spark.writing.rows import LARGE, VALUE, run, stage


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Callable[..., None]:
    """Lets a query take so many new lines from files."""
    lines = tmp_path / "lines"
    lines.mkdir()
    written = 0

    def take(count: int, checkpoint: Path | None = tmp_path / "checkpoint", **options: str) -> None:
        nonlocal written
        if count:
            text = "".join(f"{number}\n" for number in range(written, written + count))
            (lines / f"{written:09}.txt").write_text(text)
        written += count
        frame = spark.readStream.format("text").schema("value string").load(str(lines))
        run(frame, tmp_path / "journal", checkpoint, **options)

    return take


@pytest.fixture
def sink(tmp_path: Path) -> StagingSink:
    return StagingSink(VALUE, {"path": str(tmp_path / "journal")}, False)


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
