"""The two tables of `jlogtool top`, of journals and of subscribers: their columns, their order and their look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from jlog.cli.terminal.figures import change, count, rate, size, span
from jlog.cli.terminal.output import printable
from jlog.cli.terminal.sampling import Sample, alarm_of

if TYPE_CHECKING:
    import jlog

PATH_PART = 6  # a path takes at most this part of the terminal's width
ALARMING = ("damaged", "expired", "dead", "full")


@dataclass(frozen=True)
class SubscriberRow:
    name: str
    sample: Sample
    at: jlog.SubscriberStats

    @property
    def read(self) -> float | None:
        return self.sample.rates.read.get(self.name) if self.sample.rates else None

    @property
    def grown(self) -> float | None:
        return self.sample.rates.lag.get(self.name) if self.sample.rates else None

    @property
    def state(self) -> str:
        at = self.at
        workers = f"{len(at.work.workers)} work" if at.work and at.work.workers else "read"
        return alarm_of(at) or (workers if at.busy else "-")


Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of text, or of figures, which are aligned to the right."""

    title: str
    shown: Callable[[Row], str]
    is_text: bool = False
    is_path: bool = False  # cut at its beginning where it is long


def _of_stats(name: str, form: Callable[[Any], str]) -> Callable[[Sample], str]:
    return lambda sample: form(getattr(sample.stats, name) if sample.stats else None)


def _of_rates(name: str, form: Callable[[Any], str]) -> Callable[[Sample], str]:
    return lambda sample: form(sample.rates.counters[name] if sample.rates else None)


JOURNALS: tuple[Column[Sample], ...] = (
    Column("JOURNAL", lambda sample: sample.path, is_text=True, is_path=True),
    Column("REC/S", _of_rates("appends", rate)),
    Column("BYTES/S", _of_rates("bytes", size)),
    Column("RECORDS", _of_stats("records", count)),
    Column("SIZE", _of_stats("size_bytes", size)),
    Column("SEGS", _of_stats("segments", count)),
    Column("FLUSH/S", _of_rates("flushes", rate)),
    Column("SYNC/S", _of_rates("syncs", rate)),
    Column("ROLL/S", _of_rates("rolls", rate)),
    Column("WR", _of_stats("writers", count)),
)
SUBSCRIBERS: tuple[Column[SubscriberRow], ...] = (
    Column("SUBSCRIBER", lambda row: row.name, is_text=True),
    Column("JOURNAL", lambda row: row.sample.path, is_text=True, is_path=True),
    Column("READ/S", lambda row: rate(row.read)),
    Column("LAG", lambda row: count(row.at.lag)),
    Column("LAG/S", lambda row: change(row.grown)),
    Column("OLDEST", lambda row: span(row.at.oldest_unread_seconds)),
    Column("IDLE", lambda row: span(row.at.idle_seconds)),
    Column("HELD", lambda row: size(row.at.held_bytes)),
    Column("STATE", lambda row: row.state),
)


def subscriber_rows(samples: Sequence[Sample]) -> list[SubscriberRow]:
    """Returns the subscribers of all journals, the largest lag first."""
    rows = [
        SubscriberRow(name, sample, at) for sample in samples if sample.stats for name, at in sample.stats.subscribers.items()
    ]
    return sorted(rows, key=lambda row: row.at.lag, reverse=True)


def plain_table(columns: Sequence[Column[Row]], rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Returns the titles as print_table takes them, and the texts of the rows."""
    titles = [column.title if column.is_text else f"{column.title} " for column in columns]
    return titles, [[column.shown(row) for column in columns] for row in rows]


def live_table(columns: Sequence[Column[Row]], rows: Sequence[Row], room: int, width: int) -> Table:
    """Returns a table of at most so many rows for a terminal of this width. Where it is too narrow, texts are cut before
    figures are."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="reverse", expand=True)
    for column in columns:
        ratio = 1 if column.is_text else None
        table.add_column(column.title, justify="left" if column.is_text else "right", no_wrap=True, ratio=ratio)
    for row in rows[:room]:
        is_alarming = isinstance(row, SubscriberRow) and row.state in ALARMING
        cells = (Text(_cell(column, row, width // PATH_PART)) for column in columns)
        table.add_row(*cells, style="red" if is_alarming else "")
    return table


def error_line(sample: Sample) -> Text:
    """Returns the line of a journal that cannot be read."""
    return Text(printable(sample.error), "red", no_wrap=True, overflow="ellipsis")


def _cell(column: Column[Row], row: Row, path_cells: int) -> str:
    text = printable(column.shown(row))
    if column.is_path and cell_len(text) > path_cells:
        text = f"~{text[-path_cells + 1 :]}"
    return text
