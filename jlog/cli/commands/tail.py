"""`jlogtool tail`."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import click

import jlog
from jlog.cli.arguments.parameters import is_archive, is_topic, readable_argument
from jlog.cli.records.formats import Format, Formatter, format_options
from jlog.cli.records.matching import Match, grep_options
from jlog.cli.records.past_damage import (
    LOOK_EVERY,
    Reading,
    gaps_of,
    open_reader,
    seek_kept,
    sequence_before,
)
from jlog.cli.records.replay import pace_option, write_records
from jlog.cli.terminal.output import binary_stdout, complain, stdout_is_gone
from jlog.errors import PositionLost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jlog.cli.records.formats import Records
    from jlog.reading.pace import Pace


@click.command()
@readable_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with new records as they are appended.")
@click.option(
    "-n",
    "records",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of records to print.",
)
@grep_options
@format_options
@pace_option
def tail(journal: str, follow: bool, records: int, match: Match | None, output: Format, pace: Pace | None) -> None:
    """Print the last records of JOURNAL.

    With --follow it waits for new records, without using CPU, and prints each as soon as it is appended, until Ctrl-C
    or until nobody reads the output any more. It holds nothing back from retention: `jlogtool read` misses nothing.

    Damaged records are left out: each damaged place has a line on stderr, and the exit code is 3.

    With --grep or --grep-key, N counts the records that are printed: it looks back as far as needed. REGEX is as in
    dump.

    With --pace records come with the intervals of their timestamps. With --follow new records stay as late as the first
    printed one was, unless FACTOR is above 1: then they catch up.

    JOURNAL may be an archive, as in dump; an archive has an end, and is not followed.

    \b
    Examples:
      jlogtool tail /var/lib/events
      jlogtool tail -f -n 0 --format pretty /var/lib/events
      jlogtool tail -f --grep 'error|fatal' -i /var/lib/events
      jlogtool tail -f -n 1000 --pace 5 /var/lib/events
      jlogtool tail -f --json /var/lib/events | jq --unbuffered .value
    """
    if follow and is_archive(journal):
        raise click.UsageError(f"{journal} is an archive, which has an end; follow the journal that archives there")
    to_bytes = output.to_bytes
    out = binary_stdout()
    with open_reader(journal, start="end") as reader:
        reading = Reading(reader)
        end = reader.position
        for piece in _last(journal, reading, end, records, match):
            write_records(out, to_bytes, piece, pace)
        out.flush()
        seek_kept(reader, end)
        while follow and not stdout_is_gone():
            _print_next(reading, to_bytes, out, match, pace)
        reading.finish()


def _last(journal: str, reading: Reading, end: int, records: int, match: Match | None) -> Iterator[Records]:
    """Yields the last so many records before `end` in pieces, oldest first."""
    if not records:
        return
    reader, gaps = reading.reader, gaps_of(journal)
    # The offsets of a topic that are not records, such as the ends of transactions, are seen only where it is read.
    if match is None and not is_topic(journal):
        seek_kept(reader, sequence_before(end, records, gaps))
        while reader.position < end and len(batch := reading.batch(end - reader.position)):
            yield batch
        return
    seek_kept(reader, 0)
    found: list[jlog.RecordProtocol] = []
    for piece in reading.backward(reader.position, end, gaps):
        found += [record for record in piece if match is None or match(record)][: records - len(found)]
        if len(found) == records:
            break
    yield found[::-1]


def _print_next(reading: Reading, to_bytes: Formatter, out: BinaryIO, match: Match | None, pace: Pace | None) -> None:
    try:
        batch = reading.batch(timeout=LOOK_EVERY)
    except PositionLost as lost:
        complain(lost)
        reading.reader.seek(lost.first_sequence)
        return
    records = batch if match is None else [record for record in batch if match(record)]
    if len(records):
        write_records(out, to_bytes, records, pace)
        out.flush()
