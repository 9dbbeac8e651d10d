"""The journal of a standby as a sink: it gets each record under the number that it has in the mirrored journal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jlog.care.numbering import continue_at
from jlog.errors import JournalError, SubscriberBusy
from jlog.flow.ends import SourcePosition
from jlog.flow.journals import JournalSink, read_source_positions
from jlog.journal import Journal
from jlog.kafka.ends.standby_source import MARK
from jlog.options import retention_of
from jlog.reading.reader import Reader
from jlog.system.filesystem import journal_path
from jlog.writer import Writer

FOLLOW_EVERY = 1.0  # seconds between two looks at where the subscribers and the checkpoints are


class StandbySink(JournalSink):
    """Appends to the journal at `path`, as its only writer. A new one gets the options of the mirrored journal.

    A power loss takes the last records of a journal, and an ordinary start passes over their numbers. A standby does not: it
    gets the same records again, under the same numbers.
    """

    def __init__(self, path: str | os.PathLike[str], uuid: str, options: dict[str, Any]) -> None:
        place = journal_path(path)
        if os.path.exists(os.path.join(place, "journal.meta")):
            check_is_standby(place, uuid)
            continue_at(place, 0)
        else:
            # Two journals must not share an archive.
            retention = replace(retention_of(options), archive=None, archive_on_roll=False)
            Journal.create(place, **{**options, "retention": retention})
        super().__init__(place, exclusive=True, create=False)

    @property
    def next_sequence(self) -> int:
        return int(self._writer.next_sequence)

    def open(self, *, forget: bool = False) -> SourcePosition:
        """Raises JournalError where the journal has records that no mirror has sent."""
        stored = super().open(forget=forget)
        if MARK in stored:
            sequence = int(stored[MARK]["next"])
            with Reader(self.where, start=sequence) as reader:
                if len(reader.read(1)):
                    raise JournalError(
                        f"{self.where}: the records from {sequence} on did not come from the mirror, so this is not a standby "
                        "any more; create a new one. Only `mirror standby` writes to a standby, until it is promoted"
                    )
        return stored

    def pass_over(self, sequence: int) -> None:
        """Makes this sequence the next one. No record is in the open transaction."""
        self._writer.close()
        continue_at(self.where, sequence)
        self._writer = Writer(self.where, exclusive=True, create=False)
        self.drop()


def check_is_standby(path: str, uuid: str | None = None) -> dict[str, Any]:
    """Returns what the journal says of the one whose standby it is. Raises JournalError where it is not a standby, or is
    that of another one."""
    found = read_source_positions(path).get(MARK)
    if found is None and (uuid is None or Journal(path).next_sequence > 0):
        raise JournalError(f"{path} is not a standby: it has records of its own, or was promoted; name a new directory")
    if found is not None and uuid is not None and found["uuid"] != uuid:
        raise JournalError(f"{path} is the standby of another journal ({found['uuid']}, topic {found['topic']})")
    return found or {}


class Positions:
    """Moves the subscribers and the checkpoints of a standby to where those of the mirrored journal are."""

    def __init__(self, path: str, on_event: Callable[[str], None]) -> None:
        self._journal = Journal(path)
        self._on_event = on_event
        self._set: dict[str, dict[str, int]] = {"subscribers": {}, "checkpoints": {}}
        self._busy: set[str] = set()  # names that readers of this journal hold
        self._followed_at = 0.0

    def follow(self, about: dict[str, Any], *, at_once: bool = False) -> None:
        """Follows as far as the records are here, at most once a second."""
        if not at_once and time.monotonic() < self._followed_at + FOLLOW_EVERY:
            return
        self._followed_at = time.monotonic()
        end = self._journal.next_sequence
        for kind, done in self._set.items():
            wanted = {name: min(int(sequence), end) for name, sequence in about.get(kind, {}).items()}
            if not about or wanted == done:
                continue
            for name in self._present(kind) - wanted.keys():
                self._remove(kind, name)
            self._set[kind] = {name: sequence for name, sequence in wanted.items() if self._move(kind, name, sequence)}

    def _present(self, kind: str) -> set[str]:
        return set(self._journal.subscribers() if kind == "subscribers" else self._journal.checkpoints())

    def _remove(self, kind: str, name: str) -> None:
        with suppress(LookupError, SubscriberBusy):
            if kind == "subscribers":
                self._journal.remove_subscriber(name)
            else:
                self._journal.remove_checkpoint(name)

    def _move(self, kind: str, name: str, sequence: int) -> bool:
        """Returns False where a reader has the subscriber's name here."""
        if self._set[kind].get(name) == sequence:
            return True
        if kind == "checkpoints":
            self._journal.set_checkpoint(name, sequence)
            return True
        try:
            if name in self._journal.subscribers():
                self._journal.set_subscriber(name, sequence)
            else:
                self._journal.add_subscriber(name, sequence)
        except SubscriberBusy as error:
            if name not in self._busy:
                self._on_event(f"{error}; it keeps its own position while it reads from the standby")
            self._busy.add(name)
            return False
        self._busy.discard(name)
        return True
