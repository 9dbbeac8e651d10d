"""Positions between a topic and the journal that captures it."""

from __future__ import annotations

from collections.abc import Iterator

from jlog.errors import JournalError
from jlog.kafka.bridge.found import Found, Offsets, Sum
from jlog.kafka.bridge.probe import Probe
from jlog.kafka.client.names import OFFSET, PARTITION, TOPIC
from jlog.kafka.mirror.status import Pair
from jlog.reading.reader import Reader


class CapturedBridge:
    """The journal's records have their partition and offset in headers, so each position is exact."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._topic = pair.cluster.topic(pair.url.topic)
        for position in pair.source_positions.values():
            if position["topic_id"] != self._topic.id:
                raise JournalError(f"{pair.url} was deleted and made again since it was captured: its offsets are others now")
        self._first = pair.cluster.first_offsets(self._topic)
        self._captured = {int(number): int(at["offset"]) for number, at in pair.source_positions.items()}
        self._begun = {int(number): int(at["begin"]) for number, at in pair.source_positions.items()}

        self._probe = Probe(pair.settings, self._topic.name)

    def close(self) -> None:
        self._probe.close()

    def _records(self, sequence: int) -> Iterator[tuple[int, int, int]]:
        """Yields sequence, partition and offset of the records from there on that come from this topic."""
        name = self._topic.name.encode()
        with Reader(self._pair.journal.path, start=sequence) as reader:
            for record in reader:
                about = dict(record.headers)
                partition, offset = about.get(PARTITION), about.get(OFFSET)
                if partition is not None and offset is not None and about.get(TOPIC, name) == name:
                    yield record.sequence, int(partition), int(offset)

    def offsets_at(self, sequence: int) -> Found:
        found = Sum()
        left = set(self._captured)
        for _, partition, offset in self._records(sequence):
            if partition in left:
                found.positions[partition] = offset
                left.remove(partition)
                if not left:
                    break
        for partition, first in self._first.items():
            offset = found.positions.setdefault(partition, self._captured.get(partition, 0))
            if offset < first:
                found.missing += first - offset
                found.positions[partition] = first
        return Found(sequence, found.positions, missing=found.missing)

    def sequence_at(self, offsets: Offsets) -> Found:
        """Reads the journal up to there."""
        found = Sum()
        journal = self._pair.journal
        first = journal.first_sequence
        wanted = {partition: offsets.get(partition, self._first[partition]) for partition in self._captured}
        seen = set()
        for sequence, partition, offset in self._records(first):
            if partition in wanted and partition not in seen:
                seen.add(partition)
                found.missing += self._missing(partition, wanted[partition], offset, first > 0)
            if partition in wanted and offset >= wanted[partition]:
                found.positions[partition] = sequence
                del wanted[partition]
                if not wanted:
                    break
        for partition, offset in wanted.items():  # no record of it is left to be read
            captured = self._captured[partition]
            if partition not in seen:
                found.missing += self._missing(partition, offset, captured, first > 0)
            found.again += max(0, offset - captured)
            found.positions[partition] = journal.next_sequence
        sequence = min(found.positions.values(), default=journal.next_sequence)
        found.again += max(found.positions.values(), default=sequence) - sequence
        return Found(sequence, offsets, again=found.again, missing=found.missing)

    def _missing(self, partition: int, offset: int, kept: int, is_beheaded: bool) -> int:
        """Returns how many messages from this offset on, at most, are not in the journal, whose first one has the offset
        `kept`."""
        if not is_beheaded:
            return max(0, self._begun[partition] - offset)
        gone = max(0, min(kept, self._first[partition]) - offset)
        message = self._probe.at(partition, max(offset, self._first[partition]), kept)
        return gone if message is None else max(gone, kept - message.offset())
