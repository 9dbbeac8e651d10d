"""Output on stdout and stderr."""

from __future__ import annotations

import errno
import io
import json
import os
import select
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from jlog.care.clock import CLOCK_ADVICE
from jlog.cli.terminal.figures import counted, human_bytes, span
from jlog.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jlog.cli.arguments.click_parts import AddOptions

WIDTH_WITHOUT_TERMINAL = 10_000  # wide enough that nothing is folded

json_option: AddOptions = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def complain(error: BaseException | str) -> None:
    """Prints one line on stderr."""
    text = error if isinstance(error, str) else describe(error)
    click.echo(f"jlogtool: {' '.join(text.split())}", err=True)


def tell_at_terminal(text: str) -> None:
    """Prints a line for a person who waits at the terminal; no script sees it."""
    if sys.stderr is not None and sys.stderr.isatty():
        complain(text)


def describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and not isinstance(error, JournalError):
        where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        return f"{where}{error.strerror}{_advice(error)}"
    return str(error) or type(error).__name__


def _advice(error: OSError) -> str:
    """Returns what to do where a file of a journal is missing, or where this user may read a journal, and may not write to it;
    an empty text for any other error."""
    if not isinstance(error.filename, (str, bytes)):
        return ""
    if isinstance(error, FileNotFoundError):
        directory, name = os.path.split(os.fsdecode(error.filename))
        if name in ("lock", "bounds") and os.path.exists(os.path.join(directory, "journal.meta")):
            return "; the journal needs it: `jlogtool verify` lists all damage, `jlogtool repair` creates it anew"
        return ""
    if not isinstance(error, PermissionError):
        return ""
    path = os.fsdecode(error.filename)
    folder = os.path.dirname(path)
    # Subscribers and checkpoints have a directory of their own in that of the journal.
    places = (path, folder, os.path.dirname(folder))
    journal = next((place for place in places if os.path.exists(os.path.join(place, "journal.meta"))), None)
    if journal is None or not os.access(path if os.path.exists(path) else folder, os.R_OK):
        return ""
    return (
        f"; writing, and reading as a subscriber, needs write permission on {journal} and all in it; `jlogtool dump` and "
        "`jlogtool tail` only need to read it"
    )


def whole_stdout() -> io.TextIOWrapper:
    """Returns a stdout that writes everything or raises OSError. Python's own stdout drops the rest of a short write if
    PYTHONUNBUFFERED is set. Another process that shares this pipe may have made it non-blocking, so it is made blocking again.

    All layers are CPython's own C code. If one were a Python method, Ctrl-C could strike between a write and its count, and the
    same bytes would be written twice."""
    os.set_blocking(1, True)
    out = io.BufferedWriter(io.FileIO(1, "wb", closefd=False))
    return io.TextIOWrapper(out, sys.stdout.encoding, errors="backslashreplace", line_buffering=sys.stdout.isatty())


def in_colour() -> bool:
    """Says whether stdout shows colours, and its user wants them."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")
    return wanted and sys.stdout is not None and sys.stdout.isatty()


def say_no_more() -> None:
    """Drops the output that stdout still buffers: it would fail once more when the interpreter ends."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())


