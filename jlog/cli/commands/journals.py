"""`jlogtool create`, `info`, `ls`, `options`, `roll` and `rm`: journals as a whole."""

from __future__ import annotations

import os
import sys
from dataclasses import fields
from typing import Any

import click

import jlog
from jlog.archive import Archive
from jlog.cli.arguments.journal_options import complete_retention, journal_options
from jlog.cli.arguments.parameters import (
    DIRECTORY_OR_SERVER,
    checked,
    journal_argument,
    journal_or_topic_argument,
    readable_argument,
)
from jlog.cli.arguments.topics import size_options, take_making, topic_settings
from jlog.cli.process import FAILED
from jlog.cli.terminal.figures import human_bytes
from jlog.cli.terminal.output import complain, in_words, json_option, print_fields, print_json, print_table
from jlog.errors import JournalError, JournalNotFound
from jlog.storage.meta import journals_below
from jlog.urls import Place, create_journal, delete_journal, list_topics, open_journal, path_of


@click.command()
@journal_or_topic_argument
@journal_options
@size_options
def create(journal: Place, options: dict[str, Any], **making: int | None) -> None:
    """Create an empty JOURNAL, with options that hold for all its writers.

    Without `create` the first writer creates the journal. By default a segment is removed once every subscriber and every
    checkpoint has passed it; a journal without subscribers keeps everything. Sizes have units of 1024: 128K, 64MiB.
    Exits with 1, and changes nothing, where something is at that path already.

    JOURNAL may be a Kafka topic, kafka://HOST:PORT/TOPIC; then --segment-bytes, --roll and --compression become its
    settings, and the options of the pre-commit buffer and of syncing have no effect.

    \b
    Examples:
      jlogtool create /var/lib/events
      jlogtool create --sync append --keep-read /var/lib/orders
      jlogtool create --segment-bytes 1G --precommit 1M /var/lib/clicks
      jlogtool create --max-age 7d --archive s3://logs/archive /var/lib/audit
    """
    options |= take_making(making, journal.is_topic)
    with checked():
        complete_retention(options)
        create_journal(journal, **options)


@click.command()
@readable_argument
@json_option
def info(journal: Place, as_json: bool) -> None:
    """Show JOURNAL: its identity, contents, options, subscribers and checkpoints.

    `size_bytes` counts the bytes of the segment files, and those that the pre-commit buffer will add to them.
    `raw_bytes` counts the bytes of the blocks in these files before compression. `skipped` lists the gaps: after a
    power loss numbering goes on after every sequence that had been given out. `dead` lists the subscribers that nobody
    reads and that have not committed for a day, or have expired, with the bytes that they hold back. `ahead_seconds`
    says how far the newest time is ahead of the clock, if it is more than five minutes.

    JOURNAL may be an archive, too: its directory, or a URL such as s3://bucket/prefix.

    \b
    Examples:
      jlogtool info /var/lib/events
      jlogtool info --json /var/lib/events | jq .next_sequence
    """
    found = Archive(journal).info() if journal.is_archive else open_journal(journal).info()
    if as_json:
        print_json(found)
        return
    if not found.get("ahead_seconds"):
        found.pop("ahead_seconds", None)  # few journals were ever written under a wrong clock
    print_fields((name, in_words(name, value)) for name, value in found.items())


@click.command("ls")
@click.argument("directory", metavar="[DIR]", type=DIRECTORY_OR_SERVER, default=".")
@topic_settings
@json_option
def list_journals(directory: Place, as_json: bool) -> None:
    """List the journals below DIR (the current directory), with their subscribers and lag.

    `lag` is that of the slowest subscriber. For a topic, `records` and `lag` count offsets, some of which may not be
    records. A journal or a directory that cannot be read has a line on stderr, and the exit code is 1.

    \b
    Examples:
      jlogtool ls /var/lib
      jlogtool ls --json /var/lib | jq '.[] | select(.lag > 1000) | .path'
    """
    unreadable: list[OSError] = []
    paths = list_topics(directory) if directory.is_topic else journals_below(directory, unreadable.append)
    tried = [_try_summary(path) for path in paths]
    found = [summary for summary in tried if summary]
    for error in unreadable:
        complain(error)
    if as_json:
        print_json(found)
    else:
        columns = ("journal", "records ", "size ", "lag ", "subscribers")
        print_table(columns, [_summary_row(summary) for summary in found])
    if None in tried or unreadable:
        raise click.exceptions.Exit(FAILED)


