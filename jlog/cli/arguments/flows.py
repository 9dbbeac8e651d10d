"""Options of the commands that move records from one end to the other."""

from __future__ import annotations

import os

import click

from jlog.cli.arguments.click_parts import AddOptions, together
from jlog.cli.arguments.parameters import POSITION, checked
from jlog.cli.arguments.topics import kafka, topic_settings
from jlog.cli.terminal.output import json_option
from jlog.options import COMPRESSIONS, SYNCS
from jlog.urls import path_of

linger_option: AddOptions = click.option(
    "--linger",
    type=float,
    metavar="SECONDS",
    default=0.1,
    show_default=True,
    help="How long a transaction waits for more records; 0.01 for a low latency.",
)
metrics_option: AddOptions = click.option("--metrics", metavar="HOST:PORT", help="Serve Prometheus counters there.")
# Of both directions.
flow_options: AddOptions = together(
    topic_settings,
    json_option,
    click.option("-n", "--dry-run", is_flag=True, help="Only say what would be done."),
    metrics_option,
    linger_option,
    click.option("--rate", type=float, metavar="N", help="At most N records a second."),
    click.option(
        "--transform", metavar="MODULE:FUNCTION", help="Function from a record to a record, a list of records, or None."
    ),
    click.option("--skip-missing", is_flag=True, help="Go on after records that retention has removed."),
    click.option("--start", type=POSITION, default="begin", show_default=True, help="Where a new mirror begins."),
    click.option("--until-end", is_flag=True, help="End where the source ends now; without it: follow."),
)
key_option: AddOptions = click.option(
    "--key", default="record", show_default=True, help="A message's key: record, none or header:NAME."
)

refused_options: AddOptions = together(
    click.option(
        "--refused",
        type=click.Choice(["stop", "skip", "dead-letter"]),
        default="stop",
        show_default=True,
        help="Treatment of a record that the sink or the transform refuses.",
    ),
    click.option(
        "--dead-letter",
        metavar="PLACE",
        help="Topic or journal for refused records, with --refused dead-letter.  [default: that of the sink, and .refused]",
    ),
)
journal_sink_options: AddOptions = together(
    click.option("--sync", type=click.Choice(SYNCS), help="Durability of the journal, from now on."),
    click.option("--compression", type=click.Choice(COMPRESSIONS), help="Compression of the journal, from now on."),
)


def dead_letter_place(refused: str, dead_letter: str | None, sink: str) -> str | None:
    """Returns where dead letters go: by default beside the sink, into a topic or a journal."""
    if refused != "dead-letter" or dead_letter is not None:
        return dead_letter
    with checked():
        path = path_of(sink)
        return f"{kafka().parse(sink).topic}.refused" if path is None else f"{os.path.abspath(path)}.refused"
