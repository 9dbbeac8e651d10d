"""`jlogtool doctor`."""

from __future__ import annotations

from dataclasses import asdict

import click

from jlog.cli.arguments.parameters import DIRECTORY
from jlog.cli.doctor import examine, examine_machine
from jlog.cli.exits import DAMAGED, FOUND
from jlog.cli.terminal.output import json_option, print_json


@click.command()
@click.argument("journal", required=False, type=DIRECTORY)
@json_option
def doctor(journal: str | None, as_json: bool) -> None:
    """Say what is wrong with JOURNAL and this machine, or will be, and what to do about it.

    Looks for a position that holds back segments or does not move, for space and limits that run out, a clock that was
    set back, records that no sync covers, a copy, an earlier boot, and damage at the ends of each segment. `verify` reads
    every byte. Changes nothing, and holds nobody up; without JOURNAL it looks at the machine alone.

    Exits with 0 if nothing is found, with 3 if something is damaged, and else with 4.

    \b
    Examples:
      jlogtool doctor
      jlogtool doctor /var/lib/events
      jlogtool doctor --json /var/lib/events | jq -r '.[].check'
    """
    found = [*examine_machine(), *(examine(journal) if journal else ())]
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        for finding in found:
            click.echo(f"{click.style(finding.check, bold=True)}: {finding.found}\n  {finding.advice}")
        if not found:
            click.echo("nothing is wrong")
    if found:
        raise click.exceptions.Exit(DAMAGED if any(finding.check == "damage" for finding in found) else FOUND)
