"""The journals that the real libjlog 2.6.0 has written, and what is in them.

`samples.tar.xz` holds them. JLOG_LIBJLOG_SAMPLES names a directory with another set of the same names, which is used instead.
"""

from __future__ import annotations

import functools
import os
import tarfile
from pathlib import Path

ARCHIVE = Path(__file__).with_name("samples.tar.xz")


def unpack(name: str, folder: Path) -> Path:
    """Copies one sample, which a test may change."""
    given = os.environ.get("JLOG_LIBJLOG_SAMPLES")
    target = folder / name
    if given:
        target.mkdir()
        for file in (Path(given) / name).iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        return target
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            if member.name.split("/")[0] == name and member.isfile():
                content = archive.extractfile(member)
                assert content is not None
                target.mkdir(exist_ok=True)
                (folder / member.name).write_bytes(content.read())
    return target


def length(number: int) -> int:
    if number in (0, 500):
        return 10 * number
    return number * 7919 % 5001 * (number * 37 % 101) // 100


@functools.cache
def value(number: int) -> bytes:
    size = length(number)
    if number % 3 == 0:
        return (b"msg %06u|" % number * (size // 11 + 1))[:size]
    if number % 3 == 1:
        return bytes((number * 131 + place * 17) & 0xFF for place in range(size))
    state = (number * 2654435761 + 12345) % (1 << 32)
    made = bytearray()
    for _ in range(size):
        state = (state * 1664525 + 1013904223) % (1 << 32)
        made.append(state >> 24)
    return bytes(made)


def time_us(number: int) -> int:
    return (1_700_000_000 + number) * 1_000_000 + number * 1000 % 1_000_000
