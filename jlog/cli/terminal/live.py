"""The display of `jlogtool top`, on a terminal and elsewhere."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, NoReturn

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from jlog.cli.process import FAILED, ended_orderly
from jlog.cli.terminal.output import complain, print_table
from jlog.cli.terminal.tables import JOURNALS, SUBSCRIBERS, error_line, live_table, plain_table, subscriber_rows

if TYPE_CHECKING:
    from jlog.cli.terminal.sampling import Sample, Sampler

FIRST_RATES_AFTER = 0.5  # seconds
LINES_AROUND = 4  # the title, the two headers, and the empty line between the tables


def watch(sampler: Sampler, interval: float) -> NoReturn:
    """Shows the journals on the terminal until a signal ends the command."""
    console = Console(highlight=False)
    samples, patience = sampler.look(), min(FIRST_RATES_AFTER, interval)
    with ended_orderly(), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            console.size = os.get_terminal_size(sys.stdout.fileno())  # whatever COLUMNS and LINES say
            live.update(frame(samples, *console.size), refresh=True)
            time.sleep(patience)
            samples, patience = sampler.look(), interval


def frame(samples: list[Sample], width: int, height: int) -> Group:
    """Returns what a terminal of this size shows. Many journals leave room for the subscribers."""
    subscribers = subscriber_rows(samples)
    readable = [sample for sample in samples if not sample.error]
    unreadable = [sample for sample in samples if sample.error]
    room = max(2, height - LINES_AROUND)
    for_journals = max(1, min(len(samples), max(room // 3, room - len(subscribers))))
    title = f"jlogtool top  {time.strftime('%H:%M:%S')}  Ctrl-C ends  {for_journals} of {len(samples)} journals, "
    title += f"{min(room - for_journals, len(subscribers))} of {len(subscribers)} subscribers"
    return Group(
        Text(title, "bold", no_wrap=True, overflow="crop"),
        live_table(JOURNALS, readable, max(1, for_journals - len(unreadable)), width),
        *map(error_line, unreadable[:for_journals]),
        Text(),
        live_table(SUBSCRIBERS, subscribers, room - for_journals, width),
    )


def print_snapshot(samples: list[Sample]) -> None:
    """Prints everything once, as plain text."""
    print_table(*plain_table(JOURNALS, [sample for sample in samples if not sample.error]))
    subscribers = subscriber_rows(samples)
    if subscribers:
        click.echo()
        print_table(*plain_table(SUBSCRIBERS, subscribers))
    unreadable = [sample for sample in samples if sample.error]
    for sample in unreadable:
        complain(sample.error)
    if unreadable:
        raise click.exceptions.Exit(FAILED)
