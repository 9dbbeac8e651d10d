"""The two tables of `jlogtool top`, of journals and of subscribers: their columns, their order, and how far they are
scrolled."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from jlog.cli.terminal.figures import change, count, rate, size, span
from jlog.cli.terminal.output import printable
from jlog.cli.terminal.sampling import Sample, alarm_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import jlog

NAME_CELLS = 10  # enough of a name to know it by
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
    title: str
    width: int  # 0: the width that is left, shared by all such columns
    value: Callable[[Row], Any]  # the value to sort by; None comes last
    form: Callable[[Any], str]  # the text of a value
    key: str  # the key that sorts by this column
    is_path: bool = False  # a path is cut off at its beginning
    from_width: int = 0  # least width of a terminal that shows the column
    falling: bool = True  # whether the largest comes first, unless reversed
    dropped: int = 0  # its turn among the columns that a narrow terminal drops; 0: never

    def shown(self, row: Row) -> str:
        return self.form(self.value(row))


def _of_stats(name: str) -> Callable[[Sample], Any]:
    return lambda sample: getattr(sample.stats, name) if sample.stats else None


def _of_rates(name: str) -> Callable[[Sample], Any]:
    return lambda sample: sample.rates.counters[name] if sample.rates else None


JOURNALS: tuple[Column[Sample], ...] = (
    Column("JOURNAL", 0, lambda sample: sample.path, str, "j", is_path=True, falling=False),
    Column("REC/S", 7, _of_rates("appends"), rate, "a"),
    Column("BYTES/S", 9, _of_rates("bytes"), size, "b", dropped=6),
    Column("RECORDS", 8, _of_stats("records"), count, "n"),
    Column("SIZE", 9, _of_stats("size_bytes"), size, "z"),
    Column("SEGS", 5, _of_stats("segments"), count, "e", dropped=5),
    Column("FLUSH/S", 7, _of_rates("flushes"), rate, "f", dropped=4),
    Column("SYNC/S", 6, _of_rates("syncs"), rate, "y", dropped=3),
    Column("ROLL/S", 6, _of_rates("rolls"), rate, "o", dropped=2),
    Column("WR", 3, _of_stats("writers"), count, "w", dropped=1),
)
SUBSCRIBERS: tuple[Column[SubscriberRow], ...] = (
    Column("SUBSCRIBER", 0, lambda row: row.name, str, "n", falling=False),
    Column("JOURNAL", 0, lambda row: row.sample.path, str, "j", is_path=True, falling=False),
    Column("READ/S", 7, lambda row: row.read, rate, "a", dropped=5),
    Column("LAG", 8, lambda row: row.at.lag, count, "l"),
    Column("LAG/S", 7, lambda row: row.grown, change, "m", dropped=3),
    Column("OLDEST", 6, lambda row: row.at.oldest_unread_seconds, span, "o", dropped=2),
    Column("IDLE", 6, lambda row: row.at.idle_seconds, span, "i", from_width=90, dropped=1),
    Column("HELD", 9, lambda row: row.at.held_bytes, size, "h", dropped=4),
    Column("STATE", 7, lambda row: row.state, str, "t", falling=False),
)


class TableView(Generic[Row]):
    """The visible part of a table, sorted by one column, and scrolled."""

    def __init__(self, columns: Sequence[Column[Row]], sorted_by: str) -> None:
        self.columns = columns
        self.rows: list[Row] = []
        self.top = 0
        self.room = 1
        self.reversed = False
        self.column = next(column for column in columns if column.title == sorted_by)
        self.widths = {column: column.width for column in columns}

    def press(self, key: str) -> None:
        """Handles a key, if it is for the table."""
        moves = {
            "up": -1,
            "down": 1,
            "page up": -self.room,
            "page down": self.room,
            "home": -len(self.rows),
            "end": len(self.rows),
        }
        by_key: dict[str, Column[Row]] = {column.key: column for column in self.columns}
        if key in moves:
            self.top += moves[key]
            self._clamp()
        elif key == "s":
            seen = list(self.widths)
            self.column = seen[(seen.index(self.column) + 1) % len(seen)] if self.column in seen else seen[0]
        elif key == "r":
            self.reversed = not self.reversed
        elif key in by_key:
            self.column = by_key[key]

    def _clamp(self) -> None:
        self.top = max(0, min(self.top, len(self.rows) - self.room))

    def show(self, rows: Sequence[Row], room: int) -> None:
        """Sets the rows, of which so many are visible."""
        value, falling = self.column.value, self.column.falling != self.reversed
        known = [row for row in rows if value(row) is not None]
        self.rows = sorted(known, key=value, reverse=falling) + [row for row in rows if value(row) is None]
        self.room = max(1, room)
        self._clamp()

    @property
    def seen(self) -> list[Row]:
        return self.rows[self.top : self.top + self.room]

    def fit(self, width: int, *, without: str = "") -> None:
        """Chooses the columns for a terminal of this width, and their widths: columns of names are as wide as they need to be,
        or share what is left. Where that is too little to know a name by, other columns are dropped."""
        columns = [c for c in self.columns if width >= c.from_width and c.title != without]
        named = [column for column in columns if not column.width]
        enough = sum(min(self._needed(column), NAME_CELLS) for column in named)
        droppable = sorted((column for column in columns if column.dropped), key=lambda column: column.dropped)
        while (left := width - sum(c.width for c in columns) - len(columns) + 1) < enough and droppable:
            columns.remove(droppable.pop(0))
        self.widths = {column: column.width for column in columns}
        for place, column in enumerate(sorted(named, key=self._needed)):
            self.widths[column] = max(1, min(self._needed(column), left // (len(named) - place)))
            left -= self.widths[column]

    def _needed(self, column: Column[Row]) -> int:
        return max(cell_len(text) for text in [column.title, *(printable(column.shown(row)) for row in self.rows)])

    def header(self, width: int, *, focused: bool) -> Text:
        line = Text(style="reverse" if focused else "underline")
        for column, cells in self.widths.items():
            style = "bold" if column is self.column else ""
            line.append(fitted(column.title, cells, right=bool(column.width)), style)
            line.append(" ")
        line.set_length(width)
        return line

    def line(self, row: Row, width: int) -> Text:
        cells = [
            fitted(printable(column.shown(row)), cells, right=bool(column.width), keep_end=column.is_path)
            for column, cells in self.widths.items()
        ]
        if isinstance(row, Sample) and row.error:
            reason = row.error.replace(os.path.abspath(row.path), "").lstrip("/: ")
            return Text(fitted(printable(f"{cells[0]} {reason}"), width), "red")
        alarming = isinstance(row, SubscriberRow) and row.state in ALARMING
        return Text(fitted(" ".join(cells), width), "red" if alarming else "")

    def plain_table(self) -> tuple[list[str], list[list[str]]]:
        """Returns the titles as print_table takes them, and all rows."""
        titles = [f"{column.title} " if column.width else column.title for column in self.columns]
        return titles, [[column.shown(row) for column in self.columns] for row in self.rows]


def fitted(text: str, width: int, *, right: bool = False, keep_end: bool = False) -> str:
    """Fits the text into exactly so many cells of a terminal. A ~ stands for text that is cut off, at the end or the
    beginning."""
    if cell_len(text) > width and keep_end:
        while cell_len(text) >= width > 0:
            text = text[1:]
        text = f"~{text}"
    if cell_len(text) > width:
        text = set_cell_size(text, max(0, width - 1)) + "~"[:width]
    blank = " " * (width - cell_len(text))
    return blank + text if right else text + blank
