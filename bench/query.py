"""Measures questions to a journal of log lines in JSON, beside the same lines as Parquet and as a file: a count, a group by a
field, a stretch of time, and a search for a text. `python bench/query.py --help`."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import duckdb
import polars
import pyarrow.parquet

import jlog
from jlog.query import duckdb_sql

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN_US = 1_790_000_000_000_000
STEP_US = 1_000
CHUNK = 100_000
LEVELS = ["INFO"] * 90 + ["WARN"] * 8 + ["ERROR"] * 2
NEEDLE = "timeout of shard 77"  # in one line of 10,000


def line(number: int) -> str:
    level = LEVELS[number % 100]
    what = NEEDLE if number % 10_000 == 777 else f"request {number} was answered"
    return f'{{"level":"{level}","ms":{number % 1009},"path":"/api/v1/items/{number % 9973}","message":"{what}"}}'


def create(folder: Path, records: int) -> None:
    """Writes the journal, the Parquet file and the file of lines. In the lines the time is a field."""
    schema = pyarrow.schema(
        {"sequence": pyarrow.int64(), "timestamp": pyarrow.timestamp("us", "UTC"), "value": pyarrow.string()}
    )
    with (
        jlog.Writer(folder / "journal") as writer,
        pyarrow.parquet.ParquetWriter(folder / "lines.parquet", schema) as parquet,
        (folder / "lines.jsonl").open("w") as lines,
    ):
        for first in range(0, records, CHUNK):
            numbers = range(first, min(records, first + CHUNK))
            values, times_us = [line(number) for number in numbers], [BEGIN_US + number * STEP_US for number in numbers]
            writer.extend([value.encode() for value in values], timestamps_us=times_us)
            columns = [pyarrow.array(one, kind) for one, kind in zip((numbers, times_us, values), schema.types, strict=True)]
            parquet.write_batch(pyarrow.record_batch(columns, schema=schema), row_group_size=CHUNK)
            lines.writelines(f'{{"timestamp":{at},{value[1:]}\n' for at, value in zip(times_us, values, strict=True))


def ways(folder: Path, records: int) -> dict[str, dict[str, Callable[[], object]]]:
    """Returns for each question the ways to answer it; the first one is that of jlog."""
    connection = duckdb.connect()
    scan = jlog.scan(folder / "journal", text=True)
    parsed = jlog.scan(folder / "journal", parse="json")
    first_us = BEGIN_US + records // 2 * STEP_US
    last_us = first_us + records // 1000 * STEP_US

    def sql(statement: str) -> Callable[[], object]:
        return lambda: connection.sql(statement).fetchall()

    def on_journal(statement: str) -> Callable[[], object]:
        def ask() -> object:
            found = duckdb_sql.execute(connection, statement, {"lines": scan, "parsed": parsed})
            answer = None if found is None else found.fetchall()
            connection.commit()
            return answer

        return ask

    def in_polars(frame: polars.LazyFrame, question: Callable[[polars.LazyFrame], polars.LazyFrame]) -> Callable[[], object]:
        return lambda: question(frame).collect().rows()

    parquet, lines = f"'{folder}/lines.parquet'", f"read_json('{folder}/lines.jsonl', format='newline_delimited')"
    frames = (scan.to_polars(), polars.scan_parquet(folder / "lines.parquet"), polars.scan_ndjson(folder / "lines.jsonl"))
    value, timestamp = polars.col("value"), polars.col("timestamp")
    whole = "SELECT count(value), sum(length(value)) FROM {}"
    grouped = "SELECT value->>'$.level' AS level, count(*) FROM {} GROUP BY 1"
    between = "SELECT count(value) FROM {} WHERE timestamp BETWEEN make_timestamptz({}) AND make_timestamptz({})"
    like = f"SELECT count(*) FROM {{}} WHERE {{}} LIKE '%{NEEDLE}%'"

    def level(frame: polars.LazyFrame) -> polars.LazyFrame:
        return frame.group_by(value.str.json_path_match("$.level")).agg(polars.len())

    def by_level(frame: polars.LazyFrame) -> polars.LazyFrame:
        return frame.group_by("level").agg(polars.len())

    def in_time(frame: polars.LazyFrame) -> polars.LazyFrame:
        since, until = (polars.lit(one).cast(polars.Datetime("us", "UTC")) for one in (first_us, last_us))
        return frame.filter(timestamp.is_between(since, until)).select(value.count())

    def found(frame: polars.LazyFrame) -> polars.LazyFrame:
        return frame.filter(value.str.contains(NEEDLE, literal=True)).select(polars.len())

    tool = Path(sys.executable).with_name("jlogtool")
    ends, newest = "SELECT min(timestamp), max(timestamp) FROM {}", "SELECT * FROM {} ORDER BY sequence DESC LIMIT 10"
    return {
        "how many": {
            "jlog, DuckDB": on_journal("SELECT count(*) FROM lines"),
            "Parquet, DuckDB": sql(f"SELECT count(*) FROM {parquet}"),
            "jlog, Polars": in_polars(frames[0], lambda frame: frame.select(polars.len())),
            "Parquet, Polars": in_polars(frames[1], lambda frame: frame.select(polars.len())),
        },
        "the first and the last time": {
            "jlog, DuckDB": on_journal(ends.format("lines")),
            "Parquet, DuckDB": sql(ends.format(parquet)),
        },
        "the newest ten": {
            "jlog, DuckDB": on_journal(newest.format("lines")),
            "Parquet, DuckDB": sql(newest.format(parquet)),
            "jlog with tail(10), Polars": in_polars(scan.tail(10).to_polars(), lambda frame: frame),
            "Parquet, Polars": in_polars(frames[1], lambda frame: frame.tail(10)),
        },
        "all values: count and length": {
            "jlog, DuckDB": on_journal(whole.format("lines")),
            "Parquet, DuckDB": sql(whole.format(parquet)),
            "JSON lines, DuckDB": sql(f"SELECT count(message), sum(length(message)) FROM {lines}"),
            "jlog, Polars": in_polars(frames[0], lambda frame: frame.select(value.str.len_bytes().sum())),
            "Parquet, Polars": in_polars(frames[1], lambda frame: frame.select(value.str.len_bytes().sum())),
            "JSON lines, Polars": in_polars(frames[2], lambda frame: frame.select(polars.col("message").str.len_bytes().sum())),
        },
        "group by a field of the JSON": {
            "jlog, DuckDB": on_journal(grouped.format("lines")),
            "Parquet, DuckDB": sql(grouped.format(parquet)),
            "JSON lines, DuckDB": sql(f"SELECT level, count(*) FROM {lines} GROUP BY 1"),
            'jlog with parse="json", DuckDB': on_journal("SELECT level, count(*) FROM parsed GROUP BY 1"),
            "jlog, Polars": in_polars(frames[0], level),
            "Parquet, Polars": in_polars(frames[1], level),
            "JSON lines, Polars": in_polars(frames[2], by_level),
            'jlog with parse="json", Polars': in_polars(parsed.to_polars(), by_level),
        },
        "a 1,000th of the time": {
            "jlog, DuckDB": on_journal(between.format("lines", first_us, last_us)),
            "Parquet, DuckDB": sql(between.format(parquet, first_us, last_us)),
            "JSON lines, DuckDB": sql(f"SELECT count(*) FROM {lines} WHERE timestamp BETWEEN {first_us} AND {last_us}"),
            "jlog, Polars": in_polars(frames[0], in_time),
            "Parquet, Polars": in_polars(frames[1], in_time),
            "JSON lines, Polars": in_polars(
                frames[2], lambda frame: frame.filter(timestamp.is_between(first_us, last_us)).select(polars.len())
            ),
        },
        "LIKE": {
            "jlog, DuckDB": on_journal(like.format("lines", "value")),
            "Parquet, DuckDB": sql(like.format(parquet, "value")),
            "JSON lines, DuckDB": sql(like.format(lines, "message")),
            "jlog, Polars": in_polars(frames[0], found),
            "Parquet, Polars": in_polars(frames[1], found),
            "JSON lines, Polars": in_polars(
                frames[2],
                lambda frame: frame.filter(polars.col("message").str.contains(NEEDLE, literal=True)).select(polars.len()),
            ),
            "jlogtool dump --grep": command(tool, "dump", folder / "journal", "--grep", NEEDLE, "--count"),
            **({"ripgrep": command("rg", "-c", NEEDLE, folder / "lines.jsonl")} if shutil.which("rg") else {}),
        },
    }


def command(*words: object) -> Callable[[], object]:
    return lambda: re.findall(rb"\d+", subprocess.run([str(word) for word in words], check=True, capture_output=True).stdout)


def measure(asked: dict[str, dict[str, Callable[[], object]]], rounds: int) -> None:
    for question, by in asked.items():
        taken: dict[str, list[float]] = {name: [] for name in by}
        answers = {}
        for number in range(rounds + 1):  # the first one does not count
            for name, ask in by.items():
                began = perf_counter()
                answers[name] = ask()
                if number:
                    taken[name].append(perf_counter() - began)
        print(f"\n{question}: {answers['jlog, DuckDB']!s:.70}\n")
        print("| | s | least, most | beside jlog, DuckDB |\n|---|---:|---:|---:|")
        own = taken["jlog, DuckDB"]
        for name, found in taken.items():
            ratio = median(one / mine for one, mine in zip(found, own, strict=True))
            print(f"| {name} | {median(found):.3f} | {min(found):.3f}–{max(found):.3f} | {ratio:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", help="where to write the files; a temporary directory by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        create(Path(folder), given.records)
        sizes = {name: jlog.Journal(Path(folder, name)).size_bytes if name == "journal" else os.path.getsize(Path(folder, name))
                 for name in ("journal", "lines.parquet", "lines.jsonl")}  # fmt: skip
        print(f"{given.records:,} lines; MB:", {name: size // 1_000_000 for name, size in sizes.items()})
        measure(ways(Path(folder), given.records), given.rounds)


if __name__ == "__main__":
    main()
