"""The records that are appended and read back."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

CHUNK_RECORDS = 1000
CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class Load:
    """The records of one run: their number and their size. They are appended in chunks, the same chunk again and again."""

    records: int
    value_bytes: int = 100

    @property
    def chunk_records(self) -> int:
        return max(min(CHUNK_RECORDS, CHUNK_BYTES // max(self.value_bytes, 1), self.records), 1)

    @property
    def chunks(self) -> int:
        return max(self.records // self.chunk_records, 1)

    def chunk(self) -> list[bytes]:
        return [value_of(number, self.value_bytes) for number in range(self.chunk_records)]

    def whole(self, processes: int = 1) -> Load:
        """Rounds the number of records, so that each process has whole chunks."""
        step = self.chunk_records * processes
        return replace(self, records=max(self.records // step, 1) * step)

    def share(self, part: float, least: int = 1) -> Load:
        """Takes a part of the records, but at least `least`."""
        return replace(self, records=max(int(self.records * part), least)).whole()


def value_of(number: int, size: int) -> bytes:
    """Returns a line of JSON as services log it, cut or repeated to the size. LZ4 compresses it to about a half."""
    line = b'{"id":"%s","sequence":%d,"level":"info","path":"/orders/%d","ms":%d},' % (
        os.urandom(8).hex().encode(),
        number,
        number * 7919 % 10_007,
        number * 31 % 997,
    )
    return (line * (size // len(line) + 1))[:size]
