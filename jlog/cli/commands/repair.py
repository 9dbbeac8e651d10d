"""`jlogtool repair`: makes a damaged journal sound."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import jlog
from jlog.cli.arguments.parameters import journal_argument
from jlog.cli.commands.care import print_report, report_fields, size_of
from jlog.cli.exits import DAMAGED
from jlog.cli.terminal.output import json_option, print_json, print_table
from jlog.cli.terminal.progress import progress_bar


@click.command()
@journal_argument
@click.option("-n", "--dry-run", is_flag=True, help="Change nothing, and say what would be done.")
@json_option
def repair(journal: str, dry_run: bool, as_json: bool) -> None:
    """Make JOURNAL sound again, and keep every record that can still be read, with its sequence.

    The sequences of lost records become a gap, which readers pass and lag does not count. Bytes that cannot be read are
    moved to `quarantine/` in JOURNAL. `lost` lists the lost records; `damage` lists the damaged places, as `verify`
    does.

    No process may write meanwhile, or read as a subscriber; anonymous readers have to be opened anew. It needs disk
    space for the largest segment and for the damaged bytes. A repair that was killed can be run again. Exits with 0
    when JOURNAL is sound afterwards; a dry run exits with 3 when there is something to repair.

    \b
    Examples:
      jlogtool repair --dry-run /var/lib/events
      jlogtool repair /var/lib/events
      jlogtool repair --json /var/lib/events | jq .lost
    """
    total = size_of(journal)
    if total is not None and not dry_run:
        total *= 2  # the repaired segments are verified
    with progress_bar("Repairing", total) as advance:
        report = jlog.Journal.repair_at(journal, dry_run=dry_run, progress=advance)
    if as_json:
        print_json(repair_fields(report))
    else:
        print_report(report)
        print_actions(report, dry_run)
    if not report.ok or (dry_run and report.actions):
        raise click.exceptions.Exit(DAMAGED)


def repair_fields(report: jlog.RepairReport) -> dict[str, Any]:
    return {
        **report_fields(report),
        "lost": [{"first_sequence": first, "next_sequence": following} for first, following in report.lost],
        "actions": [asdict(action) for action in report.actions],
    }


def print_actions(report: jlog.RepairReport, dry_run: bool) -> None:
    for first, following in report.lost:
        click.echo(f"\nlost: records {first} to {following - 1}")
    if report.actions:
        click.echo()
        done = "what would be done" if dry_run else "what was done"
        print_table(("file", done), [(action.path, action.text) for action in report.actions])
    else:
        click.echo("\nThere is nothing to do.")