def _try_summary(path: str) -> dict[str, Any] | None:
    """Returns None where the journal cannot be read. A journal that was just removed is left out without a word."""
    try:
        return _summary(path)
    except JournalNotFound:
        return {}
    except (JournalError, OSError) as error:
        complain(error)
        return None


def _summary(path: str) -> dict[str, Any]:
    journal = open_journal(path)
    subscribers = journal.subscribers()
    return {
        "path": path,
        "records": len(journal),
        "size_bytes": journal.size_bytes,
        "lag": max((position.lag for position in subscribers.values()), default=0),
        "subscribers": [
            {"name": name, "sequence": position.sequence, "lag": position.lag, "busy": position.busy}
            for name, position in subscribers.items()
        ],
    }


def _summary_row(summary: dict[str, Any]) -> list[str]:
    names = ", ".join(f"{at['name']} ({at['lag']})" for at in summary["subscribers"])
    lag = str(summary["lag"]) if summary["subscribers"] else "-"
    return [
        summary["path"],
        _count(summary),
        "-" if summary["size_bytes"] is None else human_bytes(summary["size_bytes"]),  # a topic has no size to show
        lag,
        names or "none",
    ]


def _count(summary: dict[str, Any]) -> str:
    """Formats the number of records. That of a topic counts offsets, some of which may not be records."""
    count = str(summary["records"])
    return f"at most {count}" if summary["records"] and path_of(summary["path"]) is None else count


@click.command("options")
@journal_argument
@journal_options
@json_option
def change_options(journal: Place, options: dict[str, Any], as_json: bool) -> None:
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


def _change(journal: Place, options: dict[str, Any]) -> None:
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


def _options(journal: Place) -> dict[str, Any]:
    info = jlog.Journal(journal).info()  # has the options as they are printed
    return {field.name: info[field.name] for field in fields(jlog.Options)}


@click.command()
@journal_argument
def roll(journal: Place) -> None:
    """Seal the newest segment of JOURNAL, if it has a record, and open the next one.

    Other processes may write meanwhile. A sealed segment never changes: it may be copied, and retention may remove it.

    \b
    Example:
      jlogtool roll /var/lib/events
    """
    with jlog.Writer(journal, precommit=0, create=False) as writer:
        writer.roll()


@click.command("rm")
@journal_or_topic_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def remove(journal: Place, yes: bool) -> None:
    """Delete JOURNAL with all its records, subscribers and checkpoints.

    On a terminal it asks first; elsewhere it needs --yes. It deletes no journal that a process writes to, or reads as a
    subscriber, and none for which the answer is no: the exit code is then 1. Other files below JOURNAL stay, and a line
    on stderr names them.

    \b
    Examples:
      jlogtool rm /tmp/numbers
      jlogtool rm --yes /tmp/numbers
    """
    if not yes:
        question = f"Delete {_what_it_holds(journal)}?"
        if not sys.stdin.isatty():
            raise click.UsageError("stdin is not a terminal, so nobody can confirm; --yes deletes without a question")
        if not click.confirm(question, err=True):
            complain(f"{journal} was not deleted")
            raise click.exceptions.Exit(FAILED)
    delete_journal(journal)
    if not journal.is_topic and os.path.isdir(journal):
        complain(f"{journal} is still there, with files that are not the journal's: {', '.join(sorted(os.listdir(journal)))}")


def _what_it_holds(path: str) -> str:
    """Describes the contents for the question. Raises JournalNotFound; any other journal may be deleted, however damaged."""
    try:
        summary = _summary(path)
    except JournalNotFound:
        raise
    except JournalError as error:
        return f"{path} ({error})"
    return f"{path} with {_count(summary)} records and {len(summary['subscribers'])} subscribers"
