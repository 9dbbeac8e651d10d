"""Everything that is known of one journal from outside: acknowledgements to writers, and records that readers saw."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torture.history import History
from torture.records import Wrong
from torture.sequences import ACKNOWLEDGED, SEEN, Sequences

if TYPE_CHECKING:
    from collections.abc import Iterable


EVENTS = ("i", "s", "m")  # a call was interrupted, one had no memory, a directory was moved or linked


@dataclass
class WriterAccount:
    last: int = -1  # unit about which a line was written
    failed: set[int] = field(default_factory=set)
    interrupted: set[int] = field(default_factory=set)  # units that may be there as a whole, or not at all


@dataclass
class Seat:
    """A subscriber, or the reader without a name in one child, as its lines describe it."""

    name: str
    named: bool
    may_lose: bool
    position: int | None = None
    committed: set[int] = field(default_factory=set)
    checkpoint: set[int] = field(default_factory=set)
    has_checkpoint: bool = False


class Accounts:
    """The accounts of one journal. Raises Wrong as soon as two of them contradict each other."""

    def __init__(self, *, is_keyed: bool = False) -> None:
        self.sequences = Sequences()
        self.writers: dict[str, WriterAccount] = {}
        self.stored: dict[bytes, tuple[int, bytes]] = {}  # state: key -> (sequence of its unit, value)
        self.seats: dict[str, Seat] = {}
        self.errors: dict[int, int] = {}  # errno -> how often
        self.gaps: set[tuple[int, int]] = set()  # every gap that the journal has ever stated
        self.history = History(self.sequences, is_keyed=is_keyed)
        self.once: dict[str, int] = {}  # id -> sequence
        self.events: Counter[str] = Counter()  # kind of line -> how often

    # --- Writers -------------------------------------------------------------------------------------------------

    def hear_writer(self, writer: str, lines: Iterable[str]) -> None:
        account = self.writers.setdefault(writer, WriterAccount())
        for line in lines:
            kind, *words = line.split()
            if kind == "!":
                self._error(words)
                continue
            if kind in EVENTS:
                self.events[kind] += 1
                continue
            if kind in ("@", "="):
                self._hear_once(writer, kind, words)
                continue
            account.last = int(words[0])
            if kind in ("-", "?"):
                (account.failed if kind == "-" else account.interrupted).add(account.last)
                continue
            parts, sequence, has_state = map(int, words[1:4])
            digests = words[4:]
            assert len(digests) == parts
            for at, digest in enumerate(digests):
                self.sequences.know(sequence + at, int(digest, 16), ACKNOWLEDGED, f"{writer} unit {words[0]}")
            if has_state:
                self.store(writer, account.last, sequence)

    def _hear_once(self, writer: str, kind: str, words: list[str]) -> None:
        """Hears of an append with an id, which is a writer of its own with one unit."""
        identity = words[0]
        account = self.writers.setdefault(identity, WriterAccount())
        if kind == "=":
            sequence, digest = int(words[1]), int(words[2], 16)
            if self.once.setdefault(identity, sequence) != sequence:
                raise Wrong(f"{writer} appended id {identity} at {sequence}, and it was {self.once[identity]} before")
            account.last = 0
            self.sequences.know(sequence, digest, ACKNOWLEDGED, f"{writer} id {identity}")

    def store(self, writer: str, unit: int, sequence: int) -> None:
        key = writer.partition(".")[0].encode()
        if key not in self.stored or self.stored[key][0] <= sequence:
            self.stored[key] = sequence, f"{writer} {unit}".encode()

    def may_exist(self, writer: str, unit: int) -> bool:
        """Returns whether a record that was never acknowledged may have this content: it belongs to the call in which its
        writer was killed, or to one that was interrupted."""
        account = self.writers.get(writer, WriterAccount())
        return unit == account.last + 1 or unit in account.interrupted

    def _error(self, words: list[str]) -> None:
        self.errors[int(words[0])] = self.errors.get(int(words[0]), 0) + 1

    def hear_worker(self, worker: str, lines: list[str], *, is_dead: bool) -> None:
        self.events.update(line for line in lines if line in EVENTS)
        self.history.hear(worker, [line for line in lines if line not in EVENTS], is_dead=is_dead)

    # --- Readers -------------------------------------------------------------------------------------------------

    def seat(self, name: str, *, named: bool, may_lose: bool) -> Seat:
        return self.seats.setdefault(name, Seat(name, named, may_lose))

    def hear_reader(self, seat: Seat, lines: Iterable[str]) -> None:
        for line in lines:
            kind, *words = line.split()
            if kind == "!":
                self._error(words)
            elif kind in EVENTS:
                self.events[kind] += 1
            elif kind == "r":
                self._read(seat, int(words[0]), words[1:])
            elif kind == "o":
                self._opened(seat, int(words[0]))
            elif kind == "l":
                if not seat.may_lose:
                    raise Wrong(f"{seat.name} has lost its position, which nothing may take from it")
                seat.position = int(words[0])
            else:
                self._moved(seat, kind, [int(word) for word in words])

    def _opened(self, seat: Seat, position: int) -> None:
        if seat.named and seat.committed:
            if not any(self._leads_to(at, position) for at in seat.committed):
                raise Wrong(f"{seat.name} begins at {position}, and was committed at {sorted(seat.committed)}")
            seat.committed = {position}
        elif seat.named:
            seat.committed = {position}
        seat.position = position

    def _read(self, seat: Seat, first: int, digests: list[str]) -> None:
        if seat.position is None or not self._leads_to(seat.position, first):
            raise Wrong(f"{seat.name} stood at {seat.position} and was given record {first}")
        for at, digest in enumerate(digests):
            self.sequences.know(first + at, int(digest, 16), SEEN, seat.name)
        seat.position = first + len(digests)

    def _leads_to(self, position: int, following: int) -> bool:
        """Returns whether only stated gaps lie between."""
        if position == following:
            return True
        at = position
        for first, end in sorted(self.gaps):
            if first <= at < end:
                at = end
        at = self.behind_gaps(at)
        return at >= following > position and self.sequences.is_gap(position, following)

    def behind_gaps(self, position: int) -> int:
        """Returns where the sequences continue, if a stated gap begins here."""
        ends = dict(self.gaps)
        while position in ends:
            position = ends[position]
        return position

    def _moved(self, seat: Seat, kind: str, numbers: list[int]) -> None:
        if kind == "C":
            seat.committed |= set(numbers)
        elif kind == "c":
            seat.committed = set(numbers)
        elif kind == "k":
            seat.checkpoint |= set(numbers)
        elif kind == "K":
            seat.checkpoint, seat.has_checkpoint = set(numbers), True
        elif kind == "w":
            seat.committed |= seat.checkpoint
        elif kind == "W":
            (position,) = numbers
            if not any(self._leads_to(at, position) for at in seat.checkpoint):
                raise Wrong(f"{seat.name} was rewound to {position}, its checkpoint is {sorted(seat.checkpoint)}")
            seat.committed, seat.checkpoint = {position}, {position}
            seat.position = position
        else:
            raise AssertionError(f"a line {kind!r} of {seat.name}")

    def held(self) -> int | None:
        """Returns the sequence from which on no record may be removed. If a move was not confirmed, the further place
        counts."""
        found = [max(seat.committed) for seat in self.seats.values() if seat.named and seat.committed]
        found += [max(seat.checkpoint) for seat in self.seats.values() if seat.has_checkpoint]
        return min(found, default=None)
