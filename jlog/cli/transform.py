"""`jlogtool transform`."""

from __future__ import annotations

from typing import Any

import click

from jlog.cli.mirror import flow_options, run
from jlog.transform import transforming


@click.command(short_help="Change records on their way somewhere else.")
@click.argument("source")
@click.argument("sink")
@click.option("--subscriber", metavar="NAME", default="", help="Of a journal, whose position it holds.")
@click.option("--read-only", is_flag=True, help="Hold no subscriber of a journal: read what is synced.")
@click.option(
    "--refused",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What becomes of a record that the sink or the function will not have.",
)
@flow_options
def transform(source: str, sink: str, subscriber: str, read_only: bool, refused: Any, **options: Any) -> None:
    """Move every record of SOURCE to SINK, changed by --transform, and follow.

    Each of the two is a journal or a Kafka topic. The function is given a record and returns a record, bytes (the same
    record with this value), a list of these, or None to drop it. Every record of SOURCE counts once, whatever is killed:
    SINK has the place in SOURCE beside the records.

    \b
    Examples:
      jlogtool transform --transform clean:strip /var/lib/raw /var/lib/clean
      jlogtool transform --transform clean:strip kafka://host/raw kafka://host/ok
    """
    if not options["transform"]:
        raise click.UsageError("--transform MODULE:FUNCTION says what becomes of each record")
    if options["dry_run"]:
        raise click.UsageError("--dry-run cannot tell what a function makes of the records")

    def make(**given: Any) -> Any:
        function = given.pop("function")
        return transforming(
            source, sink, function, subscriber=None if read_only else subscriber, refused=refused, **given
        )

    run(make, options)
