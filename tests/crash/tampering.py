"""What a power loss and a bad disk do to a journal's files. Nobody has it open meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

BOOT_ID_AT = 32
HEADER_BYTES = 96  # of a segment
QUARANTINE = "quarantine"


def another_boot(path: Path) -> None:
    """The control page is of a boot that is over."""
    with open(path / "precommit", "r+b") as file:
        file.seek(BOOT_ID_AT)
        file.write(b"an earlier boot.")


def zero(path: Path, offset: int = 0, size: int | None = None) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(bytes(os.path.getsize(path) - offset if size is None else size))


def flip(path: Path, offset: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        found = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([found ^ 1 << bit]))


def copy(journal: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(journal, target)
    return target


def newest_segment(path: Path) -> Path:
    return max(path.glob("*.seg"))


def quarantined(path: Path) -> bytes:
    """All that recovery has moved away."""
    folder = path / QUARANTINE
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir())) if folder.exists() else b""
