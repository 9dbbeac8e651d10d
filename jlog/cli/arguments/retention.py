"""The options of retention, for `create`, `append` and `options`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.arguments.parameters import AGE_LIMIT, NO_LIMIT, SIZE_LIMIT
from jlog.errors import JournalNotFound

if TYPE_CHECKING:
    from collections.abc import Callable

FIELDS = {  # the field of jlog.Retention for each option
    "keep_read": "delete_read",
    "max_bytes": "max_bytes",
    "max_age": "max_age",
    "drop_unread": "keep_for_subscribers",
    "subscriber_max_age": "subscriber_max_age",
    "limit_bytes": "limit_bytes",
    "archive": "archive",
    "archive_on_roll": "archive_on_roll",
}
NEGATED = ("keep_read", "drop_unread")
OPTIONS = [
    click.option(
        "--keep-read/--remove-read",
        default=None,
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
        default=None,
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
        metavar="URL",
        help="Where segments are copied to: file:///var/archive, s3://bucket/prefix, none.  [new journal: none]",
    ),
    click.option(
        "--archive-on-roll/--archive-on-clean",
        default=None,
        help="Whether sealed segments are copied soon, or when they may go.  [new journal: when they may go]",
    ),
]


def retention_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def take_retention(parameters: dict[str, Any]) -> dict[str, Any]:
    """Takes the options of retention out of a command's parameters. Returns those that were given, as fields of
    jlog.Retention."""
    found = {}
    for name, field in FIELDS.items():
        value = parameters.pop(name)
        if value is not None:
            without = value is NO_LIMIT or (name == "archive" and value == "none")
            found[field] = None if without else (not value if name in NEGATED else value)
    if "archive" in found and found["archive"] is None:
        found.setdefault("archive_on_roll", False)
    return found


def complete_retention(options: dict[str, Any], journal: str | None = None) -> None:
    """Creates a jlog.Retention of the fields that were given. The other fields stay as the journal has them."""
    if "retention" in options:
        options["retention"] = replace(_present(journal), **options["retention"])


def _present(journal: str | None) -> jlog.Retention:
    try:
        return jlog.Retention() if journal is None else jlog.Journal(journal).options.retention
    except JournalNotFound:
        return jlog.Retention()
