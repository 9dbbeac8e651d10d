"""Messages of a mirror as the records that they were in its journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jlog.errors import JournalError
from jlog.flow.records import Headers, NewRecord, RecordColumns
from jlog.kafka.client.names import SEQUENCE, TIMESTAMP
from jlog.kafka.client.records import sequence_in, time_us_of
from jlog.kafka.ends.messages import without_ours


class MirroredMessage(NamedTuple):
    """A message with the sequence of its record."""

    sequence: int
    message: Any


def mirrored(message: Any) -> MirroredMessage:
    """Raises JournalError for a message that no mirror for a standby has sent."""
    sequence = sequence_in(message)
    if sequence is None:
        raise JournalError(
            f"topic {message.topic()}, partition {message.partition()}, offset {message.offset()}: the message has no header "
            f"{SEQUENCE}, so that no `jlogtool mirror to-kafka --standby` sent it: a standby needs a topic of its own"
        )
    return MirroredMessage(sequence, message)


class MirroredBatch:
    """Records in the order of their sequences, without a gap."""

    def __init__(self, found: Sequence[MirroredMessage]) -> None:
        self.found = found

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[NewRecord]:
        for value, key, headers, time_us in zip(*self.columns(), strict=True):
            yield NewRecord(value, key, headers, time_us)

    def columns(self) -> RecordColumns:
        messages = [found.message for found in self.found]
        headers = [message.headers() or () for message in messages]
        return RecordColumns(
            [message.value() for message in messages],
            [message.key() for message in messages],
            [without_ours(found) for found in headers],
            [_time_us(message, found) for message, found in zip(messages, headers, strict=True)],
        )


def _time_us(message: Any, headers: Headers) -> int | None:
    text = next((value for name, value in headers if name == TIMESTAMP), None)
    return time_us_of(message) if text is None else int(text)


class Merge:
    """Orders the messages of all partitions by the sequences of their records. Each partition has them in order, but for those
    that were sent again."""

    def __init__(self, partitions: Sequence[int], expected: int) -> None:
        self.waiting: Mapping[int, deque[MirroredMessage]] = {partition: deque() for partition in partitions}
        self.expected: int = expected  # sequence of the next record

    def add(self, found: MirroredMessage) -> None:
        self.waiting[found.message.partition()].append(found)

    def take(self, max_records: int) -> list[MirroredMessage]:
        """Takes the next records, as long as no sequence is missing."""
        taken: list[MirroredMessage] = []
        while len(taken) < max_records:
            run = next((waiting for waiting in self._begun() if waiting[0].sequence == self.expected), None)
            if run is None:
                break
            while run and run[0].sequence <= self.expected and len(taken) < max_records:
                found = run.popleft()
                if found.sequence == self.expected:  # a smaller one is a record that was sent again
                    taken.append(found)
                    self.expected += 1
        return taken

    def give_back(self, taken: Sequence[MirroredMessage]) -> None:
        """Puts the messages that were taken last back."""
        for found in reversed(taken):
            self.waiting[found.message.partition()].appendleft(found)
            self.expected = found.sequence

    def _begun(self) -> list[deque[MirroredMessage]]:
        """Returns the queues of the partitions that have a message, without records that are there already."""
        for waiting in self.waiting.values():
            while waiting and waiting[0].sequence < self.expected:
                waiting.popleft()
        return [waiting for waiting in self.waiting.values() if waiting]

    def lowest(self) -> int | None:
        """Returns the lowest sequence of all messages that wait."""
        return min((waiting[0].sequence for waiting in self._begun()), default=None)

    def empty(self) -> list[int]:
        """Returns the partitions of which no message waits."""
        return [partition for partition, waiting in self.waiting.items() if not waiting]
