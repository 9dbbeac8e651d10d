"""Everything that is known of one journal from outside: acknowledgements to writers, and records that readers saw."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torture.records import Wrong

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK = 1 << 12
SEEN, ACKNOWLEDGED = 1 << 32, 1 << 33


class Sequences:
    """Holds what is known of each sequence: a digest, and whether the record was acknowledged or only seen. It is sparse."""

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}
        self.count = 0
        self.end = 0

    def know(self, sequence: int, digest: int, mark: int, source: str) -> None:
        number, at = divmod(sequence, CHUNK)
        chunk = self._chunks.get(number)
        if chunk is None:
            chunk = self._chunks[number] = array("Q", bytes(8 * CHUNK))
        known = chunk[at]
        if known and known & 0xFFFFFFFF != digest:
            raise Wrong(
                f"sequence {sequence} was given twice: {source} has a record with the checksum {digest:08x}, another "
                f"one with {known & 0xFFFFFFFF:08x} was {'acknowledged' if known & ACKNOWLEDGED else 'read'} there"
            )
        if not known:
            self.count += 1
            self.end = max(self.end, sequence + 1)
        chunk[at] = known | digest | mark

    def at(self, sequence: int) -> int:
        """Returns the digest of a sequence; 0 if nothing is known of it."""
        number, at = divmod(sequence, CHUNK)
        chunk = self._chunks.get(number)
        return 0 if chunk is None else chunk[at]

    def known_from(self, first: int, end: int | None = None) -> Iterator[int]:
        """Yields every known sequence in this range."""
        end = self.end if end is None else end
        for number in sorted(self._chunks):
            base = number * CHUNK
            if base + CHUNK <= first or base >= end:
                continue
            for at, known in enumerate(self._chunks[number]):
                if known and first <= base + at < end:
                    yield base + at

    def is_gap(self, first: int, end: int) -> bool:
        """Returns whether no record was ever seen in this range."""
        return first <= end and next(self.known_from(first, end), None) is None


@dataclass
class WriterAccount:
    last: int = -1  # unit about which a line was written
    failed: set[int] = field(default_factory=set)


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

    def __init__(self) -> None:
        self.sequences = Sequences()
        self.writers: dict[str, WriterAccount] = {}
        self.stored: dict[bytes, tuple[int, bytes]] = {}  # state: key -> (sequence of its unit, value)
        self.seats: dict[str, Seat] = {}
        self.errors: dict[int, int] = {}  # errno -> how often
        self.gaps: set[tuple[int, int]] = set()  # every gap that the journal has ever stated

    # --- Writers -------------------------------------------------------------------------------------------------

    def hear_writer(self, writer: str, lines: Iterable[str]) -> None:
        account = self.writers.setdefault(writer, WriterAccount())
        for line in lines:
            kind, *words = line.split()
            if kind == "!":
                self._error(words)
                continue
            account.last = int(words[0])
            if kind == "-":
                account.failed.add(account.last)
                continue
            parts, sequence, has_state = map(int, words[1:4])
            digests = words[4:]
            assert len(digests) == parts
            for at, digest in enumerate(digests):
                self.sequences.know(sequence + at, int(digest, 16), ACKNOWLEDGED, f"{writer} unit {words[0]}")
            if has_state:
                self.store(writer, account.last, sequence)

    def store(self, writer: str, unit: int, sequence: int) -> None:
        key = writer.partition(".")[0].encode()
        if key not in self.stored or self.stored[key][0] <= sequence:
            self.stored[key] = sequence, f"{writer} {unit}".encode()

    def may_exist(self, writer: str, unit: int) -> bool:
        """Returns whether a record that was never acknowledged may have this content: it belongs to the call in which its
        writer was killed."""
        return unit == self.writers.get(writer, WriterAccount()).last + 1

    def _error(self, words: list[str]) -> None:
        self.errors[int(words[0])] = self.errors.get(int(words[0]), 0) + 1

    # --- Readers -------------------------------------------------------------------------------------------------

    def seat(self, name: str, *, named: bool, may_lose: bool) -> Seat:
        return self.seats.setdefault(name, Seat(name, named, may_lose))

    def hear_reader(self, seat: Seat, lines: Iterable[str]) -> None:
        for line in lines:
            kind, *words = line.split()
            if kind == "!":
                self._error(words)
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
