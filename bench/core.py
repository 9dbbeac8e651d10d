"""Measures jlog beside a plain file, in one run and in turns. `make bench`; ARGS='--quick' for a first look.

Targets are printed beside what was measured, never asserted: on a busy machine every number is noise.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import mirroring
import spark_sink
import spark_source
from contests import CONTESTS
from latency import Latency, latency
from mirror_latency import mirror_latency
from rich.console import Console
from rich.table import Table

import brokers
from jlog.bench import CHUNK_RECORDS, ContestSettings, Load, Result, Spread, has_failpoints, hold, machine

LATENCY, MIRROR_LATENCY, PLANNING = "latency", "mirror-latency", "spark-planning"
FREE_BYTES = 4 << 30  # the largest journal twice: the kernel may not have given the space of the last one back yet
NAMES = [contest.name for contest in CONTESTS] + [LATENCY, MIRROR_LATENCY, PLANNING]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures jlog beside a plain file, in one run and in turns.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, in 3 rounds: a first look, not numbers")
    parser.add_argument("--records", type=int, help="of a run (default: 1,000,000)")
    parser.add_argument("--rounds", type=int, help="that count (default: 7)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there")
    parser.add_argument("--only", action="append", metavar="NAME", help=f"may be repeated; one of {', '.join(NAMES)}")
    parser.add_argument("--dir", type=Path, default=Path(), help="where the data goes for the time (default: here)")
    found = parser.parse_args()
    unknown = sorted(set(found.only or ()) - set(NAMES))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if (found.rounds is not None and found.rounds < 1) or (found.records is not None and found.records < CHUNK_RECORDS):
        parser.error(f"at least 1 round, and {CHUNK_RECORDS:,} records")
    return found


def settings_of(options: argparse.Namespace, directory: Path) -> ContestSettings:
    records = options.records or (100_000 if options.quick else 1_000_000)
    return ContestSettings(
        directory=directory,
        load=Load(records).whole(processes=2),
        rounds=options.rounds or (3 if options.quick else 7),
    )


def main() -> None:
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as directory:
        settings = settings_of(options, Path(directory))
        if shutil.disk_usage(directory).free < FREE_BYTES:
            console.print(f"less than {FREE_BYTES >> 30} GiB of free space may not be enough; take another --dir", style="red")
        about = machine(settings.directory)
        for name, value in about.items():
            console.print(f"{name:>12}  {value}")
        if has_failpoints():
            console.print("built with fail points, for the tests: these numbers are not jlog's", style="red")
        report = measure(set(options.only or NAMES), settings, console)
    if options.json:
        shown = {
            "records": settings.load.records,
            "rounds": settings.rounds,
            "value_bytes": settings.load.value_bytes,
        }
        options.json.write_text(json.dumps({"machine": about, "settings": shown, **report}, indent=2) + "\n")


def measure(wanted: set[str], settings: ContestSettings, console: Console) -> dict[str, Any]:
    results: list[Result] = []
    latencies: dict[str, Latency] = {}
    plans: Spread | None = None
    with console.status("") as status:
        for contest in CONTESTS:
            if contest.name in wanted and contest in mirroring.CONTESTS and (why := brokers.missing()):
                console.print(f"{contest.name}: left out, since there can be no broker: {why}", style="red")
            elif (
                contest.name in wanted
                and contest in [*spark_sink.CONTESTS, *spark_source.CONTESTS]
                and (why := spark_source.missing())
            ):
                console.print(f"{contest.name}: left out, since there can be no Spark: {why}", style="red")
            elif contest.name in wanted:
                status.update(contest.name)
                results.append(hold(contest, settings))
                console.print(rate_line(results[-1]))  # results are printed even if a later contest fails
        if LATENCY in wanted:
            status.update(LATENCY)
            latencies = latency(settings)
        if MIRROR_LATENCY in wanted and not brokers.missing():
            status.update(MIRROR_LATENCY)
            latencies |= mirror_latency(settings)
        if PLANNING in wanted and not spark_source.missing():
            status.update(PLANNING)
            plans = spark_source.planning(settings)
    if results:
        console.print(rates_table(results, settings))
    if latencies:
        console.print(latency_table(latencies))
    if plans:
        planned = f"{spark_source.segments_of(settings):,} segments into partitions of Spark's"
        console.print(f"Milliseconds to cut {planned}: {spread(plans, digits=0)}, target {spark_source.PLANNING_TARGET}")
    return {
        "contests": [fields_of(result) for result in results],
        "latency": {
            name: {"unit": "µs", "median": at.half.as_json(), "99 %": at.most.as_json()} for name, at in latencies.items()
        },
        PLANNING: {"unit": "ms", "target": spark_source.PLANNING_TARGET, **plans.as_json()} if plans else None,
    }


def fields_of(result: Result) -> dict[str, Any]:
    return {
        "name": result.contest.name,
        "target": result.contest.target,
        "unit": "records/s",
        "ours": {"name": result.ours_name, **result.ours.as_json()},
        "rival": {"name": result.rival_name, **result.rival.as_json()},
        "ratio": result.ratio.as_json(),
    }


def spread(found: Spread, scale: float = 1, digits: int = 2) -> str:
    median, low, high = (f"{value / scale:.{digits}f}" for value in (found.median, min(found.rounds), max(found.rounds)))
    return f"{median} ({low}–{high})"


def rate_line(result: Result) -> str:
    return f"{result.ours_name}: {spread(result.ours, 1e6)}, {spread(result.ratio)} times {result.rival_name}"


def rates_table(results: list[Result], settings: ContestSettings) -> Table:
    table = Table(
        title=f"Million records/s of {settings.load.value_bytes} bytes, {settings.load.records:,} a round: "
        f"median (min–max) of {settings.rounds} rounds",
        title_justify="left",
        show_lines=True,
    )
    table.add_column("")
    for column in ("rate", "ratio", "target"):
        table.add_column(column, justify="right", no_wrap=True)
    for result in results:
        table.add_row(
            f"{result.ours_name}\n  {result.rival_name}",
            f"{spread(result.ours, 1e6)}\n{spread(result.rival, 1e6)}",
            spread(result.ratio),
            result.contest.target,
        )
    return table


def latency_table(found: dict[str, Latency]) -> Table:
    table = Table(
        title="Microseconds from one process to another, which sleeps: median (min–max) of the rounds",
        title_justify="left",
    )
    for column in ("", "half of them", "99 of 100"):
        table.add_column(column, justify="right" if column else "left")
    for name, at in found.items():
        table.add_row(name, spread(at.half, digits=0), spread(at.most, digits=0))
    return table


if __name__ == "__main__":
    main()
