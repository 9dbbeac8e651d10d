"""Syncs files and directories on this machine. Spark itself syncs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext, suppress

from jlog.system.files import sync_file


def sync(paths: Iterable[str], *, missing_ok: bool = False) -> None:
    """Syncs each of these. missing_ok: leaves out those that are not there."""
    for path in paths:
        with suppress(FileNotFoundError) if missing_ok else nullcontext():
            sync_file(path)
