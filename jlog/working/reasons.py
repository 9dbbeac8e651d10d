"""Why records of a shared subscriber have failed last: a small table for whoever looks, which nothing else depends on."""

from __future__ import annotations

import os
import struct
from contextlib import suppress

from jlog._core.format.checksum import crc32c
from jlog._core.work.window import FOLDER
from jlog.errors import JournalError
from jlog.system.files import Directory, file_in, open_file, open_or_create, read_whole, write_whole

SLOTS = 4096  # by the last bits of the sequence: a later record takes an earlier one's slot
_SLOT = struct.Struct("<IHHQQ104s")  # CRC32C of the rest, bytes of the reason, 0, sequence, epoch, the reason in UTF-8
TEXT_BYTES = 104


def path_of(path: str, name: str) -> str:
    return file_in(path, os.path.join(FOLDER, f"{name}.reasons"))


def note(path: str, epoch: int, name: str, sequence: int, reason: str) -> None:
    """Notes why a record has failed. Where that cannot be stored, nothing happens."""
    text = reason.encode("utf-8", "replace")[:TEXT_BYTES].decode("utf-8", "ignore").encode()
    rest = _SLOT.pack(0, len(text), 0, sequence, epoch, text)[4:]
    with suppress(JournalError, OSError), Directory(path, FOLDER, make=True):
        file = open_or_create(path_of(path, name))
        try:
            write_whole(file.fd, struct.pack("<I", crc32c(rest)) + rest, sequence % SLOTS * _SLOT.size)
        finally:
            file.close()


def read(path: str, epoch: int, name: str) -> dict[int, str]:
    """Returns the reasons that are still known, by sequence."""
    try:
        file = open_file(path_of(path, name))
        try:
            content = read_whole(file.fd, SLOTS * _SLOT.size, 0)
        finally:
            file.close()
    except (JournalError, OSError):
        return {}
    found = {}
    for start in range(0, len(content) // _SLOT.size * _SLOT.size, _SLOT.size):
        checksum, size, _, sequence, noted_epoch, text = _SLOT.unpack_from(content, start)
        if size and noted_epoch == epoch and checksum == crc32c(content[start + 4 : start + _SLOT.size]):
            found[sequence] = text[:size].decode("utf-8", "replace")
    return found