def binary_stdout() -> BinaryIO:
    """Returns stdout for bytes. Raises OSError where the caller has closed it."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdout")
    sys.stdout.flush()
    return sys.stdout.buffer


def stdout_is_gone() -> bool:
    """Says whether nobody can read the output any more: the other end of the pipe is closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """Turns values into those that JSON has, also the types that the columns of a query may have."""
    if isinstance(value, datetime):
        return iso_time(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode(errors="backslashreplace")
    raise TypeError(f"{value!r} cannot be written as JSON")


def print_json(value: Any) -> None:
    """Prints a value on one line, at once."""
    out = binary_stdout()
    # A path that is not Unicode is escaped; json.loads makes the same string of it.
    out.write(to_json(value).encode("utf-8", "backslashreplace") + b"\n")
    out.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], file: BinaryIO | None = None) -> None:
    """Prints a table, or writes it to a file, as wide as it needs to be where no terminal limits it. A column whose name ends
    in a space has numbers, which are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.strip(), justify="right" if column.endswith(" ") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    _print(table, file)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Prints a name and a value on each line."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields:
        table.add_row(name, Text(printable(str(value))))
    _print(table)


def _print(table: Any, file: BinaryIO | None = None) -> None:
    from rich.console import Console

    out = binary_stdout() if file is None else file
    if out.isatty():
        Console(highlight=False, color_system="auto" if in_colour() else None).print(table)
        return
    console = Console(width=WIDTH_WITHOUT_TERMINAL, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        if file is None:
            click.echo(line.rstrip())
        else:
            file.write(line.rstrip().encode("utf-8", "backslashreplace") + b"\n")


def printable(text: str) -> str:
    """Returns the text on one line, without characters that control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def iso_time(time: datetime) -> str:
    """Formats a time in UTC, to the microsecond: 2026-11-20T12:34:56.123456Z."""
    return time.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def in_words(name: str, value: Any) -> str:
    """Formats the field `name` of a journal."""
    if name.endswith("_bytes") or name == "precommit":
        return human_bytes(value)
    if name == "sync_interval":
        return f"{value:g} s"
    if name == "dedup":
        return f"{value['seconds']:g} s" if isinstance(value, dict) else f"the last {value:,} ids"
    if name in ("subscribers", "checkpoints"):
        return ", ".join(map(describe_position, value)) or "none"
    if name == "skipped":
        return ", ".join(f"{gap['first_sequence']} to {gap['next_sequence'] - 1}" for gap in value) or "none"
    if name == "ahead_seconds":
        return describe_ahead(value)
    if name == "retention" and "delete_read" in value:
        return describe_retention(value)
    if name == "dead":
        return ", ".join(map(describe_dead, value)) or "none"
    return str(value)


def describe_position(at: dict[str, Any]) -> str:
    return f"{at['name']} at {at['sequence']} (lag {', '.join([str(at['lag']), *_describe_work(at)])})"


def _describe_work(at: dict[str, Any]) -> Iterator[str]:
    if "workers" not in at:
        return
    yield f"{at['taken']} taken by {counted(len(at['workers']), 'worker')}"
    if at["oldest_unread_seconds"] is not None:
        yield f"the oldest {span(at['oldest_unread_seconds'])} old"
    if at["order"] != "any":
        yield f"in order of the {at['order']}"
    if at["max_attempts"] is not None:
        yield f"at most {counted(at['max_attempts'], 'attempt')}"
    if at["dead_letters"] is not None:
        yield f"dead letters in {at['dead_letters']}"


def describe_ahead(seconds: int) -> str:
    """Says how far the newest time of a journal is ahead of the clock."""
    return f"{span(seconds)} ahead of the clock: {CLOCK_ADVICE}"


def describe_retention(fields: dict[str, Any]) -> str:
    said = ["read records are removed" if fields["delete_read"] else "read records are kept"]
    unread = "" if fields["keep_for_subscribers"] else ", unread too"
    if fields["max_bytes"] is not None:
        said.append(f"at most {human_bytes(fields['max_bytes'])}{unread}")
    if fields["max_age"] is not None:
        said.append(f"at most {span(fields['max_age'])} old{unread}")
    if fields["subscriber_max_age"] is not None:
        said.append(f"subscribers hold for {span(fields['subscriber_max_age'])}")
    if fields["limit_bytes"] is not None:
        said.append(f"full at {human_bytes(fields['limit_bytes'])}")
    if fields["archive"] is not None:
        when = " when they are sealed" if fields["archive_on_roll"] else ""
        said.append(f"archived to {fields['archive']}{when}")
    return "; ".join(said)


def describe_dead(at: dict[str, Any]) -> str:
    """Describes a subscriber that nobody reads."""
    held = "holds nothing back any more" if at["expired"] else f"holds back {human_bytes(at['held_bytes'])}"
    return f"{at['name']} (no commit for {span(at['idle_seconds'])}, {held})"
