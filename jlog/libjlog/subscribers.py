"""Subscribers of libjlog become subscribers of the journal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from jlog.errors import PositionLost, SubscriberBusy, SubscriberExists, SubscriberNotFound
from jlog.journal import Journal
from jlog.libjlog.format import allowed_name
from jlog.libjlog.position import HELD, OTHERS, ImportPosition, SubscriberPlace


def sequence_of(position: ImportPosition, segment: int, marker: int, end: int) -> int:
    """Returns the sequence of the record after the message that a subscriber has consumed last.

    Where the segment has damage the answer is no later than this. libjlog counts markers anew when it repairs a segment: nobody
    can tell which message a marker after the damage meant.
    """
    known = sorted(position.segments)
    if not known or segment > known[-1]:
        return end
    before = [number for number in known if number <= segment]
    if not before:
        return position.segments[known[0]][0]
    first, sound = position.segments[before[-1]]
    if before[-1] != segment:
        return min(first, end)
    following = [position.segments[number][0] for number in known if number > segment]
    limit = following[0] if following else end
    return min(first + (marker if sound is None else min(marker, sound)), limit, end)


class SubscriberPlaces:
    """Creates the subscribers in the journal, and moves them until somebody else does."""

    def __init__(self, journal: Journal, warn: Callable[[str], None]) -> None:
        self._journal = journal
        self._warn = warn

    def missing(self, position: ImportPosition, checkpoints: Iterable[bytes]) -> list[bytes]:
        """Returns the names of the subscribers that are not in the journal, and were not before."""
        here = self._journal.subscribers()
        return [name for name in checkpoints if name.hex() not in position.subscribers and allowed_name(name) not in here]

    def hold(self, names: Iterable[bytes], sequence: int) -> None:
        """Creates these subscribers at the journal's end before the import, so that retention keeps the imported records. Their
        positions are set afterwards."""
        for name in names:
            with suppress(SubscriberExists):
                self._journal.add_subscriber(allowed_name(name), sequence)

    def place(self, position: ImportPosition, checkpoints: dict[bytes, tuple[int, int]]) -> dict[str, SubscriberPlace]:
        """Puts the subscribers whose checkpoints have changed to their places, and returns the places of all."""
        end = self._journal.next_sequence
        found: dict[str, SubscriberPlace] = {}
        for name, (segment, marker) in checkpoints.items():
            code = name.hex()
            before = position.subscribers.get(code)
            if before is None or before[:2] != (segment, marker):
                sequence = sequence_of(position, segment, marker, end)
                before = (segment, marker, self._put(name, before, sequence))
            found[code] = before
        return found

    def _put(self, name: bytes, before: SubscriberPlace | None, sequence: int) -> int:
        """Returns the sequence at which the subscriber is, or OTHERS."""
        here = allowed_name(name)
        if here.encode() != name:
            self._warn(f"subscriber {name!r} is {here!r} here: the name is not allowed")
        try:
            return self._move(here, before, sequence)
        except PositionLost as error:
            self._warn(
                f"subscriber {here!r} begins at {error.first_sequence}: it has not read the records from {sequence} on in the "
                f"source, and retention has removed them here"
            )
            return self._move(here, before, error.first_sequence)

    def _move(self, name: str, before: SubscriberPlace | None, sequence: int) -> int:
        if before is not None and before[2] == OTHERS:
            return OTHERS
        found = self._journal.subscribers().get(name)
        try:
            if found is None:
                if before is not None and before[0] != HELD:
                    return OTHERS  # it was removed here
                self._journal.add_subscriber(name, sequence)
            elif before is None or (before[0] == HELD and found.sequence != before[2]):
                if found.sequence != sequence:
                    self._warn(
                        f"subscriber {name!r} is here already, and stays at {found.sequence}: in the source it is at {sequence}"
                    )
                return OTHERS
            elif found.sequence != before[2]:
                return OTHERS
            elif found.sequence != sequence:
                self._journal.set_subscriber(name, sequence)
        except (SubscriberBusy, SubscriberExists, SubscriberNotFound):
            return OTHERS  # it is read here by now
        return sequence
