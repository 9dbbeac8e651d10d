"""`jlogtool stats`."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import count
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.arguments.parameters import journal_argument
from jlog.cli.terminal import figures
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import json_option, print_fields, print_json, print_table, stdout_is_gone
from jlog.cli.terminal.sampling import Rates, alarm_of, rates
from jlog.system.arguments import SECONDS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER_EVERY = 20  # lines
HEADINGS = ("time", "rec/s", "bytes/s", "flush/s", "sync/s", "roll/s", "wait/s", "wr", "max lag", "size")
LINE = "{:<8} {:>8} {:>10} {:>8} {:>7} {:>7} {:>8} {:>4} {:>9} {:>10}"


@click.command()
@journal_argument
@json_option
@click.option(
    "-i",
    "--interval",
    type=click.FloatRange(0.1, SECONDS_MAX),
    metavar="SECONDS",
    help="Print a line each time, until Ctrl-C or until nobody reads the output.",
)
def stats(journal: str, as_json: bool, interval: float | None) -> None:
    """Show the counters of all processes that use JOURNAL, and the state of the journal and its subscribers.

    Counters begin at boot. With --interval each line has rates per second since the line before, or with --json
    everything as it is now. Changes nothing, and neither waits for writers nor holds them up.

    \b
    Examples:
      jlogtool stats /var/lib/events
      jlogtool stats --interval 5 /var/lib/events
      jlogtool stats --json /var/lib/events | jq '.subscribers[] | select(.dead)'
    """
    watched = jlog.Journal(journal)
    if interval is None:
        found = watched.stats()
        print_json(fields_of(journal, found)) if as_json else print_stats(journal, found)
    elif as_json:
        for found in _looks(watched, interval):
            print_json(fields_of(journal, found))
    else:
        print_rates(watched, interval)


def _looks(journal: jlog.Journal, interval: float) -> Iterator[jlog.Stats]:
    """Yields the statistics at once, and then at equal intervals, as long as the output is read."""
    start = time.monotonic()
    for turn in count(1):
        yield journal.stats()
        time.sleep(max(0.0, start + turn * interval - time.monotonic()))
        if stdout_is_gone():
            return


def fields_of(path: str, found: jlog.Stats) -> dict[str, Any]:
    """Returns the fields that --json prints."""
    fields = asdict(found)
    subscribers = [{"name": name, **asdict(at), "dead": at.dead} for name, at in found.subscribers.items()]
    return {"path": path, "time": datetime.now(timezone.utc), **fields, "subscribers": subscribers}


def print_stats(path: str, found: jlog.Stats) -> None:
    fields = asdict(found)
    del fields["subscribers"], fields["counters"]
    named = {"appends": "records", "bytes": "raw_bytes"}
    others = set(found.counters) - {named.get(name, name) for name in fields}
    fields.update((name, found.counters[name]) for name in sorted(others))
    print_fields([("path", path), *((name, _in_words(name, value)) for name, value in fields.items())])
    if found.subscribers:
        click.echo()
        print_table(
            ("subscriber", "sequence ", "lag ", "oldest ", "idle ", "held ", "read", "state"),
            [
                (
                    name,
                    at.sequence,
                    at.lag,
                    figures.span(at.oldest_unread_seconds),
                    figures.span(at.idle_seconds),
                    human_bytes(at.held_bytes),
                    "yes" if at.busy else "no",
                    alarm_of(at),
                )
                for name, at in found.subscribers.items()
            ],
        )


def _in_words(name: str, value: int) -> str:
    return human_bytes(value) if name == "bytes" or name.endswith("_bytes") else str(value)


def print_rates(journal: jlog.Journal, interval: float) -> None:
    """Prints a line for each interval. The first line has no rates."""
    before: jlog.Stats | None = None
    looked = 0.0
    for line, found in enumerate(_looks(journal, interval)):
        now = time.monotonic()
        if line % HEADER_EVERY == 0:
            click.echo(LINE.format(*HEADINGS))
        moved = rates(before, found, now - looked) if before else None
        click.echo(_rates_line(found, moved))
        before, looked = found, now


def _rates_line(found: jlog.Stats, moved: Rates | None) -> str:
    names = ("records", "bytes", "flushes", "syncs", "rolls", "waits")
    shown = {name: getattr(moved, name) if moved else None for name in names}
    return LINE.format(
        time.strftime("%H:%M:%S"),
        figures.rate(shown["records"]),
        figures.size(shown["bytes"]),
        *(figures.rate(shown[name]) for name in names[2:]),
        found.writers,
        figures.count(max((at.lag for at in found.subscribers.values()), default=0)),
        figures.size(found.size_bytes),
    )
