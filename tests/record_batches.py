"""Record batches of Kafka as its specification has them, made for tests by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import lz4.frame

from jlog._core.format.checksum import crc32c

LZ4, APPEND_TIME, TRANSACTIONAL, CONTROL = 3, 0x08, 0x10, 0x20


class Row(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    time_delta: int = 0
    offset_delta: int | None = None  # None: one behind that of the record before


def varint(number: int) -> bytes:
    left = (number << 1 ^ number >> 63) & 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(row: Row, offset_delta: int) -> bytes:
    headers = b"".join(sized(name) + sized(value) for name, value in row.headers)
    body = b"".join(
        (
            b"\0",
            varint(row.time_delta),
            varint(offset_delta),
            sized(row.key),
            sized(row.value),
            varint(len(row.headers)),
            headers,
        )
    )
    return varint(len(body)) + body


def batch(
    rows: Sequence[Row | bytes],
    offset: int = 0,
    *,
    attributes: int = 0,
    leader_epoch: int = 0,
    time: int = 1_700_000_000_000,
    max_time: int = 1_700_000_000_000,
    producer: int = -1,
    last_delta: int | None = None,
    count: int | None = None,
    body: bytes | None = None,
) -> bytes:
    """Makes one batch. body: its records, where these are not to be those of `rows`."""
    encoded, next_delta = [], 0
    for row in rows:
        one = Row(row) if isinstance(row, bytes) else row
        delta = next_delta if one.offset_delta is None else one.offset_delta
        encoded.append(record(one, delta))
        next_delta = delta + 1
    records = b"".join(encoded) if body is None else body
    if attributes & 7 == LZ4:
        records = lz4.frame.compress(records, store_size=False)
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        next_delta - 1 if last_delta is None else last_delta,
        time,
        max_time,
        producer,
        0 if producer >= 0 else -1,
        -1,
        len(rows) if count is None else count,
    )
    checked += records
    return struct.pack(">qiibI", offset, 9 + len(checked), leader_epoch, 2, crc32c(checked)) + checked


def marker(offset: int, producer: int, *, commits: bool) -> bytes:
    """Makes the end of a transaction."""
    row = Row(b"\0\0\0\0\0\0", struct.pack(">hh", 0, commits))
    return batch([row], offset, attributes=TRANSACTIONAL | CONTROL, producer=producer)
