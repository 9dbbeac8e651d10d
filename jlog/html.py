"""Tables for notebooks. Records are text of others, so everything is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

SHOWN_ROWS = 5  # at each end
SHOWN_CHARACTERS = 200  # of a value; the rest is left out


def _escaped(text: str) -> str:
    from html import escape  # only notebooks need it

    return escape(text)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = "".join(f"<th>{_escaped(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{_shown(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><caption>{_escaped(caption)}</caption><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def records_table(caption: str, first: Iterable[Any], last: Iterable[Any] = ()) -> str:
    """Returns a table of the first and the last records."""
    rows, rest = [_row(record) for record in first], [_row(record) for record in last]
    if rows and rest and rest[0][0] != rows[-1][0] + 1:
        rows.append(("…",) * 5)
    return table(caption, ("sequence", "timestamp", "key", "value", "headers"), [*rows, *rest])


def ends(rows: Sequence[Sequence[object]]) -> list[Sequence[object]]:
    """Returns the first and the last of many rows, with a row of dots between them."""
    if len(rows) <= 2 * SHOWN_ROWS:
        return list(rows)
    return [*rows[:SHOWN_ROWS], ("…",) * len(rows[0]), *rows[-SHOWN_ROWS:]]


def time_text(timestamp_us: int | None) -> str | None:
    """Returns a time as text; None for None. Not every time of a record is one of a datetime."""
    if timestamp_us is None:
        return None
    try:
        return str(datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=timestamp_us))
    except OverflowError:
        return f"{timestamp_us} µs"


def _row(record: Any) -> tuple[Any, ...]:
    return record.sequence, time_text(record.timestamp_us), record.key, record.value, record.headers or None


def _shown(cell: object) -> str:
    if cell is None:
        return "<i>null</i>"
    text = bytes(cell[: 4 * SHOWN_CHARACTERS]).decode("utf-8", "backslashreplace") if isinstance(cell, bytes) else str(cell)
    return _escaped(text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…")
