"""The options of a journal, for the commands that create or open one to write."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import click

import jlog
from jlog.cli.arguments.click_parts import AddOptions, as_one
from jlog.cli.arguments.parameters import AGE_LIMIT, ARCHIVE, DEDUP, NO_LIMIT, SIZE, SIZE_LIMIT
from jlog.errors import JournalNotFound
from jlog.options import COMPRESSIONS, ROLLS, SYNCS

RETENTION = [field.name for field in fields(jlog.Retention)]


def negated(_ctx: click.Context, _param: click.Parameter, value: bool | None) -> bool | None:
    return None if value is None else not value


def given_options(**values: Any) -> dict[str, Any]:
    """Returns the options that were given, as jlog.Writer has them; under `retention` the fields of a jlog.Retention, which
    complete_retention() makes of them."""
    given = {name: None if value is NO_LIMIT else value for name, value in values.items() if value is not None}
    retention = {name: given.pop(name) for name in RETENTION if name in given}
    if "archive" in retention and retention["archive"] is None:
        retention.setdefault("archive_on_roll", False)
    return given | ({"retention": retention} if retention else {})


journal_options: AddOptions = as_one(
    "options",
    given_options,
    click.option(
        "--precommit",
        type=SIZE,
        help="Size of the shared pre-commit buffer, 4K to 1G, which can grow and never shrinks. 0: write without it, so that "
        "each append is in the segment file when it returns.  [new journal: 128K]",
    ),
    click.option("--compression", type=click.Choice(COMPRESSIONS), help="Compression of the blocks.  [new journal: none]"),
    click.option("--segment-bytes", type=SIZE, help="Size at which the journal rolls, 4K to 1T.  [new journal: 64M]"),
    click.option("--roll", type=click.Choice(ROLLS), help="Also roll at these times, in UTC.  [new journal: never]"),
    click.option(
        "--sync",
        type=click.Choice(SYNCS),
        help="Records that survive a power loss. none: those that the system has written back; interval: all but the last "
        "--sync-interval; append: each record whose append has returned.  [new journal: none]",
    ),
    click.option(
        "--sync-interval",
        type=float,
        metavar="SECONDS",
        help="Seconds between two syncs of --sync interval, above 0.  [new journal: 1]",
    ),
    click.option(
        "--dedup",
        type=DEDUP,
        help="Ids of append(id=) that are known: the last N, or those of an age such as 7d.  [new journal: 100000]",
    ),
    click.option(
        "--keep-read/--remove-read",
        "delete_read",
        default=None,
        callback=negated,
        help="Whether records that every subscriber has read are kept.  [new journal: removed]",
    ),
    click.option(
        "--max-bytes",
        type=SIZE_LIMIT,
        help="Remove the oldest segments while the journal is larger: 10G, none.  [new journal: none]",
    ),
    click.option(
        "--max-age",
        type=AGE_LIMIT,
        help="Remove segments whose records were written longer ago: 7d, 12h, none.  [new journal: none]",
    ),
    click.option(
        "--drop-unread/--keep-unread",
        "keep_for_subscribers",
        default=None,
        callback=negated,
        help="Whether --max-bytes and --max-age remove records that a subscriber has not read.  [new journal: kept]",
    ),
    click.option(
        "--subscriber-max-age",
        type=AGE_LIMIT,
        help="A subscriber that has not committed for so long holds nothing back any more.  [new journal: none]",
    ),
    click.option(
        "--limit-bytes",
        type=SIZE_LIMIT,
        help="Refuse to append to a larger journal until something is removed.  [new journal: none]",
    ),
    click.option(
        "--archive",
        type=ARCHIVE,
        help="Where segments are copied to: file:///var/archive, s3://bucket/prefix, none.  [new journal: none]",
    ),
    click.option(
        "--archive-on-roll/--archive-on-clean",
        default=None,
        help="Whether sealed segments are copied soon, or when they may go.  [new journal: when they may go]",
    ),
)


def complete_retention(options: dict[str, Any], journal: str | None = None) -> None:
    """Creates a jlog.Retention of the fields that were given. The other fields stay as the journal has them."""
    if "retention" in options:
        options["retention"] = replace(_present(journal), **options["retention"])


def _present(journal: str | None) -> jlog.Retention:
    try:
        return jlog.Retention() if journal is None else jlog.Journal(journal).options.retention
    except JournalNotFound:
        return jlog.Retention()
