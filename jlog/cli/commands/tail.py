"""`jlogtool tail`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, BinaryIO

import click

import jlog
from jlog.cli.arguments.parameters import (
    PositionArgument,
    checked,
    readable_argument,
    refuse_beside,
    start_option,
    stop_option,
)
from jlog.cli.records.formats import Format, Formatter, format_options
from jlog.cli.records.matching import Match, grep_options, selected
from jlog.cli.records.past_damage import LOOK_EVERY, Reading, gaps_of, open_reader, seek_kept, sequence_at, sequence_before
from jlog.cli.records.replay import pace_option, write_records
from jlog.cli.terminal.output import binary_stdout, complain, stdout_is_gone
from jlog.errors import PositionLost
from jlog.urls import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jlog.cli.records.matching import Records
    from jlog.reading.pace import Pace


@click.command()
@readable_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with new records as they are appended.")
@click.option(
    "-n",
    "records",
    type=click.IntRange(min=0),
    metavar="N",
    help="Number of records to print.  [default: 10; all from --since on]",
)
@start_option("Only records from there on.", default=None)
@stop_option(default=None)
@grep_options
@format_options
@pace_option
def tail(
    journal: Place,
    follow: bool,
    records: int | None,
    start: PositionArgument | None,
    stop: PositionArgument | None,
    match: Match | None,
    output: Format,
    pace: Pace | None,
) -> None:
    """Print the last records of JOURNAL.

    With --follow it waits for new records, without using CPU, and prints each as soon as it is appended, until Ctrl-C
    or until nobody reads the output any more. It holds nothing back from retention: `jlogtool read` misses nothing.

    Damaged records are left out: each damaged place has a line on stderr, and the exit code is 3.

    With --grep or --grep-key, N counts the records that are printed: it looks back as far as needed. REGEX is as in
    dump.

    --since and --until are positions and times as in dump: `--since 10m` prints what the last ten minutes brought.

    With --pace records come with the intervals of their timestamps. With --follow new records stay as late as the first
    printed one was, unless FACTOR is above 1: then they catch up.

    JOURNAL may be an archive, as in dump; an archive has an end, and is not followed.

    \b
    Examples:
      jlogtool tail /var/lib/events
      jlogtool tail -f -n 0 --format pretty /var/lib/events
      jlogtool tail -f --since 10m /var/lib/events
      jlogtool tail -f --grep 'error|fatal' -i /var/lib/events
      jlogtool tail -f -n 1000 --pace 5 /var/lib/events
      jlogtool tail -f --json /var/lib/events | jq --unbuffered .value
    """
    if follow and journal.is_archive:
        raise click.UsageError(f"{journal} is an archive, which has an end; follow the journal that archives there")
    if follow:
        refuse_beside("--follow", "stop")
    to_bytes = output.showing(match)
    out = binary_stdout()
    with checked():
        first = 0 if start is None else sequence_at(journal, start)
        end = None if stop is None else sequence_at(journal, stop)
    with open_reader(journal, start="end") as reader:
        if isinstance(start, int) and start > reader.position:
            raise click.UsageError(f"{journal} ends at sequence {reader.position}; {start} is beyond it")
        reading = Reading(reader)
        end = reader.position if end is None else min(end, reader.position)
        many = records if records is not None else 10 if start is None else sys.maxsize
        for piece in _last(journal, reading, (first, end), many, match):
            write_records(out, to_bytes, piece, pace)
        seek_kept(reader, end)
        while follow and not stdout_is_gone():
            _print_next(reading, to_bytes, out, match, pace)
        reading.finish()


def _last(journal: Place, reading: Reading, span: tuple[int, int], records: int, match: Match | None) -> Iterator[Records]:
    """Yields the last so many records of the span, from its first sequence to before its end, in pieces, oldest first."""
    first, end = span
    if not records:
        return
    reader, gaps = reading.reader, gaps_of(journal)
    # The offsets of a topic that are not records, such as the ends of transactions, are seen only where it is read.
    counted = match is None and not journal.is_topic
    if counted or records == sys.maxsize:
        seek_kept(reader, max(first, sequence_before(end, records, gaps)) if counted else first)
        for piece in reading.forward(end, needle=match.needle if match else None):
            yield selected(piece, match)
        return
    seek_kept(reader, first)
    found: list[jlog.RecordProtocol] = []
    for piece in reading.backward(reader.position, end, gaps):
        found += selected(piece, match)[: records - len(found)]
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
    if len(records := selected(batch, match)):
        write_records(out, to_bytes, records, pace)
