"""Positions between a journal and the topic that it is mirrored to."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from jlog.errors import JournalError
from jlog.kafka.bridge.found import Found, Offsets, Sum
from jlog.kafka.bridge.probe import Probe
from jlog.kafka.client.names import SEQUENCE
from jlog.kafka.client.records import sequence_in
from jlog.kafka.client.rules import milliseconds
from jlog.kafka.client.streams import Stream
from jlog.kafka.mirror.sink import SINK
from jlog.kafka.mirror.status import Pair
from jlog.kafka.mirror.verify import Expected


class MirroredBridge:
    """With the header jlog.kafka.sequence each message says which record it is. Without it, the mirror's rule says which
    records are in a partition: those behind the position and the last messages have to be the same. If they are not, times
    decide, so that no record is missing."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._journal = pair.journal
        self._expected = Expected(pair, align=False)
        self._topic = self._expected.topic
        self._first, self._end = self._expected.first, self._expected.ends
        self._mirrored = self._expected.end  # sequence of the next record that the mirror sends
        self._begin = self._expected.begin
        self._begun: Mapping[str, int] = pair.source_positions[SINK]["begin"]
        self._probe = Probe(pair.settings, self._topic.name)
        if self._begin > 0:
            self._look_before()

    def _look_before(self) -> None:
        """Where this mirror goes on in the topic of another one, as after a takeover, its journal has those records too."""
        messages = [self._probe.at(partition, first, self._end[partition]) for partition, first in self._first.items()]
        sequences = [sequence_in(message) for message in messages if message is not None]
        known = [sequence for sequence in sequences if sequence is not None]
        if known and len(known) == len(sequences):
            self._begin = min(known)
            self._begun = {}

    def close(self) -> None:
        self._probe.close()

    def _has_sequences(self, partition: int) -> bool:
        first = self._probe.at(partition, self._own_first(partition), self._end[partition])
        return first is None or sequence_in(first) is not None

    def _own_first(self, partition: int) -> int:
        """Returns the first offset that may be one of this mirror."""
        return max(self._first[partition], self._begun.get(str(partition), 0))

    # --- To the topic -----------------------------------------------------------------------------------------------

    def offsets_at(self, sequence: int) -> Found:
        found = Sum(missing=max(0, self._begin - sequence), again=max(0, sequence - self._mirrored))
        plain = []
        for partition in self._first:
            if sequence >= self._mirrored:
                found.positions[partition] = self._end[partition]
            elif self._has_sequences(partition):
                self._find_offset(partition, sequence, found)
            else:
                plain.append(partition)
        if plain:
            self._compare_behind(sequence, plain, found)
        return Found(sequence, found.positions, found.exact, found.again, found.missing)

    def _find_offset(self, partition: int, sequence: int, found: Sum) -> None:
        """Finds the first message from this sequence on, by halving. Where records were sent again, it is the first one of one
        of these times."""
        low, high = self._own_first(partition), self._end[partition]
        while low < high:
            middle = (low + high) // 2
            message = self._probe.at(partition, middle, high)
            if message is None or self._sequence_of(message) >= sequence:
                high = middle
            else:
                low = message.offset() + 1
        message = self._probe.at(partition, high, self._end[partition])
        found.positions[partition] = self._end[partition] if message is None else message.offset()
        if self._first[partition] > self._begun.get(str(partition), 0) and high <= self._first[partition]:
            there = self._mirrored if message is None else self._sequence_of(message)
            found.missing = max(found.missing, there - sequence)

    def _sequence_of(self, message: Any) -> int:
        sequence = sequence_in(message)
        if sequence is None:
            raise JournalError(
                f"{self._pair.url}: the message at offset {message.offset()} of partition {message.partition()} has no header "
                f"{SEQUENCE}, and others have it: it is not known which record it is"
            )
        return sequence

    def _compare_behind(self, sequence: int, partitions: list[int], found: Sum) -> None:
        """Finds the offsets by the records from this sequence on."""
        wanted: dict[int, list[int]] = {partition: [] for partition in partitions}
        earliest: dict[int, int] = {}
        for record, key, partition in self._expected.records(sequence):
            if partition in wanted:
                wanted[partition].append(self._digest(record.value, key, record.timestamp_us))
                earliest[partition] = min(earliest.get(partition, record.timestamp_us), record.timestamp_us)
        for partition, digests in wanted.items():
            end = self._end[partition]
            if not digests:
                found.positions[partition] = end
                continue
            by_time = self._pair.cluster.offsets_at(self._topic, earliest[partition] // 1000 * 1000, [partition])[partition]
            by_time = max(by_time, self._own_first(partition))
            there = [(message.offset(), self._digest_of(message)) for message in self._messages(partition, by_time)]
            count = len(digests)
            if [digest for _, digest in there[-count:]] == digests:
                found.positions[partition] = there[-count][0]
                continue
            found.exact = False
            found.positions[partition] = by_time
            found.again += max(0, len(there) - count)
            if self._first[partition] > self._begun.get(str(partition), 0):
                found.missing += max(0, count - len(there))

    # --- To the journal ---------------------------------------------------------------------------------------------

    def sequence_at(self, offsets: Offsets) -> Found:
        found = Sum()
        plain = []
        for partition in self._first:
            offset = max(offsets.get(partition, 0), self._begun.get(str(partition), 0))
            if offset < self._first[partition]:
                # What was not read is gone from the topic. The journal may still have it, at any sequence.
                found.exact = False
                found.positions[partition] = self._begin
            elif self._has_sequences(partition):
                message = self._probe.at(partition, offset, self._end[partition])
                found.positions[partition] = self._mirrored if message is None else self._sequence_of(message)
            else:
                plain.append(partition)
        if plain:
            self._compare_unread({partition: offsets.get(partition, 0) for partition in plain}, found)
        sequence = min(found.positions.values())
        found.again = max(found.positions.values()) - sequence if found.exact else self._mirrored - sequence
        first = self._journal.first_sequence
        return Found(max(sequence, first), offsets, found.exact, found.again, max(0, first - sequence))

    def _compare_unread(self, offsets: dict[int, int], found: Sum) -> None:
        """Finds the sequences by the messages that are not read."""
        unread, times = {}, []
        for partition, offset in offsets.items():
            messages = [*self._messages(partition, max(offset, self._own_first(partition)))]
            unread[partition] = [self._digest_of(message) for message in messages]
            times += [message.timestamp()[1] for message in messages]
        last: dict[int, deque[tuple[int, int]]] = {partition: deque(maxlen=len(rows)) for partition, rows in unread.items()}
        by_time = self._mirrored
        for record, key, partition in self._expected.records(0):
            if times and record.sequence < by_time and milliseconds(record.timestamp_us) >= min(times):
                by_time = record.sequence
            if partition in last:
                last[partition].append((record.sequence, self._digest(record.value, key, record.timestamp_us)))
        for partition, digests in unread.items():
            if not digests:
                found.positions[partition] = self._mirrored
            elif [digest for _, digest in last[partition]] == digests:
                found.positions[partition] = last[partition][0][0]
            else:
                found.exact = False
                # Where the journal has fewer records than that, the first of them are gone.
                is_gone = len(last[partition]) < len(digests)
                found.positions[partition] = self._begin if is_gone else by_time

    # --- Records and messages ---------------------------------------------------------------------------------------

    def _messages(self, partition: int, offset: int) -> Stream:
        return Stream(self._pair.settings, self._topic.name, partition, offset, self._end[partition])

    def _digest(self, value: bytes | None, key: bytes | None, time_us: int) -> int:
        return hash((value, key, milliseconds(time_us) if self._expected.keeps_times else 0))

    def _digest_of(self, message: Any) -> int:
        return self._digest(message.value(), message.key(), message.timestamp()[1] * 1000)
