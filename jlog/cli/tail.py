"""`jlogtool tail`."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import click

import jlog
from jlog.cli.formats import FORMATS, FRAMINGS, Formatter, formatter
from jlog.cli.output import binary_stdout, complain, stdout_is_gone
from jlog.cli.parameters import journal_argument
from jlog.cli.reading import Reading
from jlog.errors import PositionLost

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_EVERY = 1.0  # seconds: a closed pipe is noticed without a record that is written to it


@click.command(short_help="Print the last records, and follow.")
@journal_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with new records as they are appended.")
@click.option(
    "-n",
    "records",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="How many of the last.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="raw",
    show_default=True,
    help="As of dump.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format jsonl.")
@click.option(
    "--framing", type=click.Choice(FRAMINGS), default="lines", show_default=True, help="Of raw, as of dump."
)
def tail(journal: str, follow: bool, records: int, format_name: str, as_json: bool, framing: str) -> None:
    """Print the last records of JOURNAL.

    With --follow it waits for more, without using CPU, and prints each as soon as it is appended, until Ctrl-C or until
    nobody reads the output any more. It holds nothing back from retention: to miss nothing, read as a subscriber.

    \b
    Examples:
      jlogtool tail /var/lib/events
      jlogtool tail -f -n 0 --format pretty /var/lib/events
      jlogtool tail -f --json /var/lib/events | jq --unbuffered .value
    """
    if framing != "lines" and (as_json or format_name != "raw"):
        raise click.UsageError("--framing is one of --format raw")
    to_bytes = formatter("jsonl" if as_json else format_name, framing)
    out = binary_stdout()
    with jlog.Reader(journal, start="end") as reader:
        _step_back(jlog.Journal(journal), reader, records)
        reading = Reading(reader)
        _print_to_the_end(reading, to_bytes, out)
        while follow and not stdout_is_gone():
            _print_next(reading, to_bytes, out)
        reading.finish()


def _step_back(journal: jlog.Journal, reader: jlog.Reader, records: int) -> None:
    end = reader.position
    while records:
        start = sequence_before(end, records, journal.holes())
        try:
            reader.seek(max(start, journal.first_sequence))
        except PositionLost:
            continue  # removed in this moment
        break


def sequence_before(end: int, records: int, holes: Sequence[tuple[int, int]]) -> int:
    """Where the last so many records before `end` begin. Negative where there are fewer."""
    start = end - records
    for first, following in reversed(holes):
        if start < following <= end:
            start -= following - first
    return start


def _print_to_the_end(reading: Reading, to_bytes: Formatter, out: BinaryIO) -> None:
    end = reading.reader.position + reading.reader.lag
    while reading.reader.position < end and len(batch := reading.batch()):
        out.write(to_bytes(batch))
    out.flush()


def _print_next(reading: Reading, to_bytes: Formatter, out: BinaryIO) -> None:
    try:
        batch = reading.batch(timeout=LOOK_EVERY)
    except PositionLost as lost:
        complain(lost)
        reading.reader.seek(lost.first_sequence)
        return
    if len(batch):
        out.write(to_bytes(batch))
        out.flush()
