"""Runs a declarative pipeline over a journal, kills Spark in the middle, runs it again, and proves that each record is a row of
its table exactly once.

`python run.py` works in a temporary directory, `python run.py DIRECTORY` in a new directory that it leaves there.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import jlog

HERE = Path(__file__).parent
FATAL_BATCH = 2
STARTS = 5  # Spark fails a query whose Python worker needs more than ten seconds to start. The next start goes on


class Pipeline:
    """The pipeline in a directory of its own, which has its tables too."""

    def __init__(self, folder: Path, journal: Path) -> None:
        shutil.copytree(HERE / "transformations", folder / "transformations")
        spec = (HERE / "spark-pipeline.yml").read_text()
        (folder / "spark-pipeline.yml").write_text(spec.replace("file:///var/lib/orders-pipeline", f"file://{folder}/storage"))
        self._folder = folder
        self._environment = {**os.environ, "JOURNAL": str(journal), "PYSPARK_PYTHON": sys.executable}

    @contextmanager
    def started(self) -> Iterator[subprocess.Popen[bytes]]:
        """Starts a run, and kills all of Spark at the end of the context, also after Ctrl-C. Hive's catalog stays on the disk;
        with Spark's default one, the next run would not know the tables."""
        tool = Path(sys.executable).with_name("spark-pipelines")
        command = [str(tool), "--conf", "spark.sql.catalogImplementation=hive", "run"]
        process = subprocess.Popen(command, cwd=self._folder, env=self._environment, start_new_session=True)
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def ends_well(self) -> bool:
        with self.started() as process:
            return process.wait() == 0

    def files(self) -> set[Path]:
        return set((self._folder / "spark-warehouse" / "orders").glob("*.parquet"))

    def has_begun(self, batch: int) -> bool:
        return any(self._folder.glob(f"storage/**/offsets/{batch}"))

    def was_killed(self) -> bool:
        """Kills all of Spark when FATAL_BATCH, or a later batch, begins to write its rows. Returns False if it ended before."""
        before: set[Path] | None = None
        with self.started() as process:
            while process.poll() is None:
                if before is None and self.has_begun(FATAL_BATCH):
                    before = self.files()
                if before is not None and self.files() != before:
                    return True
                time.sleep(0.01)
            return False

    def rows(self) -> list[tuple[int, str]]:
        spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", value=False).getOrCreate()
        try:
            found = spark.read.parquet(str(self._folder / "spark-warehouse" / "orders")).select("sequence", "value").collect()
        finally:
            spark.stop()
        return sorted(tuple(row) for row in found)


def append(journal: Path, numbers: range) -> None:
    with jlog.Writer(journal) as writer:
        writer.extend([b'{"order": %d, "customer": "%d"}' % (number, number % 7) for number in numbers])


def run_all(folder: Path) -> None:
    journal = folder / "orders"
    append(journal, range(3000))
    pipeline = Pipeline(folder, journal)
    check(any(pipeline.was_killed() for _ in range(STARTS)), "the pipeline ended again and again before it could be killed")
    print("Spark was killed within a batch", flush=True)
    append(journal, range(3000, 4000))
    check(any(pipeline.ends_well() for _ in range(STARTS)), "the pipeline failed again and again")
    rows = pipeline.rows()
    with jlog.Reader(journal, start="begin") as reader:
        records = [(record.sequence, (record.value or b"").decode()) for record in reader]
    print(f"{len(records)} records in the journal, {len(rows)} rows in the table")
    check(rows == records, "the table does not have each record once")
    print("each record is a row exactly once")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"FAILED: {otherwise}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.mkdir(sys.argv[1])
        run_all(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            run_all(Path(temporary))
