"""`jlogtool work-ls`, `work-release` and `work-reject`: list what workers have in work, and act on it."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Any

import click

from jlog.cli.arguments.parameters import checked, journal_argument
from jlog.cli.process import DAMAGED
from jlog.cli.terminal.output import complain, json_option, print_json, print_table
from jlog.errors import CorruptJournal


@click.command("work-ls")
@journal_argument
@click.argument("name")
@json_option
def work_ls(journal: str, name: str, as_json: bool) -> None:
    """List the records of the shared subscriber NAME that are taken, delayed or failed. A damaged record has neither a key nor
    an age: a line on stderr names it, and the exit code is 3.

    \b
    Examples:
      jlogtool work-ls /var/lib/jobs resize
      jlogtool work-ls /var/lib/jobs resize --json | jq '.[].failures'
    """
    from jlog.working.acting import unfinished

    damage: list[CorruptJournal] = []
    with checked():
        found = [asdict(each) | _key(each.key) for each in unfinished(journal, name, damage.append)]
    if as_json:
        print_json(found)
    else:
        _print(found)
    for error in {str(error): error for error in damage}.values():  # records of one block have the same
        complain(error)
    if damage:
        raise click.exceptions.Exit(DAMAGED)


def _print(found: list[dict[str, Any]]) -> None:
    columns = ["sequence ", "key", "state", "age ", "attempt ", "failures ", "pid ", "reason"]
    print_table(columns, [["" if row[c.strip()] is None else str(row[c.strip()]) for c in columns] for row in found])


def _key(key: bytes | None) -> dict[str, Any]:
    if key is None:
        return {"key": None}
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key": None, "key_base64": base64.b64encode(key).decode()}


@click.command("work-release")
@journal_argument
@click.argument("name")
@click.argument("sequence", type=click.IntRange(min=0))
def work_release(journal: str, name: str, sequence: int) -> None:
    """Take the record SEQUENCE from the worker that has it, or out of its delay, and give it back, without a failure. That
    worker cannot finish it any more.

    \b
    Example:
      jlogtool work-release /var/lib/jobs resize 20
    """
    from jlog.working.acting import release

    with checked():
        release(journal, name, sequence)


@click.command("work-reject")
@journal_argument
@click.argument("name")
@click.argument("sequence", type=click.IntRange(min=0))
@click.option("--reason", default="rejected by work-reject", show_default=True, metavar="TEXT", help="For the dead letter.")
def work_reject(journal: str, name: str, sequence: int, reason: str) -> None:
    """Take the record SEQUENCE from the worker that has it, or out of its delay, and reject it: it is finished, and goes to the
    dead letters if there are any. If these cannot be opened, or the record is damaged, the record stays where it is.

    \b
    Example:
      jlogtool work-reject /var/lib/jobs resize 21 --reason "a picture of 4 GB"
    """
    from jlog.working.acting import reject

    with checked():
        reject(journal, name, sequence, reason)
