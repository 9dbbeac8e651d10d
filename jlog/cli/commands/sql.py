"""`jlogtool sql`: a statement of DuckDB over journals, archives and topics."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import warnings
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

import jlog
from jlog.cli.arguments.parameters import JournalType, ParamType, checked, start_option, stop_option
from jlog.cli.arguments.topics import topic_settings
from jlog.cli.process import DAMAGED, ended_orderly, ending_at_once
from jlog.cli.records.past_damage import report_damage
from jlog.cli.records.rows import write_rows
from jlog.cli.terminal.output import binary_stdout, complain
from jlog.cli.terminal.progress import progress_bar
from jlog.errors import JournalError
from jlog.query.scan import MAX_COLUMNS
from jlog.record import import_pyarrow

if TYPE_CHECKING:
    from collections.abc import Iterator

    import duckdb

    from jlog.query.scan import Scan

FORMATS = ("table", "csv", "jsonl", "parquet")
ROWS = 1_000  # fetched at once
ENDING_SECONDS, ENDING_TRIES = 0.05, 5  # for the statement to end by itself after a signal
_SOURCE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.+)", re.DOTALL)


class SourceType(JournalType):
    name = "NAME=JOURNAL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = _SOURCE.fullmatch(value)
        if found is None:
            self.fail(
                f"{value!r} is not NAME=JOURNAL; the name is that of a table in the statement: app=/var/log/app", param, ctx
            )
        return found[1], super().convert(found[2], param, ctx)


class SchemaType(ParamType):
    name = "JSON"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self.fail(f"""{value!r} is not an object in JSON, such as '{{"id": "uint64", "level": "string"}}'""", param, ctx)
        return found


@click.command()
@click.argument("statement")
@click.argument("sources", nargs=-1, metavar="NAME=JOURNAL...", type=SourceType(or_topic=True, or_archive=True))
@start_option("The first record.")
@stop_option("end")
@click.option("--parse", type=click.Choice(["json"]), help="The fields of JSON objects are columns too.")
@click.option(
    "--schema", type=SchemaType(), help="With --parse json: fields and Arrow types, in JSON, in place of those of a sample."
)
@click.option(
    "--max-columns",
    type=click.IntRange(1),
    metavar="N",
    default=MAX_COLUMNS,
    show_default=True,
    help="At most N fields become columns; the others are in the map json_rest.",
)
@click.option("--text", is_flag=True, help="value, key and headers are text, not bytes.")
@click.option("--format", "format_name", type=click.Choice(FORMATS), default="table", show_default=True, help="Of the output.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE, which appears when it is whole."
)
@topic_settings
def sql(statement: str, sources: tuple[tuple[str, str], ...], format_name: str, output: str | None, **options: Any) -> None:
    """Run a STATEMENT of DuckDB's SQL, in which each NAME is a table with the records of its JOURNAL.

    A JOURNAL may be an archive or a topic, too. The columns are sequence, timestamp, key, value and headers, which is a
    map; with --parse json also the fields of the values, which are JSON objects. Only the columns that the statement
    needs are read, and of sequence and timestamp only the ranges that it leaves. A time without an offset is of this
    machine's zone.

    In table, csv and jsonl, bytes are shown as text where they are UTF-8, and else as base64. Damaged records are left
    out: each damaged place has a line on stderr, and the exit code is 3.

    \b
    Examples:
      jlogtool sql 'SELECT count(*) FROM app' app=app
      jlogtool sql --text "FROM a WHERE timestamp >= '2026-11-25 13:30'" a=app
      jlogtool sql --parse json 'SELECT level, count(*) FROM a GROUP BY 1' a=app
      jlogtool sql --parse json --schema '{"id": "uint64"}' 'FROM a' a=app
      jlogtool sql 'FROM a' a=app --format parquet -o app.parquet
    """
    if format_name == "parquet" and output is None:
        raise click.UsageError("--format parquet needs -o FILE")
    duplicates = {name for name, _ in sources if sum(name.lower() == other.lower() for other, _ in sources) > 1}
    if duplicates:
        raise click.UsageError(f"two journals have the name {', '.join(sorted(duplicates))}: in SQL, upper case is lower case")
    with ending_at_once():
        import_module("jlog.query.duckdb_sql")
        if options["parse"] is not None:
            import_pyarrow()
            import_module("jlog.query.json_fields")
    damage: set[tuple[str, int]] = set()

    def skipped(found: jlog.Damage) -> None:
        if (found.path, found.offset) not in damage:
            damage.add((found.path, found.offset))
            report_damage(found)

    with progress_bar("Reading", None, in_bytes=False) as advance:
        with checked():
            scans = {name: jlog.scan(journal, **options).told(skipped, advance) for name, journal in sources}
            for scan in scans.values():
                scan.range()
                with warnings.catch_warnings(record=True) as told:
                    warnings.simplefilter("always")
                    scan.names()
                for warning in told:
                    complain(str(warning.message))
        _run(statement, scans, format_name, output)
    if damage:
        raise click.exceptions.Exit(DAMAGED)


def _run(statement: str, scans: dict[str, Scan], format_name: str, output: str | None) -> None:
    from concurrent.futures import ThreadPoolExecutor, wait

    from jlog.query.duckdb_sql import connected

    with ended_orderly(), ExitStack() as stack:
        spilled = stack.enter_context(tempfile.TemporaryDirectory(prefix="jlog-sql-", ignore_cleanup_errors=True))
        part = stack.enter_context(nullcontext() if output is None else _appearing(output))
        with checked():
            connection = connected(spilled)
        # DuckDB does not look for signals while it works, so it works in another thread than they come to.
        running = ThreadPoolExecutor(1).submit(_write, connection, statement, scans, format_name, part)
        try:
            running.result()
        except BaseException:
            for _ in range(ENDING_TRIES):
                if not running.done():  # DuckDB forgets what comes before a statement, or between two of them
                    connection.interrupt()
                    wait([running], timeout=ENDING_SECONDS / ENDING_TRIES)
            if not running.done():  # it reads, or waits for the reader of its output: it ends with the process
                sys.stdout = None
            raise
        finally:
            if running.done():
                connection.close()


def _write(
    connection: duckdb.DuckDBPyConnection, statement: str, scans: dict[str, Scan], format_name: str, path: str | None
) -> None:
    from jlog.query.duckdb_sql import execute

    with ExitStack() as stack:
        stack.enter_context(_told())
        if format_name == "parquet":
            target = str(path).replace("'", "''")
            execute(connection, f"COPY ({statement.rstrip().rstrip(';')}\n) TO '{target}' (FORMAT parquet)", scans)
            return
        found = execute(connection, statement, scans)
        if found is None:
            raise click.UsageError("the statement is empty")
        file = None if path is None else stack.enter_context(open(path, "wb"))
        write_rows(format_name, file, found.description or [], _rows(found))
        binary_stdout().flush()


def _rows(found: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := found.fetchmany(ROWS):
        yield from rows


@contextmanager
def _told() -> Iterator[None]:
    """Turns DuckDB's errors into those of this program: one of the statement is one of usage."""
    import duckdb

    from jlog.query.duckdb_sql import reason_of

    try:
        yield
    except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
        raise click.UsageError(str(error)) from None
    except ValueError as error:  # of the statement's text
        raise click.UsageError(str(error)) from None
    except duckdb.Error as error:
        raise JournalError(reason_of(error)) from None


@contextmanager
def _appearing(path: str) -> Iterator[str]:
    """Yields the path of a file that gets its name when it is whole."""
    part = f"{path}.part-{os.getpid()}"
    try:
        yield part
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)
