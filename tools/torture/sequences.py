"""The history of every sequence of a journal."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from torture.records import Wrong

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1 << 12
SEEN, ACKNOWLEDGED = 1 << 32, 1 << 33


class Sequences:
    """Holds what is known of each sequence: a digest, and whether the record was acknowledged or only seen. It is sparse."""

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}
        self.count = 0
        self.end = 0

    def know(self, sequence: int, digest: int, mark: int, source: str) -> None:
        number, at = divmod(sequence, CHUNK)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = array("Q", bytes(8 * CHUNK))
        known = chunk[at]
        if known and known & 0xFFFFFFFF != digest:
            raise Wrong(
                f"sequence {sequence} was given twice: {source} has a record with the checksum {digest:08x}, another "
                f"one with {known & 0xFFFFFFFF:08x} was {'acknowledged' if known & ACKNOWLEDGED else 'read'} there"
            )
        if not known:
            self.count += 1
            self.end = max(self.end, sequence + 1)
        chunk[at] = known | digest | mark

    def at(self, sequence: int) -> int:
        """Returns the digest of a sequence; 0 if nothing is known of it."""
        number, at = divmod(sequence, CHUNK)
        chunk = self._chunks.get(number)
        return 0 if chunk is None else chunk[at]

    def known_from(self, first: int, end: int | None = None) -> Iterator[int]:
        """Yields every known sequence in this range."""
        end = self.end if end is None else end
        for number in sorted(self._chunks):
            base = number * CHUNK
            if base + CHUNK <= first or base >= end:
                continue
            for at, known in enumerate(self._chunks[number]):
                if known and first <= base + at < end:
                    yield base + at

    def is_gap(self, first: int, end: int) -> bool:
        """Returns whether no record was ever seen in this range."""
        return first <= end and next(self.known_from(first, end), None) is None
