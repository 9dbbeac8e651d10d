"""Chooses the number that a journal continues with."""

from __future__ import annotations

import os
from contextlib import closing

from jlog._core.buffer.precommit import Precommit
from jlog._core.format.dual_slot import BoundsFile
from jlog._core.recover.abandoned_buffer import only_processes_died
from jlog._core.recover.recovery import recover_after_power_loss
from jlog._core.system.lock import NEVER, RANGES, LockFile
from jlog.storage.attaching import attached
from jlog.storage.creation import refuse_writers
from jlog.storage.meta import read_meta


def continue_at(path: str, sequence: int) -> None:
    """Makes `sequence` the next one of the journal at the absolute `path`, or the one after its last record if that is larger.
    The numbers between its last record and the next one are a gap.

    A number whose record a power loss took is given out again. An ordinary start never does that, since a reader may have seen
    the record. So this is for a journal that gets the same record again under this number.

    Survives a power loss when it returns; after a crash meanwhile it was done or not. Raises JournalLocked while a process
    writes to the journal.
    """
    with closing(LockFile(os.path.join(path, "lock"))) as lock_file:
        while not _continue_at(path, sequence, lock_file):
            with attached(path, NEVER):
                pass  # that writes to the segments what a killed process has left


def _continue_at(path: str, sequence: int, lock_file: LockFile) -> bool:
    """Returns False where a process was killed, and has left records in the buffer."""
    with lock_file.held(RANGES["open"], deadline=NEVER, what="was opening, changing or closing it"):
        refuse_writers(path, lock_file, "sequences are skipped in it")
        meta = read_meta(path)
        bounds = BoundsFile(os.path.join(path, "bounds"), meta.uuid, lock_file)
        with closing(Precommit(path, meta.uuid, create=True)) as precommit:
            if not precommit.has_bodies():
                precommit.grow(meta.options["precommit"])
            precommit.map()
            found = bounds.read()
            if found.closed is not None and found.closed[2] >= sequence:
                return True
            if found.closed is None and only_processes_died(path, meta.uuid, precommit, found):
                return False
            segment_bytes = meta.options["segment_bytes"]
            recover_after_power_loss(path, meta.uuid, meta.epoch, precommit, bounds, segment_bytes, NEVER, sequence)
    return True
