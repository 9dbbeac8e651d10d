"""Small journals, and what stands in them."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import google_crc32c

import jlog
import oracle
from crash.tampering import change
from jlog._core.format.constants import BLOCK_HEADER_BYTES

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


def backdate(path: str | os.PathLike[str], kind: str, name: str, moved: timedelta) -> None:
    """Moves the time of the last commit by so much, as if the clock had said so then."""
    file = Path(path, kind, name)
    content = bytearray(file.read_bytes())
    for at in (0, oracle.COPY_BYTES):
        fields = list(oracle.POSITION.unpack_from(content, at))
        fields[2] = 0  # the CRC covers 0 in its own place
        fields[-1] += round(moved.total_seconds() * 1e6)
        fields[2] = google_crc32c.value(oracle.POSITION.pack(*fields))
        oracle.POSITION.pack_into(content, at, *fields)
    file.write_bytes(content)


def damage_block(path: str | os.PathLike[str], number: int) -> None:
    """Damages a block, counted from 0 among those that have records."""
    found = [(file, block) for file, block in jlog.Journal(path).blocks() if block.records]  # type: ignore[union-attr]
    file, block = found[number]
    change(file, block.offset + BLOCK_HEADER_BYTES, b"damage")


@contextmanager
def no_file_may_grow() -> Iterator[None]:
    """Every write beyond the end of a file fails, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
