"""`jlogtool top`."""

from __future__ import annotations

import importlib
import os
import sys
import time

import click

from jlog.cli.arguments.parameters import DIRECTORY
from jlog.cli.terminal.sampling import Sampler
from jlog.system.arguments import SECONDS_MAX


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
    and the bytes that it holds back. `?` lists the keys, `q` quits. Changes nothing and holds nothing back.

    Where stdin or stdout is not a terminal it looks twice, one interval apart, prints the result as plain text and ends;
    programs use `jlogtool stats`.

    \b
    Examples:
      jlogtool top /var/lib/events
      jlogtool top -i 0.5 /var/lib
      jlogtool top /var/lib/events < /dev/null | head
    """
    sampler = Sampler(paths or (".",))
    live = importlib.import_module("jlog.cli.terminal.live")
    if on_terminal():
        raise click.exceptions.Exit(live.watch(sampler, interval))
    sampler.look()
    time.sleep(interval)
    live.print_snapshot(sampler.look())


def on_terminal() -> bool:
    """Says whether there is a terminal to read keys from and to draw on."""
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return not dumb and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
