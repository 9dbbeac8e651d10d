"""Small journals, and what stands in them."""

from __future__ import annotations

import os
from typing import Any

import jlog

SMALL: dict[str, Any] = {
    "precommit": 4 << 10,
    "segment_bytes": 4 << 10,
}  # the least that there is: rolls come soon


def value_of(number: int) -> bytes:
    return f"{number} ".encode().ljust(100, b".")


def fill(writer: jlog.Writer, records: int) -> list[bytes]:
    """Appends so many records, which say their sequence; returns their values."""
    first = writer.next_sequence
    found = [value_of(number) for number in range(first, first + records)]
    for value in found:
        writer.append(value)
    return found


def values(path: str | os.PathLike[str], start: Any = "begin") -> list[bytes | None]:
    with jlog.Reader(path, start=start) as reader:
        return list(reader.values())


def records(path: str | os.PathLike[str]) -> list[jlog.Record]:
    with jlog.Reader(path) as reader:
        return list(reader)


def sequences(reader: jlog.Reader) -> list[int]:
    return [record.sequence for record in reader]


def read_away(path: str | os.PathLike[str], name: str, records: int | None = None) -> int:
    """The subscriber reads so many records, or all, and commits; returns where it stands then."""
    with jlog.Reader(path, name) as reader:
        if records is None:
            list(reader.values())
        elif records:
            reader.seek(reader.position + records)
        reader.commit()
        return reader.committed
