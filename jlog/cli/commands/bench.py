"""`jlogtool bench`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from jlog.bench import CONTESTS, ContestSettings, Load, Result, Spread, has_failpoints, hold, machine
from jlog.cli.arguments.parameters import DIRECTORY, SIZE
from jlog.cli.process import ended_orderly
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import complain, json_option, print_fields, print_json, print_table
from jlog.cli.terminal.progress import progress_bar

RUN_BYTES = 64 << 20  # bytes of a run, unless --records is given
RECORDS_MAX = 500_000
PREALLOCATED_BYTES = 256 << 20
NAMES = [contest.name for contest in CONTESTS]


@click.command()
@click.option(
    "--records",
    type=click.IntRange(min=1),
    metavar="N",
    help="Records of a round.  [default: as many as make 64M, at most 500,000]",
)
@click.option("--bytes", "value_bytes", type=SIZE, default=100, show_default=True, help="Size of a record.")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    metavar="N",
    help="Measured rounds; one more warms up.",
)
@click.option(
    "--dir",
    "directory",
    type=DIRECTORY,
    default=".",
    metavar="DIR",
    show_default=True,
    help="Directory on the disk and file system to measure.",
)
@click.option(
    "--only",
    type=click.Choice(NAMES),
    multiple=True,
    metavar="NAME",
    help=f"Only this line; may be repeated. One of {', '.join(NAMES)}.",
)
@json_option
def bench(records: int | None, value_bytes: int, rounds: int, directory: str, only: tuple[str, ...], as_json: bool) -> None:
    """Measure how fast records are appended and read on this machine, disk and file system.

    Each line is measured in turns with the same work on a plain file of length-prefixed values, so that other work of
    the machine slows both. The figures are medians, with the least and the greatest of the rounds in brackets; the
    ratio is taken in each round. MB are millions of bytes of values. Reading is from the page cache. On a busy machine
    every number is noise: the spread says how busy it was.

    Works in a temporary directory below DIR, which it removes, on Ctrl-C too.

    \b
    Examples:
      jlogtool bench
      jlogtool bench --dir /mnt/disk --bytes 1K
      jlogtool bench --only append --only durable --json | jq .results
    """
    load = Load(records or max(min(RUN_BYTES // max(value_bytes, 1), RECORDS_MAX), 1), value_bytes).whole()
    with ended_orderly(), tempfile.TemporaryDirectory(prefix="jlog-bench-", dir=directory) as work:
        _check_space(work, load)
        settings = ContestSettings(Path(work), load, rounds)
        about = machine(settings.directory)
        if has_failpoints():
            complain("warning: this jlog was built with fail points, for its tests, and is slower than a release")
        wanted = [contest for contest in CONTESTS if contest.name in (only or NAMES)]
        results = []
        with progress_bar("Measuring", len(wanted), in_bytes=False) as advance:
            for contest in wanted:
                results.append(hold(contest, settings))
                advance(1)
    if as_json:
        shown = {"records": load.records, "bytes": value_bytes, "rounds": rounds}
        print_json({"machine": about, "settings": shown, "results": [_fields(at, load) for at in results]})
        return
    print_fields([*about.items(), ("round", f"{load.records} records of {value_bytes} bytes")])
    click.echo()
    print_table(("", "records/s ", "MB/s ", "ratio "), [row for at in results for row in _rows(at, load)])


def _check_space(directory: str, load: Load) -> None:
    free = shutil.disk_usage(directory).free
    needed = 3 * load.records * (load.value_bytes + 16) + PREALLOCATED_BYTES
    if free < needed:
        raise click.ClickException(
            f"{directory} has {human_bytes(free)} of free space, but {human_bytes(needed)} are needed; give another --dir, or "
            "fewer --records"
        )


def _fields(result: Result, load: Load) -> dict[str, Any]:
    """Returns the fields of a result, with the words of the options. The rival is a plain file here."""
    return {
        "name": result.contest.name,
        "unit": "records/s",
        "jlog": {"name": result.ours_name, **result.ours.as_json()},
        "plain": {"name": result.rival_name, **result.rival.as_json()},
        "ratio": result.ratio.as_json(),
        "mb_per_second": _megabytes(result.ours, load),
    }


def _rows(result: Result, load: Load) -> Iterator[tuple[str, ...]]:
    for name, found, ratio in (
        (result.ours_name, result.ours, _spread(result.ratio)),
        (f"  plain file: {result.rival_name}", result.rival, ""),
    ):
        megabytes = _megabytes(found, load)
        yield name, _rates(found), f"{megabytes:.{1 if megabytes >= 1 else 3}f}", ratio


def _megabytes(found: Spread, load: Load) -> float:
    return found.median * load.value_bytes / 1e6


def _rates(found: Spread) -> str:
    for scale, unit in ((1e6, " M"), (1e3, " k")):
        if found.median >= scale:
            return _spread(found, scale, unit)
    return _spread(found)


def _spread(found: Spread, scale: float = 1, unit: str = "") -> str:
    median, low, high = (f"{rate / scale:.2f}" for rate in (found.median, min(found.rounds), max(found.rounds)))
    return f"{median}{unit} ({low}–{high})"
