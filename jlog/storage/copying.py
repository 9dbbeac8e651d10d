"""Bytes from one file to another: shared by the file system where it can, and not through this process where the kernel can."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jlog._core.system.lock import NEVER, RANGES, Deadline, LockFile
from jlog.errors import JournalLocked
from jlog.system.files import write_whole

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
    write_whole(target, content, at)
    return len(content)


# --- Locks of copies and removals ---------------------------------------------------------------------------------


@contextmanager
def being_copied(path: str, deadline: Deadline = NEVER) -> Iterator[None]:
    """While the files of the journal at `path` are copied none of them is removed. Waits for a removal or a repair that is at
    work; JournalLocked where that is so until the deadline. Needs no write access; the kernel lets go of it when this
    process dies."""
    lock_file = LockFile(os.path.join(path, "lock"), writable=False)
    try:
        if not lock_file.acquire(RANGES["copy"], shared=True, timeout=deadline.left()):
            raise JournalLocked(
                f"{path}: another process was removing segments or repairing it for the whole lock_timeout; try again; it "
                "may be stopped: continue or end it"
            )
        yield
    finally:
        lock_file.close()


@contextmanager
def nobody_copies(path: str) -> Iterator[None]:
    """While files are removed or made anew. JournalLocked where a backup is at work."""
    lock_file = LockFile(os.path.join(path, "lock"))
    try:
        if not lock_file.acquire(RANGES["copy"], timeout=0):
            raise JournalLocked(f"{path} is being copied by a backup, which wants all its files; try again when it is done")
        yield
    finally:
        lock_file.close()
