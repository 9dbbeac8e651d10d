"""The options of a journal on the command line, and `jlogtool options`."""

from __future__ import annotations

import functools
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.arguments.parameters import DEDUP, SIZE, checked, journal_argument
from jlog.cli.arguments.retention import complete_retention, retention_options, take_retention
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import in_words, json_option, print_fields, print_json
from jlog.errors import JournalError
from jlog.options import COMPRESSIONS, ROLLS, SYNCS

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("precommit", "compression", "segment_bytes", "roll", "sync", "sync_interval", "dedup")


def journal_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of a journal. The command gets `options`: those of jlog.Writer that were given."""

    @click.option(
        "--precommit",
        type=SIZE,
        help="Size of the shared pre-commit buffer, 4K to 1G, which can grow and never shrinks. 0: write without it, so that "
        "each append is in the segment file when it returns.  [new journal: 128K]",
    )
    @click.option("--compression", type=click.Choice(COMPRESSIONS), help="Compression of the blocks.  [new journal: none]")
    @click.option("--segment-bytes", type=SIZE, help="Size at which the journal rolls, 4K to 1T.  [new journal: 64M]")
    @click.option("--roll", type=click.Choice(ROLLS), help="Also roll at these times, in UTC.  [new journal: never]")
    @click.option(
        "--sync",
        type=click.Choice(SYNCS),
        help="Records that survive a power loss. none: those that the system has written back; interval: all but the last "
        "--sync-interval; append: each record whose append has returned.  [new journal: none]",
    )
    @click.option(
        "--sync-interval",
        type=float,
        metavar="SECONDS",
        help="Seconds between two syncs of --sync interval, above 0.  [new journal: 1]",
    )
    @click.option(
        "--dedup",
        type=DEDUP,
        help="Ids of append(id=) that are known: the last N, or those of an age such as 7d.  [new journal: 100000]",
    )
    @retention_options
    @functools.wraps(command)
    def with_options(**parameters: Any) -> None:
        retention = take_retention(parameters)
        found = {name: parameters.pop(name) for name in NAMES} | {"retention": retention or None}
        command(options={name: value for name, value in found.items() if value is not None}, **parameters)

    return with_options


@click.command("options")
@journal_argument
@journal_options
@json_option
def change_options(journal: str, options: dict[str, Any], as_json: bool) -> None:
    """Show the options of JOURNAL, or change those that are given.

    A change holds for records that are written from now on, also by processes that have the journal open. Written
    records stay as they are. Sizes have units of 1024: 128K, 64MiB. The pre-commit buffer can grow only while no
    process has the journal open for writing.

    \b
    Examples:
      jlogtool options /var/lib/events
      jlogtool options --segment-bytes 1G /var/lib/events
      jlogtool options --max-age 30d --archive none /var/lib/events
      jlogtool options --json /var/lib/events | jq .segment_bytes
    """
    if options:
        _change(journal, options)
    elif not as_json:
        print_fields((name, in_words(name, value)) for name, value in _options(journal).items())
    if as_json:
        print_json(_options(journal))


def _change(journal: str, options: dict[str, Any]) -> None:
    precommit = options.get("precommit")
    with checked():
        complete_retention(options, journal)
        with jlog.Writer(journal, create=False, **{"precommit": 0, **options}):
            found = jlog.Journal(journal).options.precommit
    if precommit is not None and found != precommit:
        raise JournalError(
            f"{journal}: the pre-commit buffer has {human_bytes(found)}, not {human_bytes(precommit)}: it grows only while "
            f"no process has the journal open for writing, and never shrinks"
        )


def _options(journal: str) -> dict[str, Any]:
    info = jlog.Journal(journal).info()  # has the options as they are printed
    return {field.name: info[field.name] for field in fields(jlog.Options)}
