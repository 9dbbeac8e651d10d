"""`jlogtool checkpoint`."""

from __future__ import annotations

import click

from jlog.cli.arguments.groups import Group
from jlog.cli.arguments.parameters import CHECKPOINT, POSITION, PositionArgument, checked, journal_or_topic_argument
from jlog.cli.commands.subscribers import print_positions
from jlog.cli.terminal.output import json_option
from jlog.urls import open_journal


@click.group(cls=Group)
def checkpoint() -> None:
    """Checkpoints: named positions to rewind to, which hold records back as a subscriber does.

    Names follow the rules of subscribers' names (`jlogtool subscriber --help`).
    """


@checkpoint.command("ls", short_help="List the checkpoints.")
@journal_or_topic_argument
@json_option
def list_checkpoints(journal: str, as_json: bool) -> None:
    """List the checkpoints of JOURNAL, and how many records follow each.

    \b
    Examples:
      jlogtool checkpoint ls /var/lib/events
      jlogtool checkpoint ls --json /var/lib/events
    """
    print_positions(open_journal(journal).checkpoints(), ("sequence", "lag"), as_json)


@checkpoint.command("set", short_help="Create or move a checkpoint.")
@journal_or_topic_argument
@click.argument("name", type=CHECKPOINT)
@click.argument("position", type=POSITION)
def set_checkpoint(journal: str, name: str, position: PositionArgument) -> None:
    """Create the checkpoint NAME at POSITION, or move it there.

    POSITION is `begin`, `end`, a sequence, an ISO time with its offset (the first record at or after it), or the name
    of a checkpoint.

    \b
    Examples:
      jlogtool checkpoint set /var/lib/events before-upgrade end
      jlogtool checkpoint set /var/lib/events noon 2026-11-20T12:00:00Z
    """
    with checked():
        open_journal(journal).set_checkpoint(name, position)


@checkpoint.command("rm", short_help="Remove a checkpoint.")
@journal_or_topic_argument
@click.argument("name", type=CHECKPOINT)
def remove_checkpoint(journal: str, name: str) -> None:
    """Remove the checkpoint NAME. Records that only it held back may then be removed.

    \b
    Example:
      jlogtool checkpoint rm /var/lib/events before-upgrade
    """
    with checked():
        open_journal(journal).remove_checkpoint(name)
