"""`jlogtool backup`: a copy of a journal that is in use."""

from __future__ import annotations

import click

import jlog
from jlog.cli.arguments.parameters import DIRECTORY, journal_argument
from jlog.cli.commands.care import size_of
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import json_option, print_json
from jlog.cli.terminal.progress import progress_bar


@click.command(short_help="Copy a journal that is in use.")
@journal_argument
@click.argument("target", type=DIRECTORY)
@json_option
def backup(journal: str, target: str, as_json: bool) -> None:
    """Copy JOURNAL to the directory TARGET, which must not exist or be empty, while others write, read and clean.

    What was appended before is in the copy, with subscribers and checkpoints. The copy is a journal of its own, on the disk
    when this ends; to restore it is to copy it back. No writer waits meanwhile; segments are removed when it is done.
    TARGET may lie on a file system on which no journal can be written to, NFS for example: it is read there.

    \b
    Examples:
      jlogtool backup /var/lib/events /mnt/backup/events-2026-11-20
      jlogtool verify /mnt/backup/events-2026-11-20
    """
    opened = jlog.Journal(journal)
    with progress_bar("Copying", size_of(journal)) as advance:
        copy = opened.backup(target, progress=advance)
    if as_json:
        print_json(
            {
                "path": copy.path,
                "first_sequence": copy.first_sequence,
                "next_sequence": copy.next_sequence,
                "records": len(copy),
                "size_bytes": copy.size_bytes,
            }
        )
    else:
        click.echo(f"{copy.path}: {len(copy)} records, {human_bytes(copy.size_bytes)}")
