"""`jlogtool import` and `jlogtool export`: journals of the C library libjlog."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import click

import jlog
from jlog.cli.arguments.journal_options import complete_retention, journal_options
from jlog.cli.arguments.parameters import DIRECTORY, SIZE, checked, journal_argument
from jlog.cli.process import DAMAGED, signals_to
from jlog.cli.records.past_damage import report_damage
from jlog.cli.terminal.figures import counted
from jlog.cli.terminal.output import complain, json_option, print_json
from jlog.cli.terminal.progress import progress_bar
from jlog.libjlog import Import, export_journal


@click.command("import")
@click.argument("libjlog", metavar="LIBJLOG_DIR", type=DIRECTORY)
@journal_argument
@click.option("-f", "--follow", is_flag=True, help="Go on importing what its writer appends, until SIGINT or SIGTERM.")
@click.option("--moved", is_flag=True, help="LIBJLOG_DIR was moved or copied since the last import.")
@journal_options
@json_option
def import_libjlog(libjlog: str, journal: str, follow: bool, moved: bool, options: dict[str, Any], as_json: bool) -> None:
    """Import the journal of the C library libjlog in LIBJLOG_DIR into JOURNAL, which is created if there is none.

    Messages become records and keep their times, also those in the pre-commit buffer; subscribers become subscribers,
    and keep their positions. LIBJLOG_DIR is only read, and its writer may go on. A second import goes on where the
    first one stopped, however it stopped.

    A damaged place has a line on stderr with its file and offset; everything intact is imported, and the exit code is
    3. A last message that is cut off was never acknowledged: it is only a note.

    The options that are given hold for JOURNAL from now on; the others stay as they are.

    \b
    Examples:
      jlogtool import /var/log/old /var/lib/events
      jlogtool import --follow /var/log/old /var/lib/events
      jlogtool import --compression lz4 /var/log/old /var/lib/events
    """
    running: Import | None = None

    def end(_number: int, _frame: object) -> None:
        if running is None:
            raise click.exceptions.Exit(0)
        running.stop()

    with signals_to(end) if follow else nullcontext():
        with checked():
            complete_retention(options, journal)
            running = Import(
                libjlog,
                journal,
                follow=follow,
                moved=moved,
                on_damage=complain,
                on_warning=lambda text: complain(f"warning: {text}"),
                on_note=lambda text: complain(f"note: {text}"),
                **options,
            )
        with progress_bar("Importing", running.size_bytes, shown=not follow) as advance:
            running.on_progress = advance
            result = running.run()
    print_result(journal, result, "imported", as_json)


def print_result(target: str, result: Any, done: str, as_json: bool) -> None:
    """Prints the result of an import or an export, and exits with 3 if there was damage."""
    if as_json:
        print_json(vars(result))
    else:
        click.echo(f"{target}: {counted(result.records, 'record')} and {counted(result.subscribers, 'subscriber')} {done}")
    if result.damage:
        raise click.exceptions.Exit(DAMAGED)


@click.command("export")
@journal_argument
@click.argument("libjlog", metavar="LIBJLOG_DIR", type=DIRECTORY)
@click.option(
    "--compression", type=click.Choice(["none", "lz4"]), default="none", show_default=True, help="Compression of each message."
)
@click.option("--unit-limit", type=SIZE, default=4 << 20, help="Size at which libjlog's segments end.  [default: 4M]")
@click.option("--big-endian", is_flag=True, help="Write for a machine with this byte order.")
@json_option
def export_libjlog(journal: str, libjlog: str, compression: str, unit_limit: int, big_endian: bool, as_json: bool) -> None:
    """Export JOURNAL, as it is now, to LIBJLOG_DIR, a new or empty directory, as a journal that the C library libjlog
    reads. JOURNAL is not changed, and other processes may use it meanwhile.

    Records keep their values and times, and subscribers their positions. A warning on stderr names what that format
    has no place for: keys, headers, null values, times beyond 32 bits of seconds, gaps, and checkpoints.

    \b
    Examples:
      jlogtool export /var/lib/events /tmp/events-for-libjlog
      jlogtool export --compression lz4 /var/lib/events /tmp/old
    """
    with progress_bar("Exporting", len(jlog.Journal(journal)), in_bytes=False) as advance, checked():
        result = export_journal(
            journal,
            libjlog,
            compression=compression,
            unit_limit=unit_limit,
            big_endian=big_endian,
            on_damage=report_damage,
            on_note=lambda text: complain(f"warning: {text}"),
            on_progress=advance,
        )
    print_result(libjlog, result, "exported", as_json)
