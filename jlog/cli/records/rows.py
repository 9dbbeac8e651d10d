"""The rows of a query on stdout or in a file, for `jlogtool sql`."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, BinaryIO

from jlog.cli.terminal.output import binary_stdout, iso_time, print_table
from jlog.cli.terminal.row_lines import print_row_lines

Rows = Iterable[tuple[Any, ...]]
Columns = Sequence[Sequence[Any]]
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "NUMBER")


def write_rows(form: str, file: BinaryIO | None, columns: Columns, rows: Rows) -> None:
    """Writes the columns, as DuckDB describes them, and the rows, to the file or to stdout, as a table, csv or jsonl."""
    if form == "table":
        heads = [
            f"{column[0]} " if any(kind in str(column[1]).upper() for kind in _NUMBERS) else column[0] for column in columns
        ]
        texts = ([_text(value) for value in row] for row in rows)
        if file is None and binary_stdout().isatty():
            print_row_lines(heads, texts)
        else:
            print_table(heads, texts, file)
        return
    write = _write_csv if form == "csv" else _write_jsonl
    write(binary_stdout() if file is None else file, columns, rows)


def _write_csv(file: BinaryIO, columns: Columns, rows: Rows) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
    try:
        to = csv.writer(text, lineterminator="\n")
        to.writerow([column[0] for column in columns])
        to.writerows([_text(value) for value in row] for row in rows)
    finally:
        text.detach()


def _write_jsonl(file: BinaryIO, columns: Columns, rows: Rows) -> None:
    names = _distinct(column[0] for column in columns)
    for row in rows:
        line = json.dumps(dict(zip(names, map(_plain, row), strict=True)), ensure_ascii=False)
        file.write(line.encode("utf-8", "backslashreplace") + b"\n")


def _distinct(names: Iterable[str]) -> list[str]:
    """Returns the names with a number after each one that is there already, as DuckDB gives a table: a, a_1."""
    found: list[str] = []
    for name in names:
        new, number = name, 0
        while new in found:
            number += 1
            new = f"{name}_{number}"
        found.append(new)
    return found


def _text(value: Any) -> str:
    """Returns the value as a cell has it."""
    plain = _plain(value)
    if plain is None:
        return ""
    if isinstance(plain, (bool, dict, list)):
        return json.dumps(plain, ensure_ascii=False)
    return str(value) if isinstance(value, (float, Decimal)) else str(plain)


def _plain(value: Any) -> Any:
    """Returns the value in the types that JSON has."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, datetime):
        return iso_time(value) if value.tzinfo is not None else value.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return float(value)
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
