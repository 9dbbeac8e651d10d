"""`jlogtool subscriber`, `checkpoint` and `rewind`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.care.standing import shared_fields
from jlog.cli.arguments.click_parts import Group
from jlog.cli.arguments.parameters import CHECKPOINT, POSITION, SUBSCRIBER, PositionArgument, checked, journal_or_topic_argument
from jlog.cli.terminal import figures
from jlog.cli.terminal.output import json_option, print_json, print_table
from jlog.urls import open_journal

if TYPE_CHECKING:
    from collections.abc import Mapping


# Columns, where workers share one of the subscribers.
WORK = ("workers ", "taken ", "delayed ", "unfinished ", "oldest ", "order", "max_attempts ", "dead_letters")


@click.group(cls=Group)
def subscriber() -> None:
    """Subscribers: named, durable positions.

    Retention keeps every record that some subscriber has not committed. A name is 1 to 200 bytes of UTF-8 without `/`
    and control characters; it does not start with a dot, is not `begin` or `end`, and reads neither as a sequence nor
    as a time.
    """


@subscriber.command("ls", short_help="List the subscribers.")
@journal_or_topic_argument
@json_option
def list_subscribers(journal: str, as_json: bool) -> None:
    """List the subscribers of JOURNAL: the position of each, its lag in records, and whether a process reads as it.

    A subscriber that workers share also has its workers, and how many records are taken, delayed and unfinished. With --json it
    also has how many are done after the oldest unfinished one, what each worker has taken, and `backoff`. `sequence` is
    the oldest unfinished record, and `oldest` its age by its own time. `order`, `max_attempts` and `dead_letters` are
    the options that hold for all workers.

    \b
    Examples:
      jlogtool subscriber ls /var/lib/events
      jlogtool subscriber ls --json /var/lib/events | jq '.[] | select(.lag > 0)'
    """
    opened = open_journal(journal)
    found = opened.subscribers()
    shared = shared_fields(found, opened.stats) if isinstance(opened, jlog.Journal) else {}
    print_positions(found, ("sequence", "lag", "busy"), as_json, shared)


def print_positions(
    found: Mapping[str, jlog.Position],
    fields: tuple[str, ...],
    as_json: bool,
    shared: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> None:
    """shared: further fields of the subscribers that workers share."""
    rows = [{"name": name} | {field: getattr(at, field) for field in fields} for name, at in found.items()]
    if as_json:
        print_json([row | shared.get(row["name"], {}) for row in rows])
        return
    columns = {"sequence": "sequence ", "lag": "lag ", "busy": "busy"}
    work = WORK if shared else ()
    print_table(
        ["name", *(columns[field] for field in fields), *work],
        [[*map(_cell, row.values()), *_work(shared.get(row["name"]), len(work))] for row in rows],
    )


def _work(work: dict[str, Any] | None, columns: int) -> list[str]:
    """Returns the cells of a subscriber that workers share; empty ones for another subscriber."""
    if work is None:
        return [""] * columns
    options = [str(work[name] or "") for name in ("order", "max_attempts", "dead_letters")]
    counts = [str(number) for number in (len(work["workers"]), work["taken"], work["delayed"], work["unfinished"])]
    return [*counts, figures.span(work["oldest_unread_seconds"]), *options]


def _cell(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


@subscriber.command("add", short_help="Create a subscriber.")
@journal_or_topic_argument
@click.argument("name")
@click.option("--start", type=POSITION, default="begin", show_default=True, help="Where the subscriber begins to read.")
def add_subscriber(journal: str, name: str, start: PositionArgument) -> None:
    """Create the subscriber NAME. From now on JOURNAL keeps the records that it has not committed.

    POSITION is `begin`, `end`, a sequence, the name of a checkpoint, or a time, which is that of the first record at or
    after it: 2026-11-25T12:00:00Z, 13:30, yesterday or 1h, as in dump.

    \b
    Examples:
      jlogtool subscriber add /var/lib/events billing
      jlogtool subscriber add /var/lib/events audit --start end
      jlogtool subscriber add /var/lib/events replay --start 2026-11-20T12:00:00Z
    """
    with checked():
        open_journal(journal).add_subscriber(name, start)


@subscriber.command("rm", short_help="Remove subscribers.")
@journal_or_topic_argument
@click.argument("names", type=SUBSCRIBER, nargs=-1, required=True, metavar="NAME...")
def remove_subscribers(journal: str, names: tuple[str, ...]) -> None:
    """Remove each subscriber NAME, while no process reads as it. Records that only they held back may then be removed.

    Removes none if one of them does not exist.

    \b
    Examples:
      jlogtool subscriber rm /var/lib/events billing
      jlogtool subscriber rm /var/lib/events lake lake.windows
    """
    with checked():
        opened = open_journal(journal)
        known = opened.subscribers()
        for name in sorted(names, key=known.__contains__):  # an unknown one comes first, and raises
            opened.remove_subscriber(name)


@subscriber.command("set", short_help="Move a subscriber.")
@journal_or_topic_argument
@click.argument("name", type=SUBSCRIBER)
@click.argument("position", type=POSITION)
def set_subscriber(journal: str, name: str, position: PositionArgument) -> None:
    """Move the subscriber NAME to POSITION, the next record that it reads, while no process reads as it.

    POSITION is `begin`, `end`, a sequence, the name of a checkpoint, or a time, which is that of the first record at or
    after it: 2026-11-25T12:00:00Z, 13:30, yesterday or 1h, as in dump.

    \b
    Examples:
      jlogtool subscriber set /var/lib/events billing end
      jlogtool subscriber set /var/lib/events billing 1200
    """
    with checked():
        open_journal(journal).set_subscriber(name, position)


@subscriber.command("copy", short_help="Create a subscriber at the position of another one.")
@journal_or_topic_argument
@click.argument("source", type=SUBSCRIBER, metavar="FROM")
@click.argument("target", metavar="TO")
def copy_subscriber(journal: str, source: str, target: str) -> None:
    """Create the subscriber TO at the position of the subscriber FROM.

    \b
    Example:
      jlogtool subscriber copy /var/lib/events billing billing-test
    """
    with checked():
        open_journal(journal).add_subscriber(target, copy_of=source)


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

    POSITION is `begin`, `end`, a sequence, the name of a checkpoint, or a time, which is that of the first record at or
    after it: 2026-11-25T12:00:00Z, 13:30, yesterday or 1h, as in dump.

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


@click.command()
@journal_or_topic_argument
@click.argument("name", type=SUBSCRIBER, metavar="SUBSCRIBER")
@click.argument("checkpoint", type=CHECKPOINT)
def rewind(journal: str, name: str, checkpoint: str) -> None:
    """Move SUBSCRIBER back to CHECKPOINT, while no process reads as it.

    \b
    Examples:
      jlogtool checkpoint set /var/lib/events before-upgrade end
      jlogtool rewind /var/lib/events billing before-upgrade
    """
    with checked():
        open_journal(journal).rewind(name, checkpoint)
