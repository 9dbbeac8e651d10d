"""`jlogtool backup`: a copy of a journal that is in use."""

from __future__ import annotations

import click

import jlog
from jlog.cli.arguments.parameters import DIRECTORY, journal_argument
from jlog.cli.commands.care import size_of
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import json_option, print_json
from jlog.cli.terminal.progress import progress_bar


@click.command()
@journal_argument
@click.argument("target", type=DIRECTORY)
@json_option
def backup(journal: str, target: str, as_json: bool) -> None:
    """Copy JOURNAL to the directory TARGET, which must be missing or empty, while other processes write, read and
    clean.

    The copy has every record that was appended before, with subscribers and checkpoints. It is a journal of its own,
    and on the disk when this command ends; to restore it, copy it back. No writer waits meanwhile, but no segment is
    removed until the copy is done. TARGET may lie on a file system where no journal can be written, such as NFS: it can
    be read there.

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
