"""`jlogtool dump`: the records, or the blocks that they are stored in."""

from __future__ import annotations

import os
import stat
import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.exits import DAMAGED
from jlog.cli.formats import FORMATS, FRAMINGS, formatter
from jlog.cli.output import binary_stdout, iso_time, print_table, to_json
from jlog.cli.parameters import PATTERN, POSITION, Position, checked, journal_argument
from jlog.cli.progress import progress_bar
from jlog.cli.reading import Reading, report_damage
from jlog.errors import CorruptJournal

if TYPE_CHECKING:
    import re
    from collections.abc import Callable
    from contextlib import AbstractContextManager

KINDS = {1: "records", 2: "state"}
CODECS = {0: "none", 1: "lz4"}


@click.command(short_help="Print records, or the raw structure.")
@journal_argument
@click.option("--from", "start", type=POSITION, default="begin", show_default=True, help="The first record.")
@click.option(
    "--to", "stop", type=POSITION, default="end", show_default=True, help="The first record that is left out."
)
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Print at most N records.")
@click.option(
    "--grep", "pattern", type=PATTERN, help="Only records whose value this regular expression finds."
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    default="raw",
    show_default=True,
    help="raw: the value alone; jsonl: a JSON object on each line; hex: bytes in hexadecimal; pretty: for people.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format jsonl.")
@click.option(
    "--framing",
    type=click.Choice(FRAMINGS),
    default="lines",
    show_default=True,
    help="Of raw: a newline behind each value, or its length in 4 bytes, little-endian, before it.",
)
@click.option("--blocks", is_flag=True, help="Print the blocks of the segments instead of records.")
@click.pass_context
def dump(
    ctx: click.Context,
    journal: str,
    start: Position,
    stop: Position,
    limit: int | None,
    pattern: re.Pattern[bytes] | None,
    format_name: str,
    as_json: bool,
    framing: str,
    blocks: bool,
) -> None:
    """Print the records of JOURNAL, oldest first, up to its end as it is now.

    --from and --to are positions: `begin`, `end`, a sequence, an ISO time with its offset (the first record at or after
    it), or the name of a checkpoint. The record at --to is not printed any more.

    What is damaged is left out: each damaged place has a line on stderr, and the exit code is 3. `raw` writes a null
    value as an empty one. In jsonl, what is not UTF-8 is base64, in `value_base64` or `key_base64`. REGEX is one of
    Python's, and looks at bytes.

    \b
    Examples:
      jlogtool dump /var/lib/events
      jlogtool dump --from 1000 --to 2000 --format jsonl /var/lib/events | jq .value
      jlogtool dump --from 2026-11-20T12:00:00Z --limit 10 --format pretty /var/lib/events
      jlogtool dump --grep 'ERROR|FATAL' /var/lib/events
      jlogtool dump --framing length32 /var/lib/images > images.bin
      jlogtool dump --blocks /var/lib/events
    """
    if as_json:
        _refuse_beside(ctx, "--json", ["format_name"])
        format_name = "jsonl"
    if blocks:
        _refuse_beside(ctx, "--blocks", ["start", "stop", "limit", "pattern", "framing"])
        dump_blocks(journal, format_name == "jsonl")
        return
    if format_name != "raw":
        _refuse_beside(ctx, f"--format {format_name}", ["framing"])
    dump_records(journal, start, stop, limit, pattern, format_name, framing)


def _refuse_beside(ctx: click.Context, option: str, others: list[str]) -> None:
    for parameter in ctx.command.params:
        given = ctx.get_parameter_source(parameter.name or "") is click.core.ParameterSource.COMMANDLINE
        if parameter.name in others and given:
            raise click.UsageError(f"{option} and {parameter.opts[0]} do not go together", ctx)


def dump_records(
    journal: str,
    start: Position,
    stop: Position,
    limit: int | None,
    pattern: re.Pattern[bytes] | None,
    format_name: str,
    framing: str,
) -> None:
    to_bytes = formatter(format_name, framing)
    out = binary_stdout()
    with checked():
        reader = jlog.Reader(journal, start=start)
    with checked():
        end = _sequence_of(journal, stop)
    with reader, _progress(reader, end) as advance:
        reading = Reading(reader)
        left = sys.maxsize if limit is None else limit
        while left and reader.position < end:
            wanted = end - reader.position
            batch = reading.batch(wanted if pattern else min(wanted, left))
            if not len(batch):
                break
            records: Any = batch
            if pattern or reader.position > end:
                records = [record for record in batch if record.sequence < end and _matches(pattern, record)][
                    :left
                ]
            left -= len(records)
            out.write(to_bytes(records))
            advance(len(batch))
        out.flush()
        reading.finish()


def _matches(pattern: re.Pattern[bytes] | None, record: jlog.Record) -> bool:
    return pattern is None or (record.value is not None and pattern.search(record.value) is not None)


def _progress(reader: jlog.Reader, end: int) -> AbstractContextManager[Callable[[int], None]]:
    """For output into a file: behind a pipe may be what uses the terminal itself."""
    into_file = stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    total = None if end == sys.maxsize else end - reader.position
    return progress_bar("Reading", total, in_bytes=False, shown=into_file)


def _sequence_of(journal: str, position: Position) -> int:
    """Of --to; of `end` as it is now, so that a journal that is written meanwhile has one too."""
    if isinstance(position, int):
        return position
    try:
        with jlog.Reader(journal, start=position) as reader:
            return reader.position
    except CorruptJournal:
        if position != "end":
            raise
        return sys.maxsize  # what hides it is reported when reading comes there


def dump_blocks(journal: str, as_json: bool) -> None:
    opened = jlog.Journal(journal)
    if as_json:
        out = binary_stdout()
        for path, block in opened.blocks():
            out.write(to_json(_block_fields(path, block)).encode("utf-8", "backslashreplace") + b"\n")
        out.flush()
    else:
        columns = ("segment", "offset ", "kind", "codec", "first ", "records ", "stored ", "raw ", "written")
        names = (
            "offset",
            "kind",
            "codec",
            "first_sequence",
            "records",
            "stored_bytes",
            "raw_bytes",
            "written",
        )
        rows = (_block_fields(path, block) for path, block in opened.blocks())
        print_table(
            columns, [[os.path.basename(row["path"]), *(row[name] for name in names)] for row in rows]
        )
    report = opened.verify()
    for damage in report.damage:
        report_damage(damage)
    if not report.ok:
        raise click.exceptions.Exit(DAMAGED)


def _block_fields(path: str, block: Any) -> dict[str, Any]:
    fields = {"path": path, **block._asdict()}
    fields["kind"] = KINDS.get(block.kind, block.kind)
    fields["codec"] = CODECS.get(block.codec, block.codec)
    fields["written"] = _time_of(block.clock_us)
    return fields


def _time_of(microseconds: int) -> str | None:
    try:
        return iso_time(datetime.fromtimestamp(microseconds / 1e6, timezone.utc))
    except (OverflowError, ValueError, OSError):
        return None
