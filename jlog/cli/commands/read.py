"""`jlogtool read`: reads and commits as a subscriber."""

from __future__ import annotations

import sys

import click

import jlog
from jlog.cli.arguments.parameters import (
    SUBSCRIBER,
    PositionArgument,
    checked,
    journal_or_topic_argument,
    refuse_beside,
    start_option,
    stop_option,
)
from jlog.cli.records.formats import Format, format_options
from jlog.cli.records.matching import Records
from jlog.cli.records.past_damage import BATCH_RECORDS, LOOK_EVERY, Reading, sequence_at
from jlog.cli.terminal.output import binary_stdout, complain, stdout_is_gone
from jlog.errors import SubscriberNotFound
from jlog.urls import Place


@click.command()
@journal_or_topic_argument
@click.argument("subscriber", type=SUBSCRIBER)
@click.option("-f", "--follow", is_flag=True, help="Go on with new records as they are appended.")
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="End after N records.")
@start_option("Where a new subscriber begins to read.", "--start")
@stop_option(default=None)
@click.option("--no-commit", is_flag=True, help="Leave the subscriber where it stands.")
@format_options
def read(
    journal: Place,
    subscriber: str,
    follow: bool,
    limit: int | None,
    start: PositionArgument,
    stop: PositionArgument | None,
    no_commit: bool,
    output: Format,
) -> None:
    """Print the records that SUBSCRIBER has not committed, oldest first, and commit them. SUBSCRIBER is created if it is
    new; a line on stderr says so.

    Records are committed as soon as the output has taken them. If this process, or the reader of its output, ends
    before that, they are printed again the next time: each record at least once. No other process can read as
    SUBSCRIBER meanwhile.

    POSITION is as in dump: `begin`, `end`, a sequence, the name of a checkpoint, or a time such as 13:30, yesterday or
    1h. With --until it ends before that record, which stays for the next time. Damaged records are left out and
    committed: each damaged place has a line on stderr, and the exit code is 3. With --follow it ends on Ctrl-C, or when
    nobody reads the output any more.

    \b
    Examples:
      jlogtool read /var/lib/events billing
      jlogtool read --follow --json /var/lib/events billing | ./bill
      jlogtool read --limit 1 /var/lib/jobs worker
    """
    if follow:
        refuse_beside("--follow", "stop")
    out = binary_stdout()
    with checked():
        reader = _open(journal, subscriber, start)
    with reader:
        reading = Reading(reader)
        left = sys.maxsize if follow else reader.lag  # the lag as it is now: beside a busy writer the command would never end
        left = left if limit is None else min(left, limit)
        with checked():
            end = sys.maxsize if stop is None else sequence_at(journal, stop)
        committed = reader.position
        while left and reader.position < end and not stdout_is_gone():
            wanted = min(left, BATCH_RECORDS, end - reader.position)
            batch: Records = reading.batch(wanted, timeout=LOOK_EVERY if follow else 0)
            if reader.position > end:  # sequences are missing before the end
                batch = [record for record in batch if record.sequence < end]
            if batch:
                out.write(output.to_bytes(batch))
                out.flush()
                left -= len(batch)
            if not no_commit and reader.position != committed:  # also where there was only damage
                committed = min(reader.position, end)
                reader.commit(committed)
            if not batch and not follow:
                break
        reading.finish()


def _open(journal: Place, subscriber: str, start: PositionArgument) -> jlog.ReaderProtocol:
    """Opens the reader, and says so if it creates the subscriber: a mistyped name would hold records back unnoticed."""
    try:
        return jlog.open_reader(journal, subscriber, start=start, create=False)
    except SubscriberNotFound:
        reader = jlog.open_reader(journal, subscriber, start=start)
    complain(f"new subscriber {subscriber!r}, from sequence {reader.position}")
    return reader
