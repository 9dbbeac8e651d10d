"""Compares both ends of a flow, with a client that knows nothing of jlog."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import jlog
from kafka.witness import Fields, fields_of_message
from kafka_torture.records import Wrong

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kafka.witness import Witness
    from kafka_torture.flows import Range

Place = tuple[str, int]
Captured = dict[Place, list[tuple[int, Fields]]]  # offset and content, in the order of the journal


def number_of(value: bytes | None) -> int:
    return int((value or b"-1 ").split(b" ")[0])


def fields_of(record: jlog.Record) -> Fields:
    own = tuple(header for header in record.headers if not header[0].startswith("jlog.kafka."))
    return Fields(record.value, record.key, own, record.timestamp_us // 1000)


def check_mirror(witness: Witness, topic: str, journal: Path, count: int, suffix: bytes) -> None:
    """Checks that the topic has every record of the journal once, and those of each partition in order."""
    with jlog.Reader(journal) as reader:
        wanted = [fields_of(record) for record in reader]
    if [number_of(one.value) for one in wanted] != list(range(count)):
        raise Wrong(f"{journal} has {len(wanted)} records, which are not those that were appended ({count})")
    seen = bytearray(count)
    for partition, messages in enumerate(witness.messages(topic)):
        before = -1
        for message in messages:
            number = number_of(message.value())
            where = f"{topic}, partition {partition}, offset {message.offset()}: record {number}"
            if not 0 <= number < count or seen[number]:
                raise Wrong(f"{where} is there twice, or was never appended")
            if number < before:
                raise Wrong(f"{where} comes after record {before}")
            seen[number], before = 1, number
            original = wanted[number]
            found = fields_of_message(message)
            if found != original._replace(value=(original.value or b"") + suffix):
                raise Wrong(f"{where} is {found}, and was {original}")
    if 0 in seen:
        raise Wrong(f"{topic} lacks {seen.count(0)} of {count} records; the first is {seen.index(0)}")


class Copy:
    """The content of a journal that has captured topics."""

    def __init__(self, journal: Path, captured: Captured) -> None:
        self._journal = journal
        self._captured = captured

    def check_acknowledged(self, acknowledged: Mapping[tuple[str, int, int], bytes], lost: Iterable[Range]) -> None:
        """Checks that all is there that the brokers took, but for what retention has removed and the capture has reported."""
        there = {(*place, offset) for place, found in self._captured.items() for offset, _ in found}
        reported = {(one.topic, one.partition, offset) for one in lost for offset in range(one.first, one.last + 1)}
        missing = acknowledged.keys() - there - reported
        if missing:
            raise Wrong(f"{self._journal} lacks {len(missing)} acknowledged records; the first is {min(missing)}")

    def check_transactions(self, topic: str, committed: set[int], aborted: set[int]) -> None:
        numbers = [number_of(one.value) for place, found in self._captured.items() if place[0] == topic for _, one in found]
        if len(set(numbers)) != len(numbers) or not committed <= set(numbers) or aborted & set(numbers):
            lost, wrong = len(committed - set(numbers)), len(aborted & set(numbers))
            raise Wrong(f"{self._journal}: of {topic} {lost} committed records are missing, and {wrong} aborted ones are there")


def check_capture(witness: Witness, journal: Path, topics: Mapping[str, int]) -> Copy:
    """Checks that the journal ends, for each partition, with what the topic has now, each record once and in order. topics: how
    often each was made. Before that may be records of earlier topics of the name, each in order, and records that retention has
    removed."""
    captured: Captured = {}
    with jlog.Reader(journal) as reader:
        for record in reader:
            headers = dict(record.headers)
            place = (headers["jlog.kafka.topic"] or b"").decode(), int(headers["jlog.kafka.partition"] or 0)
            captured.setdefault(place, []).append((int(headers["jlog.kafka.offset"] or 0), fields_of(record)))
    unknown = {topic for topic, _ in captured} - topics.keys()
    if unknown:
        raise Wrong(f"{journal} has records of {unknown}")
    for place, found in captured.items():
        runs = 1 + sum(after <= before for (before, _), (after, _) in pairwise(found))
        if runs > topics[place[0]]:
            raise Wrong(
                f"{journal}: offsets of {place} go back {runs - 1} times, and the topic was made {topics[place[0]]} times"
            )
    for topic in topics:
        for partition, messages in enumerate(witness.messages(topic)):
            wanted = [(message.offset(), fields_of_message(message)) for message in messages]
            found = captured.get((topic, partition), [])
            if found[len(found) - len(wanted) :] != wanted:
                raise Wrong(_difference(journal, topic, partition, wanted, found[-len(wanted) :]))
    return Copy(journal, captured)


def _difference(
    journal: Path, topic: str, partition: int, wanted: list[tuple[int, Fields]], found: list[tuple[int, Fields]]
) -> str:
    there, here = {offset for offset, _ in wanted}, {offset for offset, _ in found}
    missing, more = sorted(there - here), sorted(here - there)
    return (
        f"{journal}, topic {topic}, partition {partition}: {len(wanted)} records in the topic, {len(missing)} missing in the "
        f"journal ({missing[:3]}), {len(more)} too many ({more[:3]})"
    )
