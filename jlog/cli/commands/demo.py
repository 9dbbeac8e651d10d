"""`jlogtool demo`."""

from __future__ import annotations

import click

from jlog.cli.arguments.parameters import PATH
from jlog.cli.process import ended_orderly


@click.command()
@click.argument("inputs", metavar="[INPUT]...", nargs=-1, type=PATH)
def demo(inputs: tuple[str, ...]) -> None:
    """Show in a minute how jlog works: on the lines of each INPUT, a file or a directory, or on source files of
    Python's.

    Works in a new directory below $JLOG_DEMO_DIR, or else below the temporary directory, and leaves the journal there.
    Changes nothing else. Exits with 0 only if every acknowledged record is proved to be delivered.

    \b
    Examples:
      jlogtool demo
      jlogtool demo /var/log/syslog
    """
    from jlog.demo import run

    with ended_orderly():
        raise click.exceptions.Exit(run(list(inputs)))
