"""The rows of a query on stdout or in a file, for `jlogtool sql`."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, BinaryIO

from jlog.cli.terminal.output import binary_stdout, iso_time, print_table

Rows = Iterable[tuple[Any, ...]]
Writer = Callable[[Sequence[Sequence[Any]], Rows], None]
_NUMBERS = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "NUMBER")


def writer_of(name: str, file: BinaryIO | None) -> Writer:
    """Returns the function that writes the columns, as DuckDB describes them, and the rows, to a file or to stdout."""
    if name == "table":
        return lambda columns, rows: _write_table(file, columns, rows)
    write = {"csv": _write_csv, "jsonl": _write_jsonl}[name]
    to = binary_stdout() if file is None else file
    return lambda columns, rows: write(to, columns, rows)


def _write_table(file: BinaryIO | None, columns: Sequence[Sequence[Any]], rows: Rows) -> None:
    heads = [f"{column[0]} " if any(kind in str(column[1]).upper() for kind in _NUMBERS) else column[0] for column in columns]
    print_table(heads, ([_text(value) for value in row] for row in rows), file)


def _write_csv(file: BinaryIO, columns: Sequence[Sequence[Any]], rows: Rows) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="", write_through=True)
    try:
        to = csv.writer(text, lineterminator="\n")
        to.writerow([column[0] for column in columns])
        to.writerows([_text(value) for value in row] for row in rows)
    finally:
        text.detach()


def _write_jsonl(file: BinaryIO, columns: Sequence[Sequence[Any]], rows: Rows) -> None:
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
        return _of_bytes(bytes(value))
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


def _of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()
