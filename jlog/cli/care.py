"""`jlogtool verify` and `clean`: looking after a journal."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import jlog
from jlog.cli.exits import DAMAGED
from jlog.cli.output import human_bytes, json_option, print_fields, print_json, print_table
from jlog.cli.parameters import journal_argument
from jlog.cli.progress import on_terminal, progress_bar
from jlog.errors import JournalError

# Without its times: they are in the file, which may be gone.
SEGMENT_FIELDS = ("path", "first_sequence", "records", "size_bytes", "sealed")


@click.command(short_help="Check every byte.")
@journal_argument
@json_option
def verify(journal: str, as_json: bool) -> None:
    """Read and check every byte of JOURNAL that is kept. Changes nothing, and others may write meanwhile.

    Exits with 3 when something is damaged. Each damaged place is listed with its file, the byte at which it begins, and
    how many records it cost. `skipped` lists numbers that no record has; they are no damage.

    \b
    Examples:
      jlogtool verify /var/lib/events
      jlogtool verify --json /var/lib/events | jq .damage
    """
    opened = jlog.Journal(journal)
    with progress_bar("Verifying", size_of(journal)) as advance:
        report = opened.verify(progress=advance)
    if as_json:
        print_json(report_fields(report))
    else:
        print_report(report)
    if not report.ok:
        raise click.exceptions.Exit(DAMAGED)


def size_of(journal: str) -> int | None:
    """Bytes to go, for a progress bar; None where nobody sees it, or damage hides it."""
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
        "skipped": [
            {"first_sequence": first, "next_sequence": following} for first, following in report.skipped
        ],
    }


def print_report(report: jlog.Report) -> None:
    print_fields(
        [
            ("result", "sound" if report.ok else "damaged"),
            ("records", report.records),
            ("blocks", report.blocks),
            ("segments", report.segments),
            *(("skipped", f"{first} to {following - 1}") for first, following in report.skipped),
        ]
    )
    if report.damage:
        click.echo()
        print_table(
            ("damaged file", "offset ", "first record ", "lost ", "reason"),
            [(at.path, at.offset, at.first_sequence, at.records_lost, at.reason) for at in report.damage],
        )


@click.command(short_help="Remove segments that nobody needs.")
@journal_argument
@click.option("-n", "--dry-run", is_flag=True, help="Only list what would be removed.")
@json_option
def clean(journal: str, dry_run: bool, as_json: bool) -> None:
    """Remove the segments of JOURNAL that retention lets go, and list them.

    Commits and rolls do the same by themselves; `clean` is for when none of them comes.

    \b
    Examples:
      jlogtool clean --dry-run /var/lib/events
      jlogtool clean --json /var/lib/events
    """
    found = jlog.Journal(journal).clean(dry_run=dry_run)
    if as_json:
        print_json([{field: getattr(segment, field) for field in SEGMENT_FIELDS} for segment in found])
        return
    print_table(
        ("segment", "first record ", "records ", "size "),
        [
            (segment.path, segment.first_sequence, segment.records, human_bytes(segment.size_bytes))
            for segment in found
        ],
    )
