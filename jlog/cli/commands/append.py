"""`jlogtool append`."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.arguments.parameters import (
    PATH,
    checked,
    is_topic,
    journal_or_topic_argument,
    refuse_beside,
)
from jlog.cli.arguments.retention import complete_retention
from jlog.cli.arguments.topics import making_options, take_making
from jlog.cli.commands.options import journal_options
from jlog.cli.exits import exit_code_of
from jlog.cli.records.framing import SPLITTERS, chunks
from jlog.cli.records.jsonl import split_jsonl
from jlog.cli.terminal.output import complain, json_option, print_json, tell_at_terminal
from jlog.cli.terminal.progress import progress_bar
from jlog.errors import JournalError
from jlog.flow.records import RecordColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STDIN = "-"


@click.command()
@journal_or_topic_argument
@click.argument("files", metavar="[FILE]...", nargs=-1, type=PATH)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["raw", "jsonl"]),
    default="raw",
    show_default=True,
    help="raw: each record is a value; jsonl: each line is a JSON object as dump prints them, with the key, the headers and "
    "the time of the record.",
)
@click.option(
    "--framing",
    type=click.Choice(list(SPLITTERS)),
    default="lines",
    show_default=True,
    help="For raw, the end of a record. lines: at a newline, which is not part of it; length32: after as many bytes as a "
    "little-endian 4-byte number before it says.",
)
@journal_options
@making_options
@json_option
def append(
    journal: str,
    files: tuple[str, ...],
    format_name: str,
    framing: str,
    options: dict[str, Any],
    as_json: bool,
    **making: Any,
) -> None:
    """Append the records of each FILE, or of stdin, to JOURNAL, which is created if there is none.

    A line keeps every byte but its newline; the last line need not end with one. Data from a slow pipe or a terminal is
    appended as it comes, and readers see it at once. `-` is stdin.

    The options that are given hold for JOURNAL from now on; the others stay as they are.

    Appended records survive the death of this process, however it dies. If it is interrupted, the records up to some
    point are appended, each of them whole.

    With `--format jsonl`, `value`, `key`, `headers` and `timestamp` are as dump prints them; so are `value_base64`,
    `key_base64` and `timestamp_us`. Each may be missing; other fields are an error. `sequence` is ignored: JOURNAL gives
    its own.

    \b
    Examples:
      jlogtool append /var/lib/events < events.log
      journalctl -f -o json | jlogtool append /var/lib/events
      jlogtool append --framing length32 /var/lib/images < images.bin
      jlogtool dump --json /tmp/a | jlogtool append --format jsonl /tmp/b
      jlogtool append --json /var/lib/events a.log b.log
    """
    options |= take_making(making, is_topic(journal))
    if format_name == "jsonl":
        refuse_beside("--format jsonl", "framing")
    split = split_jsonl if format_name == "jsonl" else SPLITTERS[framing]
    sources = files or (STDIN,)
    with ExitStack() as stack:
        # The inputs are opened before the journal: an input that cannot be read leaves no new journal.
        opened = [(name, stack.enter_context(_opened(name))) for name in sources]
        with checked():
            complete_retention(options, None if is_topic(journal) else journal)
            writer = stack.enter_context(jlog.open_writer(journal, **options))
        first = None if is_topic(journal) else writer.next_sequence
        records = 0
        total = _total_bytes(fd for _, fd in opened)
        with progress_bar("Appending", total, shown=total is not None) as advance:
            for name, fd in opened:
                if os.isatty(fd):
                    tell_at_terminal("reads lines from the terminal; Ctrl-D ends")
                for found in split(_counted(chunks(fd, name), advance), name):
                    at = _extend(writer, found, records)
                    first = first if records else at
                    records += len(found)
        writer.flush()
    if as_json:
        print_json({"first_sequence": first, "records": records})


def _extend(writer: jlog.WriterProtocol, found: list[bytes] | RecordColumns, before: int) -> int | None:
    """Appends all records or none. If that fails, a line says how many of the input are in the journal: those before."""
    try:
        if isinstance(found, RecordColumns):
            return writer.extend(found.values, found.keys, found.headers, found.timestamps_us)
        return writer.extend(found)
    except (OSError, JournalError) as error:
        complain(error)
        complain(f"{before:,} records of the input were appended before the error")
        raise click.exceptions.Exit(exit_code_of(error)) from error


@contextmanager
def _opened(name: str) -> Iterator[int]:
    if name == STDIN:
        if sys.stdin is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdin")
        yield 0
        return
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        yield fd
    finally:
        os.close(fd)


def _counted(pieces: Iterator[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for piece in pieces:
        advance(len(piece))
        yield piece


def _total_bytes(fds: Iterator[int]) -> int | None:
    """Returns None where one of them is not a plain file."""
    total = 0
    for fd in fds:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            return None
        total += found.st_size
    return total
