"""`jlogtool stats`, `top` and `metrics`: how journals are doing."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from dataclasses import asdict
from datetime import datetime, timezone
from itertools import count
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.arguments.parameters import DIRECTORY, checked, journal_argument
from jlog.cli.process import ENDING, FAILED, notify
from jlog.cli.terminal import figures
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import in_words, json_option, print_fields, print_json, print_table, stdout_is_gone
from jlog.cli.terminal.sampling import COUNTERS, Sampler, alarm_of, rates
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
    words = {name: in_words("raw_bytes" if name == "bytes" else name, value) for name, value in fields.items()}
    print_fields([("path", path), *words.items()])
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


def print_rates(journal: jlog.Journal, interval: float) -> None:
    """Prints a line for each interval. The first line has no rates."""
    before: jlog.Stats | None = None
    looked = 0.0
    for line, found in enumerate(_looks(journal, interval)):
        now = time.monotonic()
        if line % HEADER_EVERY == 0:
            click.echo(LINE.format(*HEADINGS))
        moved = rates(before, found, now - looked).counters if before else dict.fromkeys(COUNTERS)
        shown = [figures.size(moved[name]) if name == "bytes" else figures.rate(moved[name]) for name in COUNTERS]
        lag = figures.count(max((at.lag for at in found.subscribers.values()), default=0))
        click.echo(LINE.format(time.strftime("%H:%M:%S"), *shown, found.writers, lag, figures.size(found.size_bytes)))
        before, looked = found, now


@click.command()
@click.argument("paths", metavar="[JOURNAL | DIR]...", nargs=-1, type=DIRECTORY)
@click.option(
    "-i",
    "--interval",
    type=click.FloatRange(0.1, SECONDS_MAX),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between two looks.",
)
def top(paths: tuple[str, ...], interval: float) -> None:
    """Watch journals, or all that are below a directory (the current one by default), as they are written and read.

    Shows the rates of each journal, and for each subscriber its lag, the change of the lag, the age of its next record
    and the bytes that it holds back; the largest lag comes first. Ctrl-C ends it. Changes nothing and holds nothing
    back. `jlogtool console` sorts, scrolls and shows more.

    Where stdout is not a terminal it looks twice, one interval apart, prints the result as plain text and ends;
    programs use `jlogtool stats`.

    \b
    Examples:
      jlogtool top /var/lib/events
      jlogtool top -i 0.5 /var/lib
      jlogtool top /var/lib/events | head
    """
    sampler = Sampler(paths or (".",))
    from jlog.cli.terminal import live

    if on_terminal():
        live.watch(sampler, interval)
    sampler.look()
    time.sleep(interval)
    live.print_snapshot(sampler.look())


def on_terminal() -> bool:
    """Says whether there is a terminal to draw on."""
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return not dumb and sys.stdout is not None and sys.stdout.isatty()


@click.command()
@click.argument("journals", metavar="JOURNAL...", nargs=-1, required=True, type=DIRECTORY)
@click.option("--listen", metavar="ADDRESS:PORT", help="Serve them over HTTP until SIGTERM or Ctrl-C.")
def metrics(journals: tuple[str, ...], listen: str | None) -> None:
    """Print statistics of each JOURNAL as Prometheus reads them, or serve them at http://ADDRESS:PORT/metrics.

    A journal that cannot be read has `jlog_up 0`, a line on stderr says why, and the others go on. It is tried again
    with each scrape. Where none can be read, the exit code is 1. Needs the extra pyjlog[metrics].

    \b
    Examples:
      jlogtool metrics --listen 127.0.0.1:9464 /var/lib/events /var/lib/orders
      jlogtool metrics --listen :9464 /var/lib/events
      jlogtool metrics /var/lib/events > /var/lib/node_exporter/jlog.prom
    """
    from jlog.metrics import exposition, serve

    if listen is None:
        text = exposition(journals)
        click.echo(text, nl=False)
        if not re.search(r"^jlog_up\{.*\} 1\.0$", text, re.MULTILINE):
            raise click.exceptions.Exit(FAILED)
        return
    # Blocks the signal before the serving threads start, which inherit that: it waits here for sigwait.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    with checked():
        server = serve(journals, listen)
    with server:
        click.echo(f"Serving {server.url}", err=True)
        notify("READY=1")
        signal.sigwait(ENDING)
