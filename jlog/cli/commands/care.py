"""`jlogtool verify`, `clean` and `restore`: looking after a journal."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import jlog
from jlog.archive import Archive
from jlog.archive import restore as restore_archive
from jlog.cli.arguments.parameters import checked, is_archive, journal_argument, journal_or_archive_argument
from jlog.cli.exits import DAMAGED
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import describe_ahead, json_option, print_fields, print_json, print_table
from jlog.cli.terminal.progress import on_terminal, progress_bar, working
from jlog.errors import JournalError
from jlog.spark import clean as remove_staged_rows

# The times of a segment are left out: they stand in its file, which may be gone.
SEGMENT_FIELDS = ("path", "first_sequence", "records", "size_bytes", "sealed", "reason")


@click.command()
@journal_or_archive_argument
@json_option
def verify(journal: str, as_json: bool) -> None:
    """Read and check every retained byte of JOURNAL. Changes nothing, and other processes may write meanwhile.

    Exits with 3 when something is damaged. Each damaged place is listed with its file, the byte at which it begins, and
    the number of records that it cost. `skipped` lists the gaps, sequences without a record; they are not damage.

    JOURNAL may be an archive, too: its directory, or a URL such as s3://bucket/prefix. Each file is read back and
    compared with what was archived; blocks are not counted.

    \b
    Examples:
      jlogtool verify /var/lib/events
      jlogtool verify --json /var/lib/events | jq .damage
    """
    uncounted = ("blocks",) if is_archive(journal) else ()
    if uncounted:
        report = verify_archive(Archive(journal))
    else:
        opened = jlog.Journal(journal)
        with progress_bar("Verifying", size_of(journal)) as advance:
            report = opened.verify(progress=advance)
    if as_json:
        print_json({name: value for name, value in report_fields(report).items() if name not in uncounted})
    else:
        print_report(report, uncounted)
    if not report.ok:
        raise click.exceptions.Exit(DAMAGED)


def verify_archive(archive: Archive) -> jlog.Report:
    with working("Verifying"):
        damage, segments = archive.verify(), archive.segments()
    damaged = {at.path for at in damage}
    records = sum(segment.records for segment in segments if segment.path not in damaged)
    return jlog.Report(records, 0, len(segments), damage, archive.gaps())


def size_of(journal: str) -> int | None:
    """Returns the bytes to read, for a progress bar; None where nobody sees the bar, or damage hides the size."""
    try:
        return jlog.Journal(journal).size_bytes if on_terminal() else None
    except (JournalError, OSError):
        return None


def report_fields(report: jlog.Report) -> dict[str, Any]:
    return {
        "ok": report.ok,
        "records": report.records,
        "blocks": report.blocks,
        "segments": report.segments,
        "damage": [asdict(damage) for damage in report.damage],
        "skipped": [{"first_sequence": first, "next_sequence": following} for first, following in report.skipped],
        "ahead_seconds": report.ahead_seconds,
    }


def print_report(report: jlog.Report, uncounted: tuple[str, ...] = ()) -> None:
    counts = ("records", "blocks", "segments")
    print_fields(
        [
            ("result", "sound" if report.ok else "damaged"),
            *((name, getattr(report, name)) for name in counts if name not in uncounted),
            *(("skipped", f"{first} to {following - 1}") for first, following in report.skipped),
            *((("clock", describe_ahead(report.ahead_seconds)),) if report.ahead_seconds else ()),
        ]
    )
    if report.damage:
        click.echo()
        print_table(
            ("damaged file", "offset ", "first record ", "lost ", "reason"),
            [(at.path, at.offset, at.first_sequence, at.records_lost, at.reason) for at in report.damage],
        )


@click.command()
@journal_argument
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be removed, and why.")
@json_option
def clean(journal: str, dry_run: bool, as_json: bool) -> None:
    """Remove the segments of JOURNAL that retention lets go, and list them with the reason.

    Commits and rolls do the same by themselves, unless the journal has an archive: then only `clean` copies each
    segment to the archive, reads it back, and removes it here. A segment that could not be archived stays for the next
    `clean`.

    A reason is `read` (every subscriber has read it), `max_bytes` or `max_age`.

    `clean` also removes the rows that Spark has staged for writes that died, if no later run can complete them.

    \b
    Examples:
      jlogtool clean --dry-run /var/lib/events
      jlogtool clean --json /var/lib/events
    """
    opened = jlog.Journal(journal)
    if dry_run or opened.options.retention.archive is None:
        found = opened.clean(dry_run=dry_run)
    else:
        total = sum(segment.size_bytes for segment in opened.clean(dry_run=True))
        with progress_bar("Archiving", total) as advance:
            found = opened.clean(progress=advance)
    died = [] if dry_run else remove_staged_rows(opened.path)
    if died:
        click.echo(f"removed the staged rows of {len(died)} writes of Spark that died", err=True)
    if as_json:
        print_json([{field: getattr(segment, field) for field in SEGMENT_FIELDS} for segment in found])
        return
    print_table(
        ("segment", "first record ", "records ", "size ", "reason"),
        [(one.path, one.first_sequence, one.records, human_bytes(one.size_bytes), one.reason) for one in found],
    )


@click.command()
@click.argument("url")
@journal_argument
def restore(url: str, journal: str) -> None:
    """Create JOURNAL from everything that is archived at URL, with the same sequences.

    URL is the one that `--archive` had; where several journals are archived there, add the uuid of one. JOURNAL must
    not exist. It becomes a journal of its own, which keeps everything and archives nothing until its options are
    changed.

    \b
    Examples:
      jlogtool restore file:///var/archive /tmp/events
      jlogtool restore s3://logs/0f3a61b2c94d4e0db6b27a7f3e1c5d90 /tmp/events
    """
    with checked():
        total = sum(segment.size_bytes for segment in Archive(url).segments())
        with progress_bar("Restoring", total) as advance:
            restore_archive(url, journal, progress=advance)
