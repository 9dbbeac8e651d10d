"""Bytes from one file to another: shared by the file system where it can, and not through this process where the kernel can."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

PIECE_BYTES = 16 << 20  # between two calls of the progress
BUFFER_BYTES = 1 << 20
# The kernel or the file systems cannot do it between these two: then it is done here.
_CANNOT = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


def copy_range(
    source: int,
    start: int,
    end: int,
    target: int,
    at: int,
    progress: Callable[[int], object] = lambda _: None,
) -> None:
    """The bytes of the descriptor `source` from `start` to `end`, to offset `at` of `target`. Less where the file ends
    before."""
    while start < end:
        size = min(end - start, PIECE_BYTES)
        try:
            copied = os.copy_file_range(source, target, size, start, at)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
            copied = _copy_here(source, start, min(size, BUFFER_BYTES), target, at)
        if copied == 0:
            copied = _copy_here(source, start, min(size, BUFFER_BYTES), target, at)
        if copied == 0:
            return
        start, at = start + copied, at + copied
        progress(copied)


def _copy_here(source: int, start: int, size: int, target: int, at: int) -> int:
    content = os.pread(source, size, start)
    written = 0
    while written < len(content):
        written += os.pwrite(target, content[written:], at + written)
    return written
