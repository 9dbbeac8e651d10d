"""Makes this process one that writes to a journal: a Writer for as long as it is open, other calls for a moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jlog._core.system.lock import NEVER, RANGES, Deadline, LockFile
from jlog._core.write.attachment import Attached
from jlog.errors import JournalLocked
from jlog.options import option_numbers
from jlog.storage.meta import Meta, is_a_copy, read_meta, write_meta
from jlog.system.files import file_in

FOLLOWERS = 1 << 62  # the byte of a log file that is followed is this one and 60 bits of its path's BLAKE2b


def attached(path: str, deadline: Deadline = NEVER) -> Attached:
    """Runs the context while this process is one that writes to the journal at the absolute `path`. Opening it completes what a
    killed process has left: its records in the buffer get to the segments."""
    return Attached(path, MetaPolicy(), deadline)


def sync_up_to(path: str, sequence: int, deadline: Deadline = NEVER) -> None:
    """Makes the records before this sequence durable. A caller that hands on a position does so first."""
    with attached(path, deadline) as attachment:
        if attachment.durable_end < sequence:
            attachment.sync(deadline)
        attachment.check()


def hold_as_sink(path: str) -> LockFile:
    """Returns the open lock file, by which this process alone moves records into the journal until it closes the file or dies.
    Raises JournalLocked if another one does."""
    return _hold_alone(
        path,
        RANGES["sink"],
        "another capture, transform or import{who} writes to this journal, and only one may at a time: stop it, or capture "
        "several topics in one process",
    )


def hold_as_follower(path: str, file: bytes) -> LockFile:
    """Returns the open lock file, by which this process alone follows the log file into the journal until it closes it or dies.
    Raises JournalLocked if another one does."""
    from hashlib import blake2b  # slow to import, and most programs follow no file

    return _hold_alone(
        path,
        FOLLOWERS + int.from_bytes(blake2b(file, digest_size=8).digest(), "little") % (1 << 60),
        "another `jlogtool append --follow` of this file{who} writes to this journal, and each line would be in it twice: stop "
        "that one first",
    )


def _hold_alone(path: str, start: int, refused: str) -> LockFile:
    lock_file = LockFile(file_in(path, "lock"))
    if not lock_file.acquire(start, timeout=0):
        who = lock_file.holders(start)
        lock_file.close()
        raise JournalLocked(f"{path}: {refused.format(who=who)}")
    return lock_file


class MetaPolicy:
    """Reads and changes `journal.meta` for the core, and begins a new epoch in a copy. The core holds the open lock when it
    calls a method that changes the file."""

    def __init__(self) -> None:
        self._meta: Meta | None = None

    def read(self, path: str) -> tuple[bytes, int, tuple[int, ...]]:
        """Returns uuid, epoch and options of the journal, as `journal.meta` states them now."""
        meta = self._meta = read_meta(path)
        return meta.uuid, meta.epoch, option_numbers(meta.options)

    def opened_alone(self, path: str, capacity: int, next_sequence: int) -> int:
        """Notes a larger buffer, and begins a new epoch where the journal is a copy, since it departs from its original here.
        Both go into one write, for any write makes the copy an original. Returns the epoch. The core has called read() under
        the same lock."""
        meta = self._meta
        assert meta is not None
        copied, grown = is_a_copy(path, meta), capacity > meta.options["precommit"]
        if copied:
            import secrets  # slow to import, and copies are rare

            meta.epochs.append((secrets.randbits(63), next_sequence))
        if grown:
            meta.options["precommit"] = capacity
        if copied or grown:
            write_meta(path, meta)
        return meta.epoch

    def change(self, path: str, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Notes these options where one differs. Returns all of the journal's options."""
        meta = read_meta(path)
        if any(meta.options[name] != options[name] for name in options):
            meta.options.update(options)
            write_meta(path, meta)
        return option_numbers(meta.options)
