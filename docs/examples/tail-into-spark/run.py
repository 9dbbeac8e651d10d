"""Tails a journal into Parquet with Spark, kills Spark in the middle, and proves that each record is a row exactly once.

`python run.py` works in a temporary directory, `python run.py DIRECTORY` in a new directory that it leaves there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from multiprocessing import Process
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import jlog
import tail

FATAL_BATCH = 2
STARTS = 5  # Spark fails a query whose Python worker needs more than ten seconds to start. The next start goes on


def produce(journal: str) -> None:
    """Appends records until it is killed."""
    with jlog.Writer(journal) as writer:
        while True:
            writer.extend([b"record %d" % (writer.next_sequence + number) for number in range(20)])
            time.sleep(0.05)


def was_killed(journal: str, table: str) -> bool:
    """Runs the query in a process of its own. Kills all of Spark when FATAL_BATCH, or a later batch, begins to write its rows.
    Returns False if the query failed before."""
    process = subprocess.Popen([sys.executable, tail.__file__, journal, table], start_new_session=True)
    before: set[Path] | None = None
    try:
        while process.poll() is None:
            if before is None and Path(f"{table}.checkpoint", "offsets", str(FATAL_BATCH)).exists():
                before = files(table)
            if before is not None and files(table) != before:
                return True
            time.sleep(0.01)
        return False
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def has_ended(spark: SparkSession, journal: str, table: str) -> bool:
    """Runs the query up to the present end of the journal. Returns False if it failed."""
    try:
        tail.start(spark, journal, table, until_end=True).awaitTermination()
    except StreamingQueryException as error:
        print(error, file=sys.stderr)
        return False
    return True


def files(table: str) -> set[Path]:
    return set(Path(table).glob("*.parquet"))


def run_all(journal: str, table: str) -> None:
    producer = Process(target=produce, args=(journal,), daemon=True)
    producer.start()
    check(any(was_killed(journal, table) for _ in range(STARTS)), "the query failed again and again")
    print(f"Spark was killed: {len(files(table))} files of rows, {len(jlog.Journal(journal))} records in the journal")
    producer.kill()
    producer.join()
    spark = tail.session()
    check(any(has_ended(spark, journal, table) for _ in range(STARTS)), "the query failed again and again")
    print("the next query has read the rest of the journal")
    rows = spark.read.parquet(table).select("sequence", "value").collect()
    spark.stop()
    prove(journal, sorted(tuple(row) for row in rows))


def prove(journal: str, rows: list[tuple[int, str]]) -> None:
    with jlog.Reader(journal) as reader:
        records = [(record.sequence, (record.value or b"").decode()) for record in reader]
    print(f"{len(records)} records in the journal, {len(rows)} rows in the table")
    check(rows == records, "the table does not have each record once")
    print("each record is a row exactly once")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"FAILED: {otherwise}")


def main(folder: str) -> None:
    run_all(os.path.join(folder, "events"), os.path.join(folder, "table"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.mkdir(sys.argv[1])
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
