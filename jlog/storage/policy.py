"""Answers the core's questions about a journal, which only the package above it can answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jlog._core.system.lock import Deadline
from jlog.options import option_numbers
from jlog.storage.meta import is_a_copy, read_meta, write_meta


class JournalPolicy:
    """Reads and changes `journal.meta` for the core, and begins a new epoch in a copy. The core holds the open lock when it
    calls a method that changes the file.

    after_roll: what this process does when it has rolled.
    free_space: what an append does that has met limit_bytes.
    """

    def __init__(self, path: str, *, after_roll: Callable[[], None], free_space: Callable[[Deadline], object]) -> None:
        self._path = path
        self._after_roll = after_roll
        self._free_space = free_space

    def read(self) -> tuple[bytes, int, tuple[int, ...]]:
        """Returns uuid, epoch and options of the journal, as `journal.meta` states them now."""
        meta = read_meta(self._path)
        return meta.uuid, meta.epoch, option_numbers(meta.options)

    def opened_alone(self, capacity: int, next_sequence: int) -> int:
        """Notes a larger buffer, and begins a new epoch where the journal is a copy, since it departs from its original here.
        Both go into one write, for any write makes the copy an original. Returns the epoch."""
        meta = read_meta(self._path)
        copied, grown = is_a_copy(self._path, meta), capacity > meta.options["precommit"]
        if copied:
            import secrets  # slow to import, and copies are rare

            meta.epochs.append((secrets.randbits(63), next_sequence))
        if grown:
            meta.options["precommit"] = capacity
        if copied or grown:
            write_meta(self._path, meta)
        return meta.epoch

    def change(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Notes these options where one differs. Returns all of the journal's options."""
        meta = read_meta(self._path)
        if any(meta.options[name] != value for name, value in options.items()):
            meta.options.update(options)
            write_meta(self._path, meta)
        return option_numbers(meta.options)

    def after_roll(self) -> None:
        """Removes the segments that the one which has just ended lets go. Waits for nothing."""
        self._after_roll()

    def free_space(self, deadline: Deadline) -> None:
        """Removes what may go, for an append that has met limit_bytes."""
        self._free_space(deadline)
