"""Changes a journal's files as a power loss or a bad disk would, while no process has it open."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import jlog
from jlog._core.format.constants import BLOCK_HEADER_BYTES
from jlog._core.segments.segment import SegmentFile

BOOT_ID_AT = 32
DEVICE_AT = 48
CAPACITY_AT = 64
DURABLE_END_AT = 360
GENERATION_AT = 448
BODIES_AT = 4096
QUARANTINE = "quarantine"


def another_boot(path: Path) -> None:
    """The control page is of a boot that is over."""
    change(path / "precommit", BOOT_ID_AT, b"an earlier boot.")


def open_body_at(path: Path) -> int:
    """Returns the offset in `precommit` at which the body of the open block begins."""
    content = (path / "precommit").read_bytes()
    (capacity,) = struct.unpack_from("<Q", content, CAPACITY_AT)
    (generation,) = struct.unpack_from("<Q", content, GENERATION_AT)
    return BODIES_AT + int(generation & 1) * int(capacity)


def zero_bodies(path: Path) -> None:
    """Nothing of the blocks that are not in their segments is there any more; the page is as it was."""
    zero(path / "precommit", BODIES_AT)


def zero(path: Path, offset: int = 0, size: int | None = None) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(bytes(os.path.getsize(path) - offset if size is None else size))


def change(path: str | Path, offset: int, replacement: bytes) -> None:
    """Overwrites bytes of a file, which may be mapped. offset: from its end, if it is negative."""
    with open(path, "r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(replacement)


def invert(path: str | Path, offset: int) -> None:
    """Flips every bit of the byte."""
    change(path, offset, bytes([Path(path).read_bytes()[offset] ^ 0xFF]))


def flip(path: str | Path, offset: int, bit: int = 0) -> None:
    change(path, offset, bytes([Path(path).read_bytes()[offset] ^ 1 << bit]))


def copy(journal: Path, target: Path) -> Path:
    """A copy with another inode, which looks as after a power loss."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(journal, target)
    return target


def copy_of_killed(journal: Path, target: Path) -> Path:
    """Makes the copy look as if its writers had just been killed: its control page is current."""
    copy(journal, target)
    name_itself(target / "precommit")
    return target


def name_itself(page: Path) -> None:
    """Makes the control page one of this file, which is a copy."""
    found = page.stat()
    change(page, DEVICE_AT, struct.pack("<QQ", found.st_dev, found.st_ino))


def synced_mark_of(journal: Path) -> tuple[int, int, int]:
    """The synced mark: segment, offset, sequence."""
    content = (journal / "bounds").read_bytes()
    # The newer of two copies counts: its generation is at 16, the mark at 48.
    newest = max((content[:128], content[4096:4224]), key=lambda found: found[16:24][::-1])
    segment, offset, sequence = struct.unpack_from("<QQQ", newest, 48)
    return segment, offset, sequence


def end_of(journal: Path, sequence: int) -> tuple[int, int]:
    """Segment and offset of where the last block ends that has no record from this one on."""
    uuid = bytes.fromhex(jlog.Journal(journal).uuid)
    found = [
        (segment, block.offset + BLOCK_HEADER_BYTES + block.stored_bytes)
        for segment in sorted(int(file.stem) for file in journal.glob("*.seg"))
        for block in SegmentFile(str(journal), segment, uuid).blocks()
        if block.first_sequence + block.records <= sequence
    ]
    return found[-1]


def lose_unsynced(journal: Path, target: Path) -> Path:
    """A copy as the worst power loss leaves it: nothing is left after the promised durable end, which the mark in `bounds`
    follows, and the buffer is lost."""
    told = struct.unpack_from("<Q", (journal / "precommit").read_bytes(), DURABLE_END_AT)[0]
    bounds = (journal / "bounds").read_bytes()  # before the segments: a sync meanwhile would leave a mark beyond their copies
    copy(journal, target)
    (target / "bounds").write_bytes(bounds)
    zero(target / "precommit")
    segment, offset, sequence = synced_mark_of(target)
    if sequence < told:
        segment, offset = end_of(target, told)
    for file in target.glob("*.seg"):
        if int(file.stem) > segment:
            file.unlink()
    with open(target / f"{segment:020d}.seg", "r+b") as file:
        file.truncate(offset)
    return target


def newest_segment(path: Path) -> Path:
    return max(path.glob("*.seg"))


def quarantined(path: Path) -> bytes:
    """All that recovery has moved away."""
    folder = path / QUARANTINE
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir())) if folder.exists() else b""
