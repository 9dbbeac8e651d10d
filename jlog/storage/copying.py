"""Copies bytes from one file to another: the file system shares them where it can, or the kernel copies them, if possible."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from jlog._core.system.lock import NEVER, RANGES, Deadline, LockFile
from jlog.errors import JournalLocked
from jlog.system.files import file_in, write_whole

PIECE_BYTES = 16 << 20  # bytes between two calls of the progress
BUFFER_BYTES = 1 << 20
# The kernel or the file systems cannot copy between these two files: this process does it.
_CANNOT = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}


def copy_range(
    source: int, start: int, end: int, target: int, at: int, progress: Callable[[int], object] = lambda _: None
) -> None:
    """Copies the bytes of the descriptor `source` from `start` to `end`, to offset `at` of `target`. Copies less where the file
    ends before."""
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
    """Holds the lock that keeps the files of the journal at `path` from being removed while they are copied. Waits for a
    running removal or repair; raises JournalLocked where that runs until the deadline. Needs no write access. The kernel
    releases the lock when this process dies."""
    with closing(LockFile(file_in(path, "lock"), writable=False)) as lock_file:
        if not lock_file.acquire(RANGES["copy"], shared=True, timeout=deadline.left()):
            who = lock_file.holders(RANGES["copy"])
            raise JournalLocked(
                f"{path}: another process{who} was removing segments or repairing it for the whole lock_timeout; try again. If "
                "that process is stopped, continue or end it"
            )
        yield


@contextmanager
def nobody_copies(path: str) -> Iterator[None]:
    """Holds the lock that keeps backups out while files are removed or made anew. Raises JournalLocked while a backup runs."""
    with closing(LockFile(file_in(path, "lock"))) as lock_file:
        if not lock_file.acquire(RANGES["copy"], timeout=0):
            who = lock_file.holders(RANGES["copy"])
            raise JournalLocked(f"a backup{who} is copying {path} and needs all of its files; try again when it is done")
        yield
