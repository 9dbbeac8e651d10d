"""`jlogtool archive`."""

from __future__ import annotations

from typing import Any, NoReturn

import click

import jlog
from jlog.care.archive_loop import keep_archived
from jlog.cli.arguments.parameters import Parsed, checked, journal_argument
from jlog.cli.signals import signals_to
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import complain, json_option, print_json, print_table
from jlog.cli.terminal.progress import progress_bar
from jlog.positions.times import parse_duration
from jlog.storage.segments import Segment

FIELDS = ("path", "first_sequence", "records", "size_bytes")


@click.command()
@journal_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C or SIGTERM, and remove what retention lets go.")
@click.option(
    "--every",
    type=Parsed("DURATION", parse_duration),
    help="With --follow: seal the open segment so often, if it has records: 10s, 5m.",
)
@json_option
def archive(journal: str, follow: bool, every: Any, as_json: bool) -> None:
    """Copy the sealed segments of JOURNAL that are not archived yet to its archive, and list them.

    Each is read back. None is removed here: that is the work of `clean`, which does not copy them again. The archive is
    the one that `--archive` of `create` or `options` names.

    With --follow, a segment is archived within a second or so of its sealing, and then removed as soon as retention
    lets it go. An archive that cannot be reached is tried again until it can.

    \b
    Examples:
      jlogtool options --archive s3://logs/archive /var/lib/events
      jlogtool archive /var/lib/events
      jlogtool archive --follow --every 10s /var/lib/events
    """
    if every is not None and not follow:
        raise click.UsageError("--every needs --follow")
    if follow:
        follow_journal(jlog.Journal(journal), None if every is None else every.total_seconds(), as_json)
        return
    with progress_bar("Archiving", None) as advance:
        found = jlog.Journal(journal).archive(progress=advance)
    if as_json:
        print_json([fields(segment) for segment in found])
        return
    print_table(
        ("segment", "first record ", "records ", "size "),
        [(one.path, one.first_sequence, one.records, human_bytes(one.size_bytes)) for one in found],
    )


def fields(segment: Segment) -> dict[str, Any]:
    return {field: getattr(segment, field) for field in FIELDS}


def follow_journal(journal: jlog.Journal, every: float | None, as_json: bool) -> None:
    def seal() -> None:
        with jlog.Writer(journal.path, precommit=0, create=False) as writer:
            writer.roll()

    def show(segment: Segment) -> None:
        if as_json:
            print_json(fields(segment))
        else:
            click.echo(f"{segment.path}: {segment.records} records, {human_bytes(segment.size_bytes)}")

    def end(*_: object) -> NoReturn:
        raise SystemExit(0)

    with signals_to(end), checked():
        keep_archived(
            journal.path,
            every=every,
            seal=seal,
            on_segment=show,
            on_error=lambda error: complain(f"not archived yet, and tried again from time to time: {error}"),
        )
