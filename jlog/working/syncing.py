"""Makes the finishes of all workers survive a power loss."""

from __future__ import annotations

from jlog.positions import position_files, work_files
from jlog.positions.position_files import SUBSCRIBER
from jlog.storage.meta import Meta
from jlog.working.worker import Worker


def sync_finishes(path: str, meta: Meta, lock_timeout: float | None) -> None:
    """Does what Worker.sync_finishes does, for all shared subscribers of the journal at the absolute `path`."""
    for name in position_files.names(path, SUBSCRIBER):
        found = work_files.window_of(path, meta, name)
        if found is not None and found["finishes"] != found["synced"]:
            with Worker(path, name, create=False, lock_timeout=lock_timeout) as worker:
                worker.sync_finishes()
