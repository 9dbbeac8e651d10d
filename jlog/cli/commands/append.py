"""`jlogtool append`."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.arguments.journal_options import complete_retention, journal_options
from jlog.cli.arguments.parameters import PATH, checked, journal_or_topic_argument, refuse_beside
from jlog.cli.arguments.topics import making_options, take_making
from jlog.cli.process import exit_code_of, signals_to
from jlog.cli.records.follow_options import Following, Labels, follow_options, label_options
from jlog.cli.records.framing import SPLITTERS, chunks
from jlog.cli.records.jsonl import split_jsonl
from jlog.cli.records.line_times import LineTimes, time_options
from jlog.cli.records.log_file import LogFile
from jlog.cli.terminal.output import complain, json_option, print_json, tell_at_terminal
from jlog.cli.terminal.progress import progress_bar
from jlog.errors import JournalError
from jlog.flow.records import RecordColumns
from jlog.flow.stop import SLICE_SECONDS, Stop
from jlog.positions.log_place import PLACE, LogPlace
from jlog.storage.attaching import hold_as_follower
from jlog.urls import Place

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
@click.option("--follow", is_flag=True, help="Go on with the lines that are written to FILE, also after it is rotated.")
@follow_options
@time_options
@label_options
@journal_options
@making_options
@json_option
def append(
    journal: Place,
    files: tuple[str, ...],
    format_name: str,
    framing: str,
    follow: bool,
    following: Following,
    times: LineTimes | None,
    labels: Labels,
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

    With `--follow` it ships the log FILE, from its beginning, until SIGTERM or Ctrl-C. The place in FILE is stored in
    JOURNAL together with the records, so that after a kill it goes on exactly there, also if FILE was rotated
    meanwhile: by renaming, by copytruncate, or by deleting it. A rotated file is followed too, as long as it may grow.
    Each file that is left out, and each line that is cut, has a line on stderr.

    With `--time-format`, `--time-regex` or `--time-field` a record has the time that its line has, in this machine's zone
    where the line has no offset. A line without a time, as in a stack trace, is kept with that of the line before it.
    Times that a regex or a field find are ISO, or a number since 1970, unless FORMAT is given too.

    \b
    Examples:
      jlogtool append /var/lib/events < events.log
      jlogtool append /var/lib/web --follow /var/log/nginx/access.log \\
          --time-regex '.*\\[([^]]*)' --time-format '%d/%b/%Y:%H:%M:%S %z'
      jlogtool append /var/lib/web --follow error.log --header file={file}
      journalctl -f -o json | jlogtool append /var/lib/events
      jlogtool append --framing length32 /var/lib/images < images.bin
      jlogtool dump --json /tmp/a | jlogtool append --format jsonl /tmp/b
      jlogtool append --json /var/lib/events a.log b.log
    """
    options |= take_making(making, journal.is_topic)
    if format_name == "jsonl":
        refuse_beside("--format jsonl", "framing", "follow", "time_format", "time_regex", "time_field", "key", "header")
    if following.options and not follow:
        raise click.UsageError(f"{following.options[0]} needs --follow")
    if follow:
        refuse_beside("--follow", "framing")
        if len(files) != 1 or files[0] == STDIN:
            raise click.UsageError("--follow takes one FILE")
        if journal.is_topic:
            raise click.UsageError("--follow stores its place in a journal; `jlogtool mirror to-kafka` takes it on from there")
        with _opened_writer(journal, options) as writer:
            first, records = _follow(writer, os.path.abspath(files[0]), following, times, labels)
        if as_json:
            print_json({"first_sequence": first, "records": records})
        return
    split = split_jsonl if format_name == "jsonl" else SPLITTERS[framing]
    sources = files or (STDIN,)
    with ExitStack() as stack:
        # The inputs are opened before the journal: an input that cannot be read leaves no new journal.
        opened = [(name, stack.enter_context(_opened(name))) for name in sources]
        writer = stack.enter_context(_opened_writer(journal, options))
        first = None if journal.is_topic else writer.next_sequence
        records = 0
        total = _total_bytes(fd for _, fd in opened)
        with progress_bar("Appending", total, shown=total is not None) as advance:
            for name, fd in opened:
                if os.isatty(fd):
                    tell_at_terminal("reads lines from the terminal; Ctrl-D ends")
                for found in split(_counted(chunks(fd, name), advance), name):
                    at = _extend(writer, found, records, times, labels, name)
                    first = first if records else at
                    records += len(found)
        writer.flush()
    if as_json:
        print_json({"first_sequence": first, "records": records})


def _follow(
    writer: jlog.WriterProtocol, path: str, following: Following, times: LineTimes | None, labels: Labels
) -> tuple[int | None, int]:
    """Appends the lines of the file, each batch in one write with the place after it, until a signal. Returns the first
    sequence and how many."""
    key = PLACE + os.fsencode(path)
    alone = hold_as_follower(writer.path, key)
    stored = jlog.Journal(writer.path).state().get(key)
    place = None if stored is None else LogPlace.from_bytes(stored)
    if times is not None and place is not None:
        times.last_us = place.time_us
    file = LogFile(path, place, complain, rotated_seconds=following.rotated_seconds, long_lines=following.long_lines)
    if place is None and not os.path.exists(path):
        complain(f"{path} does not exist yet; waiting for it")
    stop = Stop()
    first, records = None, 0
    with closing(alone), closing(file), signals_to(lambda *_: stop.request()):
        while not stop.requested:
            lines = file.next()
            if lines is None:
                stop.wait(SLICE_SECONDS)
                continue
            found = None if times is None else times.of(lines.values)
            after = replace(lines.after, time_us=None if times is None else times.last_us)
            keys, headers = labels.of(path, len(lines.values))
            at = writer.extend(lines.values, keys, headers, found, {key: after.to_bytes()})
            first = at if first is None and lines.values else first
            records += len(lines.values)
    return first, records


def _extend(
    writer: jlog.WriterProtocol,
    found: list[bytes] | RecordColumns,
    before: int,
    times: LineTimes | None,
    labels: Labels,
    file: str,
) -> int | None:
    """Appends all records or none. If that fails, a line says how many of the input are in the journal: those before."""
    try:
        if isinstance(found, RecordColumns):
            return writer.extend(found.values, found.keys, found.headers, found.timestamps_us)
        keys, headers = labels.of(file, len(found))
        return writer.extend(found, keys, headers, timestamps_us=None if times is None else times.of(found))
    except (OSError, JournalError) as error:
        complain(error)
        complain(f"{before:,} records of the input were appended before the error")
        raise click.exceptions.Exit(exit_code_of(error)) from error


@contextmanager
def _opened_writer(journal: Place, options: dict[str, Any]) -> Iterator[jlog.WriterProtocol]:
    with checked():
        complete_retention(options, None if journal.is_topic else journal)
        opened = jlog.open_writer(journal, **options)
    with opened as writer:
        yield writer


@contextmanager
def _opened(name: str) -> Iterator[int]:
    if name == STDIN:
        if sys.stdin is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdin")
        yield 0
        return
    try:
        file = open(name, "rb", buffering=0)  # noqa: SIM115
    except FileNotFoundError:
        raise FileNotFoundError(f"{name} does not exist; name a file, or none to append what comes from stdin") from None
    with file:
        yield file.fileno()


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
