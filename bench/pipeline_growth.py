"""Measures what reading by Spark and a pipeline cost as things grow: segments, archived segments, journals of a stream, batches
of a pipeline, and partition values of a batch. `python bench/pipeline_growth.py --help`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from spark_source import session

import jlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

VALUE = bytes(100)
BATCH_RECORDS = 1_000
BATCHES_COMPARED = 20
ROWS_OF_A_PARTITION = 20

Figures = dict[str, float]


def ms(call: Callable[[], object], rounds: int) -> float:
    """Returns the least milliseconds of a call. The first one, which may have to load modules, does not count."""
    call()
    found = []
    for _ in range(rounds):
        began = perf_counter()
        call()
        found.append((perf_counter() - began) * 1e3)
    return round(min(found), 1)


def reader(path: str, **options: str) -> Any:
    from pyspark.sql.types import LongType, StructField, StructType

    from jlog.spark.reading.batch_reader import batch_reader

    return batch_reader(StructType([StructField("sequence", LongType())]), {"path": path, **options})


def create(path: Path, segments: int, **options: Any) -> None:
    with jlog.Writer(path, segment_bytes=4096, precommit=4096, **options) as writer:
        for _ in range(segments):
            writer.extend([VALUE] * 10)
            writer.roll()


def by_segments(folder: Path, sizes: list[int], rounds: int) -> Iterator[Figures]:
    for segments in sizes:
        path = folder / f"segments-{segments}"
        create(path, segments)
        plan = ms(lambda: reader(str(path)).partitions(), rounds)  # noqa: B023
        yield {"segments": segments, "plan_ms": plan, "plan_us_per_segment": round(plan * 1e3 / segments, 1)}


def by_archive(folder: Path, sizes: list[int], rounds: int) -> Iterator[Figures]:
    for segments in sizes:
        path, url = folder / f"archived-{segments}", f"file://{folder}/archive-{segments}"
        create(path, segments, retention=jlog.Retention(archive=url))
        began = perf_counter()
        jlog.Journal(path).archive()
        archived = (perf_counter() - began) * 1e3
        last = str(jlog.Journal(path).next_sequence - 10)

        def read() -> None:
            found = reader(url, startingSequence=last)  # noqa: B023
            assert sum(batch.num_rows for part in found.partitions() for batch in found.read(part)) == 10

        yield {
            "archived_segments": segments,
            "archive_ms_per_segment": round(archived / segments, 2),
            "last_ten_records_ms": ms(read, rounds),
        }


def by_journals(folder: Path, sizes: list[int], rounds: int) -> Iterator[Figures]:
    from pyspark.sql.types import LongType, StructField, StructType

    from jlog.spark.reading.stream_reader import StreamReader

    schema = StructType([StructField("sequence", LongType())])
    for journals in sizes:
        root = folder / f"root-{journals}"
        for number in range(journals):
            create(root / f"j{number}", 1)
        stream = StreamReader(schema, {"path": str(root), "journalPattern": ".*", "subscriber": "lake"})
        begin = stream.initialOffset()
        end = stream.latestOffset(begin)
        began = perf_counter()
        stream.commit(end)
        committed = (perf_counter() - began) * 1e3
        idle = ms(lambda: stream.latestOffset(end), rounds)  # noqa: B023
        yield {
            "journals": journals,
            "commit_ms_per_journal": round(committed / journals, 3),
            "idle_us_per_journal": round(idle * 1e3 / journals, 1),
        }


def plan_of(folder: Path, name: str, **more: Any) -> Any:
    from jlog.pipeline.parsing import Parser
    from jlog.pipeline.plan import PipelinePlan

    dest = str(folder / f"{name}-table")
    return PipelinePlan(
        (str(folder / name),), dest, f"{dest}.checkpoint", f"{dest}.quarantine", Parser("json"), schema="level string", **more
    )


def by_batches(folder: Path, sizes: list[int], _rounds: int) -> Iterator[Figures]:
    """The time of a batch of one pipeline, after so many others."""
    from jlog.pipeline.pipeline import Pipeline

    with jlog.Writer(folder / "batches") as writer:
        for _ in range(max(sizes)):
            writer.extend([b'{"level": "info"}'] * BATCH_RECORDS)
    seconds: dict[int, float] = {}
    plan = plan_of(folder, "batches", batch_records=BATCH_RECORDS)
    Pipeline(plan, on_batch=lambda report: seconds.update({report["batch"]: report["seconds"]})).run(session())
    for batches in sizes:
        last = [seconds[number] for number in range(batches - BATCHES_COMPARED, batches) if number in seconds]
        yield {"batches": batches, "batch_ms": round(median(last) * 1e3)}


def by_partitions(folder: Path, sizes: list[int], rounds: int) -> Iterator[Figures]:
    """The time of a run of one batch with so many values of a partition column, and of Spark's own write of such rows. That of
    the first size has the start of Spark in it."""
    from jlog.pipeline.pipeline import Pipeline

    for values in sizes:
        seconds, plain = [], []
        for number in range(rounds):
            name = f"partitions-{values}-{number}"
            with jlog.Writer(folder / name) as writer:
                for value in range(values):
                    writer.extend([b'{"level": "l%d"}' % value] * ROWS_OF_A_PARTITION)
            began = perf_counter()
            Pipeline(plan_of(folder, name, partition_by=("level",))).run(session())
            seconds.append(perf_counter() - began)
            frame = session().range(values * ROWS_OF_A_PARTITION).coalesce(1)
            frame = frame.selectExpr("id", f"concat('l', id % {values}) AS level").repartition(1)
            began = perf_counter()
            frame.write.partitionBy("level").parquet(str(folder / f"{name}-plain"))
            plain.append(perf_counter() - began)
        yield {
            "partition_values": values,
            "pipeline_ms_per_value": round(min(seconds) * 1e3 / values, 1),
            "sparks_own_write_ms_per_value": round(min(plain) * 1e3 / values, 1),
        }


CURVES: dict[str, tuple[Callable[..., Iterator[Figures]], tuple[int, ...]]] = {
    "segments": (by_segments, (10, 100, 1_000, 10_000)),
    "archive": (by_archive, (10, 100, 1_000)),
    "journals": (by_journals, (10, 100, 1_000)),
    "batches": (by_batches, (20, 50, 100, 200)),
    "partitions": (by_partitions, (10, 100, 600)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CURVES, nargs="*", default=list(CURVES))
    parser.add_argument("--sizes", type=int, nargs="*", help="in place of the usual ones of a curve")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where journals and tables are created; it should be on a fast disk")
    arguments = parser.parse_args()
    for name in arguments.only:
        measure, sizes = CURVES[name]
        with tempfile.TemporaryDirectory(prefix="jlog-growth-", dir=arguments.dir) as folder:
            for found in measure(Path(folder), arguments.sizes or list(sizes), arguments.rounds):
                sys.stdout.write(json.dumps(found) + "\n")
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
