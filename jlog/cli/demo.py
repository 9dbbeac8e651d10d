"""`jlogtool demo`."""

from __future__ import annotations

import importlib

import click

from jlog.cli.parameters import PATH


@click.command(short_help="Show what jlog does, in a minute.")
@click.argument("inputs", metavar="[INPUT]...", nargs=-1, type=PATH)
def demo(inputs: tuple[str, ...]) -> None:
    """Show what jlog does, in a minute, on files of its own or on the lines of each INPUT.

    Works in a temporary directory, which it removes, and changes nothing else.

    \b
    Examples:
      jlogtool demo
      jlogtool demo /var/log/syslog
    """
    code: int = importlib.import_module("jlog.demo").run(list(inputs))
    raise click.exceptions.Exit(code)
