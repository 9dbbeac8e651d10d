"""Syncs files and directories on this machine. Spark itself syncs nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext, suppress


def sync(paths: Iterable[str], *, missing_ok: bool = False) -> None:
    """Syncs each of these. missing_ok: leaves out those that are not there."""
    for path in paths:
        with suppress(FileNotFoundError) if missing_ok else nullcontext():
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
