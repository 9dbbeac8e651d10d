"""`jlogtool transform`."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from jlog.cli.arguments.flows import dead_letter_place, flow_options, journal_sink_options, key_option, refused_options
from jlog.cli.arguments.parameters import checked
from jlog.cli.arguments.topics import kafka, making_options, take_making
from jlog.cli.commands.mirror import print_plan, run
from jlog.transform import transforming
from jlog.urls import path_of


@click.command()
@click.argument("source")
@click.argument("sink")
@click.option("--subscriber", metavar="NAME", default="", help="Subscriber of SOURCE, where that is a journal.")
@click.option("--read-only", is_flag=True, help="Read a journal without a subscriber: only synced records.")
@click.option("--name", help="Name that tells apart transforms from the same topics to the same topic.")
@key_option
@refused_options
@making_options
@journal_sink_options
@flow_options
def transform(
    source: str,
    sink: str,
    subscriber: str,
    read_only: bool,
    refused: Any,
    dead_letter: str | None,
    key: str,
    sync: str | None,
    compression: str | None,
    **options: Any,
) -> None:
    """Move every record of SOURCE to SINK, changed by --transform, and follow.

    Each of the two is a journal or a Kafka topic. The function is given a record and returns a record, bytes (the same
    record with this value), a list of these, or None to drop it. Every record of SOURCE counts once, whatever is
    killed: SINK stores the position in SOURCE together with the records.

    --dry-run reads the records that SOURCE has now and runs the function, but writes nothing at either end: it prints
    how many records were read, made and refused.

    SINK is created if there is none. Of the options, --key and those of a topic's size are for a topic, --sync and
    --compression for a journal.

    \b
    Examples:
      jlogtool transform --transform clean:strip /var/lib/raw /var/lib/clean
      jlogtool transform --transform clean:strip kafka://host/raw kafka://host/ok
    """
    if not options["transform"]:
        raise click.UsageError("give --transform MODULE:FUNCTION, which changes each record")
    with checked():
        to_topic = path_of(sink) is None
        if to_topic or path_of(source) is None:
            kafka()
    own = take_making(options, to_topic)
    own |= {name: value for name, value in (("sync", sync), ("compression", compression)) if value is not None}
    if key != "record":
        own["key"] = key
    own["dead_letter"] = dead_letter_place(refused, dead_letter, sink)
    dry_run = options["dry_run"]
    options["until_end"] |= dry_run
    make = partial(
        transforming,
        source,
        sink,
        subscriber=None if read_only else subscriber,
        name=options.pop("name"),
        refused="skip" if dry_run and refused == "stop" else refused,
        trial=dry_run,
        **own,
    )
    flow = run(f"{source} to {sink}", make, options)
    if dry_run:
        print_plan({"records": flow.stats.records, "made": flow.sink.made, "left_out": flow.stats.refused}, options["as_json"])
