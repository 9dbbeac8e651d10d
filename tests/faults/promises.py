"""The promises that a recorded run had been given at a moment, and the check that a journal keeps them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jlog
import oracle
from faults.actor import SUBSCRIBER
from processes.units import (
    Unit,
    check_acknowledged,
    check_numbers,
    check_whole,
    part_of,
    read_all,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Records = list[tuple[int, bytes]]


@dataclass
class Position:
    """The position of a subscriber or a checkpoint."""

    durable: bool = False  # it was there, and survived a power loss, once its call had returned
    possible: set[int] = field(default_factory=set)  # where it may stand since


@dataclass
class Promises:
    """Grows by each note. The values of all numbers are those of the whole run, also of what came later."""

    values: dict[int, bytes] = field(default_factory=dict)
    made: bool = False  # the journal is there
    durable_end: int = 0  # every number before it survives a power loss
    published: set[int] = field(default_factory=set)  # given out, and known to be
    published_end: int = 0  # no number before it is given out again
    acknowledged: list[Unit] = field(default_factory=list)
    positions: dict[str, Position] = field(default_factory=lambda: {"subscribers": Position(), "checkpoints": Position()})

    def learn(self, kind: str, told: dict[str, Any]) -> None:
        """The values that a note tells of, whenever it came."""
        records = told.get("records", [])
        if kind == "appended":
            records = [(told["sequence"] + i, value) for i, value in enumerate(told["values"])]
        for sequence, value in records:
            known = self.values.setdefault(sequence, value.encode())
            assert known == value.encode(), f"{sequence} was given to {known!r} and to {value!r}"

    def follow(self, kind: str, told: dict[str, Any]) -> None:
        if kind == "made":
            self.made = True
        elif kind == "appended":
            end = told["sequence"] + len(told["values"])
            self._publish(range(told["sequence"], end))
            self.acknowledged.append(Unit(told["writer"], told["unit"], len(told["values"]), told["sequence"]))
            if told["durable"]:
                self.durable_end = max(self.durable_end, end)
        elif kind == "handed":
            self._publish([sequence for sequence, _ in told["records"]])
        elif kind == "durable":
            self.durable_end = max(self.durable_end, told["end"])
        elif kind in ("subscribed", "committing", "committed"):
            self._move("subscribers", kind == "committed" and told["durable"], told.get("position"))
        elif kind in ("checkpointing", "checkpointed"):
            self._move("checkpoints", kind == "checkpointed", told["position"])

    def _publish(self, numbers: Iterable[int]) -> None:
        self.published.update(numbers)
        self.published_end = max(self.published_end, *(number + 1 for number in numbers), 0)

    def forget(self, first: int) -> None:
        """Forgets the records from this number on: none was acknowledged, and their numbers are given out again."""
        assert first >= self.published_end, f"{first} was given out before, up to {self.published_end}"
        self.values = {sequence: value for sequence, value in self.values.items() if sequence < first}

    def settle(self, records: Records, first: int) -> None:
        """These are what a power loss has left, from `first` on: the others are gone, and these are on the disk."""
        removed = {sequence: value for sequence, value in self.values.items() if sequence < first}
        self.values = {**removed, **dict(records)}
        self.published = {sequence for sequence, _ in records}
        self.durable_end = max(self.published, default=-1) + 1
        self.published_end = max(self.published_end, self.durable_end)
        self.acknowledged = [unit for unit in self.acknowledged if unit.sequence in self.published]

    def _move(self, table: str, durable: bool, position: int | None) -> None:
        found = self.positions[table]
        if position is None:  # it has been made, or was there
            if not found.durable:
                found.durable = True
                found.possible.add(0)
            return
        if durable:
            found.durable = True
            found.possible = {position}
            self.durable_end = max(self.durable_end, position)
        found.possible.add(position)

    # --- Are they kept? ----------------------------------------------------------------------------------------

    def check(self, path: str, *, all_published: bool) -> Records:
        """Raises AssertionError, or what a call raises, where they are not. `all_published`: only processes have died."""
        journal = jlog.Journal(path)
        records = read_all(path)
        first = journal.first_sequence
        check_numbers(records, first, journal.gaps())
        found = check_whole(records, cut=first > 0)
        for sequence, value in records:
            assert self.values.get(sequence, value) == value, f"{sequence} is {value!r} and was {self.values[sequence]!r}"
        wanted = [unit for unit in self.acknowledged if all_published or unit.sequence + unit.parts <= self.durable_end]
        check_acknowledged(found, wanted, 0, first)
        numbers = {sequence for sequence, _ in records}
        missing = sorted(number for number in self.published if first <= number < self.durable_end and number not in numbers)
        assert not missing, f"{missing} were durable, up to {self.durable_end}"
        self._check_state(journal.state(), first, dict(records))
        report = journal.verify()
        assert report.ok, report
        self._check_positions(path)
        return records

    def _check_state(self, state: dict[bytes, bytes], first: int, records: dict[int, bytes]) -> None:
        """It is that of the last records which are there, or were removed by retention."""
        removed = {sequence: value for sequence, value in self.values.items() if sequence < first}
        wanted: dict[bytes, bytes] = {}
        for _, value in sorted({**removed, **records}.items()):  # also what its killed writer told nobody of
            part = part_of(value)
            if part.has_state:
                wanted[part.writer.encode()] = b"%d" % part.unit
        found = {key: value for key, value in state.items() if not key.startswith(b"alone/")}
        assert found == wanted, f"the state is {found}, the records made {wanted}"

    def _check_positions(self, path: str) -> None:
        journal = jlog.Journal(path)
        for table, found in (("subscribers", journal.subscribers()), ("checkpoints", journal.checkpoints())):
            wanted = self.positions[table]
            assert found or not wanted.durable, f"{table}: none is there"
            for name, position in found.items():
                assert not position.damaged, f"{table}/{name} is damaged"
                assert position.sequence in wanted.possible | {0}, f"{table}/{name} is {position}, not {wanted}"
                assert not wanted.durable or position.sequence in wanted.possible, f"{table}/{name} is {position}, not {wanted}"
        if SUBSCRIBER in journal.subscribers():
            with jlog.Reader(path, SUBSCRIBER, create=False) as reader:
                position = reader.position
                rest = [record.sequence for record in reader]
            left = [sequence for sequence, _ in read_all(path) if sequence >= position]
            assert rest == left, f"from {position} on the subscriber reads {rest}, and there is {left}"


def is_made(path: str) -> bool:
    return os.path.exists(os.path.join(path, "journal.meta"))


def check_soundness(path: str, *, indexes: bool) -> None:
    """The last writer has closed. A power loss may leave indexes wrong; they are built again when they are needed."""
    oracle.check_journal(path, indexes=indexes)
