"""Compares settings of Spark, with a source that costs nothing (spark_ceiling.py). Each setting has a session of its own, and
the sessions take turns, query by query, so that other work of the machine slows them alike.

    .venv/bin/python bench/spark_settings.py --rounds 9 --setting spark.python.unix.domain.socket.enabled=false
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

from spark_ceiling import constant, register
from spark_source import SPARK

from jlog.bench.contest import Spread

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

RECORDS, PARTITIONS, VALUE_BYTES, WARM_UP = 5_000_000, 8, 100, 3
COLUMNS = {"count": "sequence bigint", "sum": "value binary", "all": "sequence bigint, timestamp timestamp, value binary"}
QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "count": lambda frame: frame.count(),
    "sum": lambda frame: frame.selectExpr("sum(length(value))").first(),
    "all": lambda frame: frame.write.format("noop").mode("overwrite").save(),
}


def in_arrow(spark: SparkSession, columns: str, records: int, partitions: int, rows: int) -> DataFrame:
    """Returns the same rows without a data source: mapInArrow over a range that has a number for each batch. It needs pandas,
    though it does not use it."""
    fields = [field.split() for field in columns.split(", ")]

    def read(numbers: Any) -> Any:
        from spark_ceiling import ARRAYS, pa

        batch = pa.RecordBatch.from_arrays(
            [ARRAYS[name](rows, VALUE_BYTES) for name, _ in fields], [name for name, _ in fields]
        )
        for part in numbers:
            for _ in range(part.num_rows):
                yield batch

    return spark.range(round(records / rows), numPartitions=partitions).mapInArrow(read, columns)


def serve(settings: dict[str, str]) -> None:
    """Answers each query on a line of stdin with its seconds. These settings are not Spark's: `records`, `partitions`, `rows`
    of a batch, and `way`, which is `source` or `map`."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))
    rows, partitions = int(settings.pop("rows", "32768")), int(settings.pop("partitions", PARTITIONS))
    records, way = int(settings.pop("records", RECORDS)), settings.pop("way", "source")
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**SPARK, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    for line in sys.stdin:
        query = line.strip()
        begin = perf_counter()
        if way == "source":
            frame = constant(spark, COLUMNS[query], records, partitions, VALUE_BYTES, rows=rows)
        else:
            frame = in_arrow(spark, COLUMNS[query], records, partitions, rows)
        QUERIES[query](frame)
        sys.stdout.write(f"seconds {perf_counter() - begin}\n")
        sys.stdout.flush()


class Session:
    def __init__(self, settings: dict[str, str]) -> None:
        command = [sys.executable, __file__, "--serve", json.dumps(settings)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, query: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(query + "\n")
        self._process.stdin.flush()
        return next(float(line.split()[1]) for line in self._process.stdout if line.startswith("seconds"))

    def end(self) -> None:
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares settings of Spark with its defaults.")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--query", action="append", choices=list(QUERIES))
    parser.add_argument("--base", action="append", default=[], metavar="NAME=VALUE", help="a setting of both sessions")
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help="of the second one alone")
    options = parser.parse_args()
    if options.serve is not None:
        serve(json.loads(options.serve))
        return
    base = dict(setting.split("=", 1) for setting in options.base)
    records = int(base.get("records", RECORDS))
    sessions = [Session(base), Session({**base, **dict(setting.split("=", 1) for setting in options.setting)})]
    for query in options.query or QUERIES:
        ratios, rates = Spread(), (Spread(), Spread())
        for number in range(-WARM_UP, options.rounds):
            turn = [0, 1] if number % 2 == 0 else [1, 0]
            seconds = {which: sessions[which].ask(query) for which in turn}
            if number >= 0:
                ratios.rounds.append(seconds[0] / seconds[1])
                for which in turn:
                    rates[which].rounds.append(records / seconds[which] / 1e6)
        took = [f"{records / rate.median / 1e3:.0f}" for rate in rates]
        sys.stdout.write(
            f"{query:6} {records:,} records: {took[0]} and {took[1]} ms, "
            f"{rates[0].median:.2f} and {rates[1].median:.2f} million records/s, "
            f"ratio {ratios.median:.2f} ({min(ratios.rounds):.2f}-{max(ratios.rounds):.2f})  {' '.join(options.setting)}\n"
        )
        sys.stdout.flush()
    for session in sessions:
        session.end()


if __name__ == "__main__":
    main()
