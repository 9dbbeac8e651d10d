"""Splits a stream of bytes into records as soon as they arrive."""

from __future__ import annotations

import os
import select
import struct
from collections.abc import Callable, Iterator

import click

from jlog.errors import RecordTooLarge
from jlog.record import VALUE_BYTES_MAX

CHUNK_BYTES = 1 << 20
_LENGTH = struct.Struct("<I")

Splitter = Callable[[Iterator[bytes], str], Iterator[list[bytes]]]


def chunks(fd: int, name: str) -> Iterator[bytes]:
    """Yields the bytes that have arrived, without waiting for more: a slow pipe gives small pieces."""
    while True:
        try:
            chunk = os.read(fd, CHUNK_BYTES)
        except BlockingIOError:  # another process that has this pipe has set it so
            select.select([fd], [], [])
            continue
        except OSError as error:
            raise OSError(error.errno, error.strerror, name) from None
        if not chunk:
            return
        yield chunk


def split_lines(pieces: Iterator[bytes], name: str) -> Iterator[list[bytes]]:
    """Yields lists of the lines that are complete, without their newline; at the end the bytes after the last newline."""
    started: list[bytes] = []  # pieces of a long line, to be joined only once
    started_bytes = 0
    for piece in pieces:
        head, newline, rest = piece.partition(b"\n")
        started.append(head)
        started_bytes += len(head)
        if started_bytes > VALUE_BYTES_MAX:
            raise too_large(name)
        if newline:
            lines = rest.split(b"\n")
            last = lines.pop()
            yield [b"".join(started), *lines]
            started, started_bytes = [last], len(last)
    if started_bytes:
        yield [b"".join(started)]


def split_length32(pieces: Iterator[bytes], name: str) -> Iterator[list[bytes]]:
    """Yields lists of the records that are complete. Each is a little-endian length of 4 bytes and so many bytes."""
    data = bytearray()
    needed = 0  # bytes that the record which is incomplete needs
    for piece in pieces:
        data += piece
        if len(data) < needed:
            continue
        found, at, needed = _records_in(bytes(data))
        del data[:at]
        if found:
            yield found
        if needed > VALUE_BYTES_MAX + _LENGTH.size:
            raise too_large(name)
    if data:
        raise click.ClickException(
            f"{name} ends in the middle of a record ({len(data)} bytes of it); the records before it are appended"
        )


def _records_in(data: bytes) -> tuple[list[bytes], int, int]:
    """Returns the complete records, the offset of their end, and the size of the next record with its length."""
    found = []
    at, size, needed = 0, len(data), 0
    length_at = _LENGTH.unpack_from
    while size - at >= 4:
        (length,) = length_at(data, at)
        if length > VALUE_BYTES_MAX or size - at - 4 < length:
            needed = length + 4
            break
        found.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return found, at, needed


def too_large(name: str) -> RecordTooLarge:
    return RecordTooLarge(f"{name}: a record has more than {VALUE_BYTES_MAX} bytes (1 GiB); those before it are appended")


SPLITTERS: dict[str, Splitter] = {"lines": split_lines, "length32": split_length32}
