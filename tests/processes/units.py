"""The records that the workers write, from which alone one can check what a kill has left.

A unit is what one call appends: all of it or nothing. Each of its values says whose it is, which one in that writer's
order, which part of how many, and whether the call stored state, which then is {writer: unit}.
"""

from __future__ import annotations

import os
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Part(NamedTuple):
    writer: str
    unit: int
    part: int
    parts: int
    has_state: bool


class Unit(NamedTuple):
    """One that was acknowledged: append or extend has returned this sequence."""

    writer: str
    unit: int
    parts: int
    sequence: int


def values_of(writer: str, unit: int, parts: int = 1, size: int = 0, *, has_state: bool = False) -> list[bytes]:
    flag = "state" if has_state else "plain"
    return [f"{writer} {unit} {part} {parts} {flag} ".encode().ljust(size, b".") for part in range(parts)]


def part_of(value: bytes) -> Part:
    writer, unit, part, parts, flag = value.split(b" ")[:5]
    return Part(writer.decode(), int(unit), int(part), int(parts), flag == b"state")


def read_all(path: str | os.PathLike[str], start: str | int = "begin") -> list[tuple[int, bytes]]:
    import jlog

    with jlog.Reader(path, start=start) as reader:
        return [(record.sequence, record.value) for record in reader]


def check_units(
    path: str | os.PathLike[str], acknowledged: Iterable[Unit], *, lost: int = 0, first_sequence: int = 0
) -> list[tuple[int, bytes]]:
    """Every acknowledged unit is there once, at its sequence, but for up to `lost` records that a power loss took; the
    others are there as a whole or not at all; each writer's are in its order; numbers jump only over stated holes.
    Returns the records."""
    import jlog
    import oracle

    journal = jlog.Journal(path)
    records = read_all(path)
    check_numbers(records, first_sequence, journal.gaps())
    found = check_whole(records, cut=first_sequence > 0)
    check_acknowledged(found, acknowledged, lost, first_sequence)
    check_state(records, journal.state())
    report = journal.verify()
    # Without the buffer nobody can say what it held.
    assert report.ok or (lost and [os.path.basename(damage.path) for damage in report.damage] == ["precommit"]), report
    # A direct block that its killed writer could not publish counts for the oracle; a reader sees it as soon as the
    # next one to take the lock has published it.
    beyond = [(record.sequence, record.value) for record in oracle.read_journal(path).records]
    assert beyond[: len(records)] == records
    assert len(check_whole(beyond[len(records) :], cut=False)) <= 1
    return records


def check_numbers(records: list[tuple[int, bytes]], first: int, gaps: list[tuple[int, int]]) -> None:
    expected, after = first, dict(gaps)
    for sequence, value in records:
        while expected in after:
            expected = after[expected]
        assert sequence == expected, f"{value!r} has {sequence}, {expected} comes next"
        expected += 1


def check_whole(records: list[tuple[int, bytes]], *, cut: bool) -> dict[tuple[str, int], tuple[int, int]]:
    """{(writer, unit): (first sequence, parts)}. `cut`: retention may have taken the beginning of the first one."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    last: dict[str, int] = defaultdict(lambda: -1)
    at = 0
    while at < len(records):
        sequence, value = records[at]
        part = part_of(value)
        parts = [part_of(other) for _, other in records[at : at + part.parts - part.part]]
        assert part.part == 0 or (cut and at == 0), f"{value!r} at {sequence} begins in the middle"
        wanted = [part._replace(part=i) for i in range(part.part, part.parts)]
        assert parts == wanted, f"{value!r} at {sequence} is not whole: {parts}"
        assert part.unit > last[part.writer], f"{value!r} at {sequence} comes after {last[part.writer]}"
        last[part.writer] = part.unit
        found[part.writer, part.unit] = sequence, part.parts
        at += len(parts)
    return found


def check_acknowledged(
    found: dict[tuple[str, int], tuple[int, int]],
    acknowledged: Iterable[Unit],
    lost: int,
    first_sequence: int,
) -> None:
    missing = []
    for unit in acknowledged:
        if unit.sequence + unit.parts <= first_sequence:
            continue
        if (unit.writer, unit.unit) not in found:
            missing.append(unit)
        elif unit.sequence >= first_sequence:
            assert found[unit.writer, unit.unit] == (unit.sequence, unit.parts), unit
    assert sum(unit.parts for unit in missing) <= lost, f"{missing} are lost"


def check_state(records: list[tuple[int, bytes]], state: dict[bytes, bytes]) -> None:
    state = {key: value for key, value in state.items() if not key.startswith(b"alone/")}
    expected = dict(state) if records and records[0][0] > 0 else {}
    for _, value in records:
        part = part_of(value)
        if part.has_state:
            expected[part.writer.encode()] = b"%d" % part.unit
    assert state == expected
