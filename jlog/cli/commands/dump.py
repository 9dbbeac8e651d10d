"""`jlogtool dump`: the records, or the blocks that they are stored in."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.arguments.parameters import (
    PositionArgument,
    checked,
    readable_argument,
    refuse_beside,
    start_option,
    stop_option,
)
from jlog.cli.process import DAMAGED
from jlog.cli.records.formats import Format, format_options, time_text
from jlog.cli.records.matching import Match, grep_options, selected
from jlog.cli.records.past_damage import Reading, gaps_of, open_reader, report_damage, sequence_at
from jlog.cli.records.replay import pace_option, write_records
from jlog.cli.terminal.output import binary_stdout, print_table, to_json
from jlog.cli.terminal.progress import progress_bar
from jlog.errors import CorruptJournal
from jlog.urls import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from jlog.cli.records.matching import Records
    from jlog.reading.pace import Pace

KINDS = {1: "records", 2: "state"}
CODECS = {0: "none", 1: "lz4"}


@click.command()
@readable_argument
@start_option("The first record.")
@stop_option()
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="Print at most N records.")
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("--count", is_flag=True, help="Print only how many records there are.")
@grep_options
@format_options
@pace_option
@click.option("--blocks", is_flag=True, help="Print the blocks of the segments instead of records.")
def dump(journal: Place, output: Format, blocks: bool, count: bool, **selection: Any) -> None:
    """Print the records of JOURNAL, oldest first, up to its end as it is now.

    --from and --to are positions: `begin`, `end`, a sequence, the name of a checkpoint, or a time, which is that of the
    first record at or after it: 2026-11-25T12:00:00Z; in this machine's zone 2026-11-25, 13:30 or yesterday; or so long
    ago: 10m, 1h, 7d. The record at --to is left out. With --reverse the same records come newest first,
    and --limit takes the newest. With --pace they come with the intervals of their timestamps, counted from the first;
    a late one comes at once.

    JOURNAL may be an archive, too: its directory, or a URL such as s3://bucket/prefix.

    Damaged records are left out: each damaged place has a line on stderr, and the exit code is 3. `raw` writes a null
    value as an empty one. In jsonl, a value or key that is not UTF-8 is base64, in `value_base64` or `key_base64`.
    REGEX is a regular expression of Python's on bytes: `.` is one byte, and --ignore-case knows the letters of ASCII.

    \b
    Examples:
      jlogtool dump /var/lib/events
      jlogtool dump --from 1000 --to 2000 --json /var/lib/events | jq .value
      jlogtool dump --since 10m --grep error /var/lib/events
      jlogtool dump --grep-header level=ERROR --count /var/lib/events
      jlogtool dump --from yesterday --to today /var/lib/events
      jlogtool dump --reverse --limit 5 --grep 'error|fatal' -i /var/lib/events
      jlogtool dump --from 2026-11-20T12:00:00Z --pace 10 /var/lib/events
      jlogtool dump --framing length32 /var/lib/images > images.bin
      jlogtool dump --blocks /var/lib/events
    """
    if blocks:
        refuse_beside("--blocks", "framing", "value", "key", "headers", "count", *(f.name for f in fields(Selection)))
        if journal.is_topic:
            raise click.UsageError("--blocks is for journals: a topic's blocks are its broker's")
        if journal.is_archive:
            raise click.UsageError("--blocks is for journals: `jlogtool restore` creates one from an archive")
        dump_blocks(journal, output.name == "jsonl")
        return
    if selection["reverse"]:
        refuse_beside("--reverse", "pace")
    if count:
        refuse_beside("--count", "format_name", "as_json", "framing", "pace")
    dump_records(journal, output, Selection(**selection), count)


@dataclass(frozen=True)
class Selection:
    """The records to print, and their order."""

    start: PositionArgument
    stop: PositionArgument
    limit: int | None
    reverse: bool
    match: Match | None
    pace: Pace | None


def dump_records(journal: Place, output: Format, wanted: Selection, only_count: bool) -> None:
    out, to_bytes = binary_stdout(), output.showing(wanted.match)
    with checked():
        reader = open_reader(journal, start=wanted.start)
    with checked():
        end = sequence_at(journal, wanted.stop, reader)
    with reader, _progress(reader, end) as advance:
        reading = Reading(reader)
        limit = sys.maxsize if wanted.limit is None else wanted.limit
        if wanted.reverse:
            pieces = _backward(journal, reading, reader.position, end)
        else:
            needle = wanted.match.needle if wanted.match else None
            pieces = reading.forward(end, sys.maxsize if wanted.match else limit, needle)
        before, found = reader.position, 0
        while found < limit and (piece := next(pieces, None)) is not None:
            records: Any = selected(piece, wanted.match)
            if len(records) > limit - found:
                records = records[: limit - found]
            found += len(records)
            if not only_count:
                write_records(out, to_bytes, records, wanted.pace)
            advance(len(piece) if wanted.reverse else reader.position - before)
            before = reader.position
        if only_count:
            click.echo(found)
        reading.finish()


def _backward(journal: Place, reading: Reading, start: int, stop: int) -> Iterator[Records]:
    try:
        reading.reader.seek("end")
    except CorruptJournal:  # only reading on finds the end
        while len(reading.batch()):
            continue
    return reading.backward(start, min(stop, reading.reader.position), gaps_of(journal))


def _progress(reader: jlog.ReaderProtocol, end: int) -> AbstractContextManager[Callable[[int], None]]:
    """Shows a progress bar for output into a file. A program that reads a pipe may use the terminal itself."""
    into_file = stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    total = None if end == sys.maxsize else end - reader.position
    return progress_bar("Reading", total, in_bytes=False, shown=into_file)


# --- Blocks ---------------------------------------------------------------------------------------------------------------


def dump_blocks(journal: Place, as_json: bool) -> None:
    opened = jlog.Journal(journal)
    if as_json:
        out = binary_stdout()
        for path, block in opened.blocks():
            out.write(to_json(_block_fields(path, block)).encode("utf-8", "backslashreplace") + b"\n")
        out.flush()
    else:
        columns = ("segment", "offset ", "kind", "codec", "first ", "records ", "stored ", "raw ", "written")
        names = ("offset", "kind", "codec", "first_sequence", "records", "stored_bytes", "raw_bytes", "written")
        rows = (_block_fields(path, block) for path, block in opened.blocks())
        print_table(columns, [[os.path.basename(row["path"]), *(row.get(name, "") for name in names)] for row in rows])
    report = opened.verify()
    for damage in report.damage:
        report_damage(damage)
    if not report.ok:
        raise click.exceptions.Exit(DAMAGED)


def _block_fields(path: str, block: Any) -> dict[str, Any]:
    if isinstance(block, jlog.Damage):
        return {**asdict(block), "kind": "damaged"}
    fields = {"path": path, **block._asdict()}
    fields["kind"] = KINDS.get(block.kind, block.kind)
    fields["codec"] = CODECS.get(block.codec, block.codec)
    fields["written"] = time_text(block.clock_us)
    return fields
