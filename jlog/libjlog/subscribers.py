"""Subscribers of libjlog become subscribers of the journal."""

from __future__ import annotations

from collections.abc import Callable

from jlog.errors import SubscriberBusy, SubscriberExists, SubscriberNotFound
from jlog.journal import Journal
from jlog.libjlog.format import allowed_name
from jlog.libjlog.position import ImportPosition, Place


def sequence_of(position: ImportPosition, segment: int, marker: int, end: int) -> int:
    """Returns the sequence of the record behind the message that a subscriber has consumed last.

    Where the segment has damage the answer is no later than this. libjlog counts markers anew when it repairs a segment: nobody
    can tell which message a marker behind the damage meant.
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
    """Makes the subscribers in the journal, and moves them until somebody else does."""

    def __init__(self, journal: Journal, warn: Callable[[str], None]) -> None:
        self._journal = journal
        self._warn = warn
        self._told: set[str] = set()

    def place(self, position: ImportPosition, checkpoints: dict[bytes, tuple[int, int]]) -> dict[str, Place]:
        """Puts the subscribers whose checkpoints have changed to their places, and returns the places of all."""
        end = self._journal.next_sequence
        found: dict[str, Place] = {}
        for name, (segment, marker) in checkpoints.items():
            code = name.hex()
            before = position.subscribers.get(code)
            if before is not None and before[:2] == (segment, marker):
                found[code] = before
                continue
            sequence = sequence_of(position, segment, marker, end)
            found[code] = (segment, marker, sequence)
            self._put(name, before, sequence)
        return found

    def _put(self, name: bytes, before: Place | None, sequence: int) -> None:
        here = allowed_name(name)
        if here.encode() != name:
            self._tell(f"subscriber {name!r} is {here!r} here: the name is not allowed")
        try:
            if before is None:
                self._journal.add_subscriber(here, sequence)
            else:
                self._move(here, before, sequence)
        except SubscriberExists:
            self._move(here, None, sequence)

    def _move(self, name: str, before: Place | None, sequence: int) -> None:
        found = self._journal.subscribers().get(name)
        if found is None:
            return  # it was removed here
        there = found.sequence
        if before is None:
            if there != sequence:
                self._tell(f"subscriber {name!r} is here already, and stays at {there}: in the source it is at {sequence}")
        elif there == before[2] and sequence != there:
            try:
                self._journal.set_subscriber(name, sequence)
            except (SubscriberBusy, SubscriberNotFound):
                return  # it is read here by now

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._warn(text)
