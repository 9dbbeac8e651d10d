"""Changes the files of a whole journal, and corrects the checksums. The structures are those of tests/oracle.py."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oracle
from behaviour import hostile
from crash import tampering

NUMBERS = [
    *range(10), 72, 96, 168, *(1 << bits for bits in (12, 16, 24, 30, 31, 32, 40, 62, 63)),
    *((1 << bits) - 1 for bits in (16, 31, 32, 62, 63, 64)),
]  # fmt: skip
OPTIONS = {
    "precommit": (0, 4096, 8192, 1 << 20, -1),
    "segment_bytes": (4096, 5000, 1 << 20, 1 << 40, 1, "x"),
    "compression": ("none", "lz4", None, "zip"),
    "sync": ("none", "interval", "append", 1),
    "sync_interval": (1, 0.001, 1e300, -1),
    "roll": ("never", "daily", "minutely", ""),
    "retention": (None, {}, {"delete_read": True}, {"max_bytes": 1, "keep_for_subscribers": False}, {"limit_bytes": 1}),
}  # fmt: skip


class Changes:
    """Makes a few random changes to the journal at `path`."""

    def __init__(self, dice: random.Random, path: Path, others: list[Path]) -> None:
        self.dice, self.path, self.others = dice, path, others
        self.remade = False  # the checksum of a block of records
        self.told: list[str] = []
        self._near = [number for segment in hostile.segments(path) for number in numbers_of(segment)]

    def make(self) -> None:
        kinds: list[Callable[[], str]] = [
            self.bounds, self.bounds, self.position, self.segment, self.segment, self.slot, self.slot, self.page, self.page,
            self.index, self.meta, self.cut, self.grow, self.flip, self.rename, self.swap, self.of_another,
        ]  # fmt: skip
        if self.dice.random() < 0.5:
            kinds += [self.block, self.block, self.body, self.open_body]
        for _ in range(self.dice.randint(1, 4)):
            try:
                self.told.append(self.dice.choice(kinds)())
            except (OSError, ValueError, LookupError, struct.error, ZeroDivisionError):
                continue

    def number(self) -> int:
        near = self.dice.choice(self._near) + self.dice.choice((-72, -1, 0, 0, 0, 1, 72))
        odd = self.dice.getrandbits(self.dice.choice((8, 16, 32, 64)))
        return self.dice.choice((near, near, self.dice.choice(NUMBERS), odd)) & (1 << 64) - 1

    def fields(self, names: Any) -> dict[str, Any]:
        some = self.dice.sample(sorted(names), self.dice.randint(1, 3))
        return {name: self.dice.randbytes(16) if name == "uuid" else self.number() for name in some}

    def file(self, pattern: str = "**/*") -> Path:
        return self.dice.choice(sorted(file for file in self.path.glob(pattern) if file.is_file()))

    def bounds(self) -> str:
        fields, path = self.fields(hostile.BOUNDS), self.path / "bounds"
        copies = self.dice.choice(((0, oracle.COPY_BYTES), (0,), (oracle.COPY_BYTES,)))
        for at in copies:
            hostile.set_fields(path, at, oracle.BOUNDS.size, hostile.BOUNDS, **fields)
        return f"bounds at {copies}: {fields}"

    def position(self) -> str:
        fields, path = self.fields(hostile.POSITION), self.file("[cs]*/*")
        hostile.set_position(path, **fields)
        return f"{path.name}: {fields}"

    def segment(self) -> str:
        fields, path = self.fields(hostile.SEGMENT_HEADER.keys() - {"version"}), self.file("*.seg")
        hostile.set_segment_header(path, **fields)
        return f"{path.name}: {fields}"

    def index(self) -> str:
        path = self.file("*.idx")
        if self.dice.random() < 0.5:
            fields = self.fields(hostile.INDEX)
            hostile.set_index(path, **fields)
            return f"{path.name}: {fields}"
        at = self.dice.randrange(oracle.INDEX_HEADER.size, path.stat().st_size, 8)
        number = self.number()
        tampering.change(path, at, struct.pack("<Q", number))
        hostile.seal(path, 0, path.stat().st_size)
        return f"{path.name} at {at}: {number}"

    def slot(self) -> str:
        fields, parity = self.fields(hostile.SLOT), self.dice.randrange(2)
        if self.dice.random() < 0.3:
            fields["capacity"] = self.number() & 0xFFFFFFFF
        if self.dice.random() < 0.3:
            fields["word"] = self.dice.choice((0, self.number()))
        hostile.set_slot(self.path, parity, **fields)
        return f"slot {parity}: {fields}"

    def page(self) -> str:
        at, number = self.dice.choice((*range(64, 460, 8), *range(640, 904, 8))), self.number()
        tampering.change(self.path / "precommit", at, struct.pack("<Q", number))
        return f"page at {at}: {number}"

    def meta(self) -> str:
        name = self.dice.choice(("inode", "birth_us", "epochs", *OPTIONS, *OPTIONS))
        value: Any = self.number()
        if name == "epochs":
            value = [{"epoch": self.number(), "first_sequence": self.number()} for _ in range(3)]
        if name in OPTIONS:
            value = self.dice.choice(OPTIONS[name])

        def change(fields: dict[str, Any]) -> None:
            (fields["options"] if name in OPTIONS else fields)[name] = value

        hostile.set_meta(self.path, change)
        return f"meta: {name} is {value!r}"

    def cut(self) -> str:
        path = self.file()
        size = self.dice.randint(0, path.stat().st_size)
        os.truncate(path, size)
        return f"{path.name} is cut to {size}"

    def grow(self) -> str:
        path, other = self.file(), self.file()
        piece = self.dice.choice((bytes(5000), self.dice.randbytes(200), other.read_bytes()[-5000:]))
        with open(path, "ab") as file:
            file.write(piece)
        return f"{path.name} has {len(piece)} bytes more"

    def flip(self) -> str:
        path = self.file()
        found = bytearray(path.read_bytes())
        at = self.dice.randrange(len(found.rstrip(b"\0")))
        found[at] ^= 1 << self.dice.randrange(8)
        tampering.change(path, at, bytes(found[at : at + 1]))
        return f"{path.name} at {at}: a bit"

    def rename(self) -> str:
        path = self.file()
        name = f"{self.number():020d}{path.suffix}" if path.suffix in (".seg", ".idx") else self.file().name
        target = path.with_name(name)
        call = self.dice.choice((os.rename, shutil.copyfile))
        call(path, target)
        return f"{path.name} to {target.name} by {call.__name__}"

    def swap(self) -> str:
        path, other = self.file(), self.file()
        contents = path.read_bytes(), other.read_bytes()
        path.write_bytes(contents[1])
        other.write_bytes(contents[0])
        return f"{path.name} and {other.name} are swapped"

    def of_another(self) -> str:
        path = self.file()
        other = self.dice.choice(self.others)
        path.write_bytes((other / path.relative_to(self.path)).read_bytes())
        return f"{path.name} is that of {other.name}"

    # Of records, with new checksums.

    def some_block(self) -> hostile.Block:
        self.remade = True
        return self.dice.choice(list(hostile.blocks(self.file("*.seg"))))

    def block(self) -> str:
        block = self.some_block()
        widths = dict(zip(block.FIELDS, oracle.BLOCK_HEADER.format[1:], strict=True))
        fields = {}
        for name in self.dice.sample(block.FIELDS[1:], self.dice.randint(1, 3)):
            size = struct.calcsize("<" + widths[name])
            (fields[name],) = struct.unpack("<" + widths[name], struct.pack("<Q", self.number())[:size])
        block.put(**fields)
        return f"{block.path.name}, block at {block.offset}: {fields}"

    def body(self) -> str:
        block = self.some_block()
        block.body = self.changed(block.body)
        block.put()
        return f"{block.path.name}, block at {block.offset}: another body of {len(block.body)} bytes"

    def open_body(self) -> str:
        self.remade = True
        page = (self.path / "precommit").read_bytes()
        parity = page[oracle.PAGE_GENERATION_AT] & 1
        (used,) = struct.unpack_from("<I", page, oracle.PAGE_SLOTS_AT + 64 * parity + 48)
        at = tampering.open_body_at(self.path)
        body = self.changed(page[at : at + used])
        tampering.change(self.path / "precommit", at, body)
        hostile.set_slot(self.path, parity, word=len(body) | hostile.crc32c(body) << 32)
        return f"another open body of {len(body)} bytes"

    def changed(self, body: bytes) -> bytes:
        found = bytearray(body)
        for _ in range(self.dice.randint(1, 3)):
            at = self.dice.randrange(len(found))
            piece = struct.pack("<I", self.number() & 0xFFFFFFFF)[: self.dice.choice((1, 4))]
            found[at : at + len(piece)] = piece
        return bytes(found[: self.dice.choice((len(found), len(found), self.dice.randint(1, len(found))))])


def numbers_of(segment: Path) -> Iterator[int]:
    yield int(segment.stem)
    for block in hostile.blocks(segment):
        yield from (block.offset, block.end, block.fields["first_sequence"], block.fields["stored_bytes"])
