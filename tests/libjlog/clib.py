"""A small writer and reader of libjlog's format, as docs/libjlog.md has it. It shares no code with jlog.

As a program it is a writer process: it appends, and prints the number of each message once it is acknowledged.
"""

from __future__ import annotations

import mmap
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import lz4.block

PLAIN = 0x663A7318
LZ4 = 0x15106A01
UNCOMPRESSED = 0x15106A00  # the long header, and a provider that does nothing
OLD = 0
BEGIN_SECONDS = 1_700_000_000


class CWriter:
    """One writing process of libjlog: pre-commit buffer, flush, roll.

    unit_limit: bytes at which a segment is full. precommit: bytes of the buffer; None: as the journal has it.
    """

    def __init__(
        self,
        path: Path,
        *,
        magic: int = PLAIN,
        order: str = "<",
        unit_limit: int = 4 << 20,
        precommit: int | None = None,
    ) -> None:
        self.path, self.order = path, order
        if not path.exists():
            path.mkdir()
            numbers = (0, unit_limit, 1, magic)[: 3 if magic == OLD else 4]
            (path / "metastore").write_bytes(struct.pack(f"{order}{len(numbers)}I", *numbers))
            (path / f"{0:08x}").touch()
        found = (path / "metastore").read_bytes()
        self.segment, self.unit_limit, _, self.magic = (*struct.unpack(f"{order}{len(found) // 4}I", found), OLD)[:4]
        buffer = path / "pre_commit"
        if not buffer.exists():
            buffer.write_bytes(bytes(4 + (precommit or 0)))
        with open(buffer, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    @property
    def used(self) -> int:
        return int(struct.unpack_from(f"{self.order}I", self._map)[0])

    @used.setter
    def used(self, used: int) -> None:
        struct.pack_into(f"{self.order}I", self._map, 0, used)

    def write(self, value: bytes, seconds: int | None = None, microseconds: int = 0) -> None:
        """Appends a message. Its time is that of its number, if none is given."""
        message = self.message(value, BEGIN_SECONDS if seconds is None else seconds, microseconds)
        if self.used + len(message) > len(self._map) - 4:
            self.flush()
        if len(message) > len(self._map) - 4:
            self._append(message)
            return
        at = 4 + self.used
        header = 16 if self.magic in (PLAIN, OLD) else 20
        self._map[at : at + header] = message[:header]
        self.used += header
        self._map[at + header : at + len(message)] = message[header:]
        self.used += len(message) - header

    def message(self, value: bytes, seconds: int, microseconds: int = 0) -> bytes:
        return message(self.magic, self.order, value, seconds, microseconds)

    def flush(self, *, reset: bool = True) -> None:
        """Writes the buffer to the segment. reset=False leaves it as if the writer was killed then."""
        if self.used:
            self._append(self._map[4 : 4 + self.used])
        if reset:
            self.used = 0

    def _append(self, content: bytes) -> None:
        file = self.path / f"{self.segment:08x}"
        if file.stat().st_size >= self.unit_limit:
            self.roll()
            file = self.path / f"{self.segment:08x}"
        with open(file, "ab", buffering=0) as opened:
            opened.write(content)

    def roll(self) -> None:
        self.segment += 1
        (self.path / f"{self.segment:08x}").touch()
        with open(self.path / "metastore", "r+b") as file:
            file.write(struct.pack(f"{self.order}I", self.segment))

    def subscribe(self, name: bytes, segment: int = 0, marker: int = 0) -> None:
        (self.path / f"cp.{name.hex()}").write_bytes(struct.pack(f"{self.order}2I", segment, marker))

    def close(self) -> None:
        self.flush()
        self._map.close()


def message(magic: int, order: str, value: bytes, seconds: int, microseconds: int = 0) -> bytes:
    if magic in (PLAIN, OLD):
        return struct.pack(f"{order}4I", magic, seconds, microseconds, len(value)) + value
    stored = lz4.block.compress(value, store_size=False) if magic == LZ4 else value
    return struct.pack(f"{order}5I", magic, seconds, microseconds, len(value), len(stored)) + stored


def offsets(segment: Path, order: str = "<") -> list[int]:
    """Where the messages of a sound segment begin, and its end."""
    content = segment.read_bytes()
    found, at = [0], 0
    while at < len(content):
        magic = struct.unpack_from(f"{order}I", content, at)[0]
        plain = magic in (PLAIN, OLD)
        at += (16 if plain else 20) + struct.unpack_from(f"{order}I", content, at + (12 if plain else 16))[0]
        found.append(at)
    return found


def write_index(segment: Path, order: str = "<") -> None:
    """Writes the index that libjlog's reader makes of a closed segment."""
    found = [*offsets(segment, order)[:-1], 0]
    Path(f"{segment}.idx").write_bytes(struct.pack(f"{order}{len(found)}Q", *found))


def read(path: Path, order: str = "<") -> Iterator[tuple[int, int, bytes]]:
    """Yields seconds, microseconds and value of each message in the segments, as libjlog reads them."""
    newest, _, _, magic = struct.unpack(f"{order}4I", (path / "metastore").read_bytes())
    for segment in range(newest + 1):
        content, at = (path / f"{segment:08x}").read_bytes(), 0
        while at < len(content):
            found, seconds, microseconds, size, *stored = struct.unpack_from(
                f"{order}{4 if magic == PLAIN else 5}I", content, at
            )
            assert found == magic
            at += 16 if magic == PLAIN else 20
            piece = content[at : at + (stored[0] if stored else size)]
            at += len(piece)
            yield seconds, microseconds, lz4.block.decompress(piece, uncompressed_size=size) if magic == LZ4 else piece


def checkpoints(path: Path, order: str = "<") -> dict[bytes, tuple[int, int]]:
    return {
        bytes.fromhex(file.name[3:]): struct.unpack(f"{order}2I", file.read_bytes())
        for file in path.glob("cp.*")
    }  # fmt: skip


def numbered(number: int) -> bytes:
    return b"%d " % number + b"x" * (number * 37 % 200)


def append_for_ever(path: Path, first: int) -> None:
    writer = CWriter(path)
    for number in range(first, 1 << 40):
        writer.write(numbered(number), BEGIN_SECONDS + number)
        print(number, flush=True)  # noqa: T201
        if number % 50 == 0:
            time.sleep(0.002)  # a fast reader of the output would fill the disk


if __name__ == "__main__":
    append_for_ever(Path(sys.argv[1]), int(sys.argv[2]))
