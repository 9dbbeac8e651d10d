"""`jlogtool pipeline`: writes journals, or Kafka topics, to Parquet, Delta Lake or Iceberg through Spark."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

from jlog.cli.arguments.parameters import SECONDS, Parsed, TimeType, checked
from jlog.cli.process import signals_to
from jlog.cli.terminal.output import print_json, print_table
from jlog.cli.terminal.progress import on_terminal, progress_bar
from jlog.errors import JournalError
from jlog.pipeline.plan import MaxBad, PipelinePlan
from jlog.system.texts import FoundTime, parse_seconds, parse_time, reads_as_a_time


def parse_trigger(text: str) -> float | None:
    return None if text == "available-now" else parse_seconds(text)


def parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), value.strip()


def parse_place(text: str) -> str | FoundTime:
    """Parses where a pipeline begins; what is not a time is checked with the sources."""
    return parse_time(text) if reads_as_a_time(text) else text


PLACE = TimeType("PLACE", parse_place)
TRIGGER = Parsed("available-now|DURATION", parse_trigger)
MAX_BAD = Parsed("N|N%", MaxBad.parse)
SETTING = Parsed("NAME=VALUE", parse_setting)
# Options that the plan has under the same name, and as they are.
OF_THE_PLAN = (
    "schema", "batch_records", "subscriber", "query", "journal_pattern", "fail_on_data_loss", "format", "compact_every",
    "evolve", "max_bad", "adopt", "retry_quarantine", "interval", "expire_seconds",
)  # fmt: skip


@click.command()
@click.argument("places", metavar="JOURNAL... [DEST]", nargs=-1, required=True)
@click.option(
    "--format",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Format of DEST: Parquet files, or a table of Delta Lake or Iceberg.",
)
@click.option("--table", metavar="NAME", help="CATALOG.DB.TABLE of Delta Lake or Iceberg, not DEST. Needs --checkpoint.")
@click.option(
    "--parse",
    type=click.Choice(["none", "json", "regex", "logfmt"]),
    default="none",
    show_default=True,
    help="Format of the values; each field becomes a column.",
)
@click.option("--pattern", metavar="REGEX", help="For --parse regex: each named group becomes a column.")
@click.option("--schema", metavar="DDL", help="Fields and their types: 'level string, ms double'.  [default: as seen]")
@click.option(
    "--evolve",
    type=click.Choice(["other", "add", "fail"]),
    default="other",
    show_default=True,
    help="Fields without a column: go to the column `other`; are added (Delta Lake and Iceberg); or end the pipeline.",
)
@click.option("--keep-value", is_flag=True, help="Keep the value as a column beside its fields.")
@click.option(
    "--partition-by",
    metavar="COLUMN",
    multiple=True,
    help="A directory for each value of COLUMN; date and hour are of the record's UTC time. May be repeated.  [default: date]",
)
@click.option(
    "--trigger",
    "interval",
    type=TRIGGER,
    default="available-now",
    show_default=True,
    help="available-now: read up to the ends and stop; 10s: a batch every 10 seconds, until stopped.",
)
@click.option("--checkpoint", metavar="DIR", help="Where Spark stores its progress.  [default: DEST.checkpoint]")
@click.option("--adopt", is_flag=True, help="Take over DEST from a pipeline whose checkpoint is lost. Needs a new one.")
@click.option("--quarantine", metavar="DIR", help="Where values go that cannot be parsed.  [default: DEST.quarantine]")
@click.option("--retry-quarantine", is_flag=True, help="At the end, add to DEST what can be parsed by now of the quarantine.")
@click.option("--max-bad", type=MAX_BAD, help="End before more than N records, or N% of the run's, go to the quarantine.")
@click.option(
    "--compact-every",
    metavar="N",
    type=click.IntRange(min=1),
    help="Join small files into larger ones after every N batches. For Delta Lake and Iceberg.",
)
@click.option(
    "--expire-snapshots",
    "expire_seconds",
    metavar="AGE",
    type=SECONDS,
    help="With --compact-every: remove older snapshots of Iceberg.",
)
@click.option("--query", metavar="SQL", help="Run this at the end, on the tables records and quarantine.")
@click.option("--subscriber", metavar="NAME", help="Subscriber that follows, in each journal.")
@click.option(
    "--start",
    "--from",
    "--since",
    "start",
    type=PLACE,
    help="Begin a new pipeline at earliest, latest, a sequence, or a time as in dump.  [default: earliest]",
)
@click.option(
    "--until",
    "--to",
    "until",
    type=PLACE,
    help="End before this sequence, or before the first record at or after this time. A later run goes on from there.",
)
@click.option("--journal-pattern", metavar="REGEX", help="Read the journals below JOURNAL whose paths from there match.")
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="End with an error where records are gone that were not read; or go on after them.",
)
@click.option(
    "--batch-records",
    metavar="N",
    type=click.IntRange(min=1),
    default=5_000_000,
    show_default=True,
    help="Most records of a batch, from each source.",
)
@click.option("--progress", is_flag=True, help="Print a line of JSON for each batch, with the distance to the newest records.")
@click.option("--master", metavar="URL", help="Master of Spark.  [default: local[*]]")
@click.option("--conf", type=SETTING, multiple=True, help="A setting of Spark's, as with spark-submit. May be repeated.")
def pipeline(**options: Any) -> None:
    """Write the records of each JOURNAL to Parquet below DEST, through Spark, each exactly once.

    With --format, DEST is a table of Delta Lake or Iceberg; --table names one of a catalog in place of DEST.

    A JOURNAL may be a topic: kafka://HOST:PORT/TOPIC. A second run goes on where the first one stopped or was killed. A
    value that cannot be parsed goes to the quarantine with the reason; a field without a column goes to the column
    `other`.

    Ends with a summary on stdout as one line of JSON: records_in, records_out, records_bad, quarantine and more. SIGTERM
    and SIGINT end it with exit code 0, and the summary of what was done. Needs Java, and pip install 'pyjlog[spark]'.

    \b
    Examples:
      jlogtool pipeline /var/lib/orders /lake/orders
      jlogtool pipeline --parse json --partition-by date --partition-by level \\
          --query 'SELECT level, count(*) FROM records GROUP BY 1' /tmp/a lake
      jlogtool pipeline --trigger 10s /tmp/a /tmp/b hdfs:///lake
      jlogtool pipeline --format delta --compact-every 100 /var/lib/orders /lake
      jlogtool pipeline --format iceberg --table shop.db.orders \\
          --checkpoint /lake/orders.checkpoint /var/lib/orders
    """
    with checked():
        plan = plan_of(options)
        from jlog.pipeline.pipeline import Pipeline
        from jlog.spark.session import session

    logging.getLogger("py4j").addHandler(logging.NullHandler())  # it also logs the errors that it raises
    log = os.path.join(tempfile.gettempdir(), f"jlogtool-pipeline-{os.getpid()}.log")
    with progress_bar("Records", None, in_bytes=False) as advance:
        running = Pipeline(plan, on_records=advance, on_batch=print_json if options["progress"] else None)
        with signals_to(lambda *_: running.stop()), checked():
            name = f"jlog pipeline to {plan.dest}"
            try:
                with session(name, options["master"], settings_of(options), log) as spark:
                    running.run(spark)
            except JournalError as error:
                raise JournalError(f"{error}; Spark's log: {log}" if os.path.exists(log) else str(error)) from error
            except Exception:
                if not running.is_stopped:  # signals reach the virtual machine too
                    raise
    if os.path.exists(log):
        os.unlink(log)
    found = running.summary.as_json()
    if on_terminal() and found.get("query"):
        rows = found["query"]
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    print_json(found)


def plan_of(options: dict[str, Any]) -> PipelinePlan:
    """Creates the plan from the options. It opens the journals before Spark is started, which takes seconds."""
    from jlog.spark.session import check_installed

    check_installed()
    from jlog.pipeline.inputs import check_bounds, check_source
    from jlog.pipeline.parsing import Parser

    sources, dest, beside = places_of(options)
    # The plan has a time as text, which means the same on every machine.
    start, until = (
        place.isoformat() if isinstance(place, datetime) else place for place in (options["start"], options["until"])
    )
    check_bounds(start, until, sources)
    return PipelinePlan(
        sources=tuple(check_source(source, options["journal_pattern"]) for source in sources),
        dest=dest,
        checkpoint=location(options["checkpoint"] or f"{dest}.checkpoint"),
        quarantine=beside("quarantine", "quarantine"),
        parser=Parser(options["parse"], options["pattern"], options["keep_value"]),
        partition_by=options["partition_by"] or ("date",),
        start=start,
        until=until,
        is_table=options["table"] is not None,
        **{name: options[name] for name in OF_THE_PLAN},
    )


def places_of(options: dict[str, Any]) -> tuple[tuple[str, ...], str, Callable[[str, str], str]]:
    """Returns the sources, the destination, and a function for places beside it: of an option, or with this ending."""
    places, table = options["places"], options["table"]
    if table is not None:
        if options["checkpoint"] is None:
            raise ValueError("--table needs --checkpoint: a directory where Spark stores its progress")
        return places, table, lambda option, ending: options[option] or f"{table}_{ending}"
    if len(places) < 2:
        raise click.UsageError("Missing argument 'DEST': a directory, or --table with the name of a table.")
    dest = location(places[-1])
    return places[:-1], dest, lambda option, ending: location(options[option] or f"{dest}.{ending}")


def settings_of(options: dict[str, Any]) -> dict[str, str]:
    """Returns the settings of Spark that were given, with those of the format's connector."""
    from jlog.pipeline.tables.connector import CONNECTORS
    from jlog.spark.session import submitted_settings

    conf = dict(options["conf"])
    connector = CONNECTORS.get(options["format"])
    return conf if connector is None else connector.with_settings({**submitted_settings(), **conf})


def location(path: str) -> str:
    """Returns the full path of a local directory, since Spark may run in another one, or a URL as it is."""
    return path.rstrip("/") if "://" in path else os.path.abspath(path.removeprefix("file:"))
