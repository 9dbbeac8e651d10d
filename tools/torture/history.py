"""The history of a shared subscriber: what its workers took and finished, in the order of time, against what is allowed.

Each record is finished once, and never handed out afterwards. No two workers have it at once: one loses it by its death, by its
close, or at the end of its lease. Records of one key come one after the other. A *token* is one call of take.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from torture.records import Wrong
from torture.sequences import SEEN, Sequences

if TYPE_CHECKING:
    from collections.abc import Iterable

Token = tuple[str, str]  # child, and when its call began
Place = tuple[str, str]  # child, and number of its Worker


class Holding(NamedTuple):
    place: Place
    lease_end: float


@dataclass
class Fate:
    """The history of one record."""

    ending: bool = False  # a finish has begun since the record was handed out; its worker may have died in it
    finished: int | None = None  # when it was known to be finished
    is_durable: bool = False
    touched: int = 0  # time of the last line about it
    holders: dict[Token, Holding] = field(default_factory=dict)  # those that have it for certain
    may_finish: set[Token] = field(default_factory=set)
    events: list[str] = field(default_factory=list)  # for the report of what is wrong


class History:
    """is_keyed: records of one key come one after the other."""

    def __init__(self, sequences: Sequences, *, is_keyed: bool) -> None:
        self._sequences = sequences
        self._is_keyed = is_keyed
        self._events: list[tuple[int, str, str, list[str]]] = []
        self._fates: dict[int, Fate] = defaultdict(Fate)
        self._last: dict[str, int] = {}  # the record of each key that was handed out last
        self._held: dict[Place, set[tuple[int, Token]]] = defaultdict(set)
        self._closed: set[Place] = set()
        self._undurable: list[Fate] = []
        self._rejected: set[int] = set()
        self._letters: set[int] = set()
        self._first = 0
        self.errors: list[int] = []
        self.is_fresh = False  # nothing was taken since the machine was started

    def hear(self, child: str, lines: Iterable[str], *, is_dead: bool = False) -> None:
        at = -1
        for line in lines:
            kind, *words = line.split()
            if kind == "!":
                self.errors.append(int(words[0]))
                continue
            at = int(words[0])
            self._events.append((at, child, kind, words[1:]))
        if is_dead:  # after its last line nobody knows what it had
            self._events.append((at, child, "dead", []))

    def judge(self, first: int) -> None:
        """Judges all lines that were heard. first: the journal's first sequence, since retention may take unfinished records
        of some journals."""
        self._first = first
        for at, child, kind, words in sorted(self._events, key=lambda event: event[0]):
            if kind == "dead":
                for place in [place for place in self._held if place[0] == child]:
                    self._leave(place)
            elif kind == "q":
                self._closed.add((child, words[0]))
                self._leave((child, words[0]))
            elif kind == "d":
                self._synced(int(words[0]))
            elif kind == "t":
                self._take(at, child, words)
            else:
                self._end(at, kind, (child, words[0]), [int(word) for word in words[1:]])
        self._events.clear()

    def _leave(self, place: Place) -> None:
        for sequence, token in self._held.pop(place, ()):
            self._fates[sequence].events.append(f"{place} has left")
            self._fates[sequence].holders.pop(token, None)

    def _synced(self, began: int) -> None:
        for fate in self._undurable:
            fate.is_durable = fate.finished is not None and fate.finished < began
        self._undurable = [fate for fate in self._undurable if not fate.is_durable]

    def _take(self, at: int, child: str, words: list[str]) -> None:
        number, began, lease, *records = words
        token, place = (child, began), (child, number)
        lease_end = int(began) + int(lease) if int(lease) else float("inf")
        holding = Holding(place, lease_end) if lease_end > at and place not in self._closed else None
        self.is_fresh = False
        for record in records:
            sequence, key, digest = record.split(":")
            self._sequences.know(int(sequence), int(digest, 16), SEEN, child)
            is_last = self._take_one(at, int(began), token, holding, int(sequence))
            if self._is_keyed and key != "-" and is_last:
                self._take_key(key, int(sequence))

    def _take_one(self, at: int, began: int, token: Token, holding: Holding | None, sequence: int) -> bool:
        """Returns whether this call was certainly the last one to be handed the record so far."""
        fate = self._fates[sequence]
        fate.events.append(f"t {at} {token}{'' if holding else ', already closed or beyond its lease'}")
        if fate.finished is not None and fate.finished < began:
            raise Wrong(f"record {sequence} was finished at {fate.finished}, and {token} was handed it")
        if holding is not None:
            for other, theirs in fate.holders.items():
                if theirs.lease_end > at:
                    raise Wrong(f"record {sequence} was handed to {token} while {other} had it")
        is_last = fate.touched < began
        if not is_last:
            fate.may_finish.add(token)
        else:
            fate.may_finish, fate.ending = {token}, False
            fate.holders = {}
            if holding is not None:
                fate.holders[token] = holding
                self._held[holding.place].add((sequence, token))
        fate.touched = at
        return is_last

    def _take_key(self, key: str, sequence: int) -> None:
        last = self._last.get(key, -1)
        if last > sequence:
            raise Wrong(f"record {sequence} was handed out after {last}, which has the same key")
        if self._first <= last < sequence and self._is_open(last):
            raise Wrong(f"record {sequence} was handed out, and {last}, which has the same key, was not finished")
        self._last[key] = sequence

    def _end(self, at: int, kind: str, token: Token, sequences: list[int]) -> None:
        for sequence in sequences:
            fate = self._fates[sequence]
            fate.events.append(f"{kind} {at} {token}")
            holding = fate.holders.pop(token, None)
            if holding is not None:
                self._held[holding.place].discard((sequence, token))
            fate.touched = at
            if kind == "F":
                fate.ending |= token in fate.may_finish
            elif kind in ("f", "x"):
                self._finished(at, token, sequence, fate)
                if kind == "x":
                    self._rejected.add(sequence)
            elif kind == "l":
                fate.may_finish.discard(token)

    def _finished(self, at: int, token: Token, sequence: int, fate: Fate) -> None:
        if fate.finished is not None or token not in fate.may_finish:
            raise Wrong(f"{token} finished record {sequence}, which it had lost:\n" + "\n".join(fate.events))
        fate.finished = at
        self._undurable.append(fate)

    # --- What follows ----------------------------------------------------------------------------------------------

    def unfinished(self, first: int) -> int | None:
        """Returns the first record from there on whose finish has never begun."""
        for sequence in self._sequences.known_from(first):
            if self._is_open(sequence) and sequence not in self._letters:
                return sequence
        return None

    def _is_open(self, sequence: int) -> bool:
        fate = self._fates.get(sequence)
        return fate is None or not (fate.ending or fate.finished is not None)

    def is_finished(self, sequence: int) -> bool:
        fate = self._fates.get(sequence)
        return fate is not None and fate.finished is not None

    def check_letters(self, letters: list[tuple[int, int]]) -> None:
        """letters: sequence and digest of all dead letters, of which each has one."""
        self._letters = {sequence for sequence, _ in letters}
        if len(letters) != len(self._letters):
            found = sorted(sequence for sequence, _ in letters)
            twice = next(ours for ours, theirs in pairwise(found) if ours == theirs)
            raise Wrong(f"record {twice} has two dead letters")
        for sequence, digest in letters:
            self._sequences.know(sequence, digest, SEEN, "a dead letter")
        if not self._rejected <= self._letters:
            raise Wrong(f"records {sorted(self._rejected - self._letters)} were rejected, and have no dead letter")

    def reboot(self) -> None:
        """Forgets what a power loss takes: everything but the finishes that were synced."""
        for fate in self._fates.values():
            if fate.finished is not None and not fate.is_durable:
                fate.finished, fate.ending = None, True
            fate.holders, fate.may_finish = {}, set()
        self._undurable.clear()
        self._held.clear()
        self._last.clear()
        self.is_fresh = True
