"""The content of the records, so that each can be checked on its own: tests/processes/units.py, followed by a checksum.

A value is `writer unit part parts flag timestamp filler` and the CRC-32 of that, of the key and of the headers.
"""

from __future__ import annotations

import errno
import zlib
from typing import TYPE_CHECKING, NamedTuple

from processes.units import part_of, values_of

if TYPE_CHECKING:
    from random import Random

    import jlog

ID_HEADER = "jlog.id"
CRC_BYTES = 8  # in hexadecimal digits
# Errors of a full disk, a process without descriptors, and a broken disk.
EXPECTED = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOMEM}


class Wrong(Exception):
    """A promise does not hold."""


class Content(NamedTuple):
    """The arguments with which one record is appended."""

    value: bytes
    key: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    timestamp_us: int | None
    digest: int


def contents_of(
    chance: Random,
    writer: str,
    unit: int,
    parts: int,
    *,
    size: int,
    has_state: bool,
    times_us: tuple[int, int] | None,
    identity: bytes | None = None,
) -> list[Content]:
    """Returns the records of a unit. times_us: the range of their explicit times; None: values alone, without key, headers
    or time. identity: the id with which they are appended."""
    heads = values_of(writer, unit, parts, has_state=has_state)
    return [_content_of(chance, writer, part, head, size, times_us, identity) for part, head in enumerate(heads)]


def _content_of(
    chance: Random,
    writer: str,
    part: int,
    head: bytes,
    size: int,
    times_us: tuple[int, int] | None,
    identity: bytes | None,
) -> Content:
    key = headers = timestamp_us = None
    if times_us is not None:
        key = chance.choice((None, b"", writer.encode()))
        headers = chance.choice((None, [("part", b"%d" % part), ("none", None)]))
        timestamp_us = chance.choice((None, chance.randrange(*times_us)))
    body = head + str("-" if timestamp_us is None else timestamp_us).encode() + b" "
    if chance.random() < 0.5:
        body = body.ljust(size, b".")
    elif len(body) < size:
        body += chance.randbytes(size - len(body))
    own = [] if identity is None else [(ID_HEADER, identity)]
    digest = digest_of(body, key, [*own, *(headers or ())])
    return Content(body + b"%08x" % digest, key, headers, timestamp_us, digest)


def digest_of(body: bytes, key: bytes | None, headers: object) -> int:
    return zlib.crc32(repr((key, list(headers))).encode(), zlib.crc32(body))  # type: ignore[call-overload]


def check_record(record: jlog.Record) -> int:
    """Returns the record's digest. Raises Wrong if its writer did not append it like this."""
    value = record.value
    if value is None or len(value) <= CRC_BYTES:
        raise Wrong(f"record {record.sequence} is {value!r}, which nobody wrote")
    body, told = value[:-CRC_BYTES], value[-CRC_BYTES:]
    digest = digest_of(body, record.key, record.headers)
    if b"%08x" % digest != told:
        raise Wrong(f"record {record.sequence} is not what was written: {value[:80]!r}… {told!r}")
    time = body.split(b" ", 6)[5]
    if time != b"-" and int(time) != record.timestamp_us:
        raise Wrong(f"record {record.sequence} was given the time {time!r} and has {record.timestamp_us}")
    return digest


def identity_of(value: bytes) -> tuple[str, int]:
    """Returns (writer, unit)."""
    part = part_of(value)
    return part.writer, part.unit
