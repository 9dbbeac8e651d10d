"""How many records a batch has by the offsets in Spark's checkpoint, to compare with the rows that arrive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from jlog.errors import JournalError
from jlog.pipeline.tables.table import Offset
from jlog.spark.reading.plan import Range
from jlog.spark.reading.sources import SparkSource
from jlog.storage.gaps import count_assigned

# Less takes less time than the start of a task and of a file.
RECORDS_PER_TASK = 100_000
BYTES_PER_TASK = 32 << 20
TOPIC_BYTES_PER_RECORD = 1 << 10  # Spark does not say how large a topic's messages are


@dataclass(frozen=True)
class Expected:
    """least and most: the bounds of the number of records. They are equal for journals. A topic may have fewer records than
    offsets, and so may a journal that lacks records, if the pipeline goes on after lost ones. size_bytes: approximate."""

    least: int = 0
    most: int = 0
    size_bytes: int = 0

    def __add__(self, other: Expected) -> Expected:
        return Expected(self.least + other.least, self.most + other.most, self.size_bytes + other.size_bytes)

    @property
    def tasks(self) -> int:
        """Returns the most tasks that are worth their start, and the files that each of them writes."""
        return max(1, math.ceil(self.most / RECORDS_PER_TASK), math.ceil(self.size_bytes / BYTES_PER_TASK))

    def check(self, records: int) -> None:
        """Raises JournalError for a number of records that is out of the bounds."""
        if not self.least <= records <= self.most:
            wanted = str(self.most) if self.least == self.most else f"{self.least} to {self.most}"
            raise JournalError(
                f"{records} records of this batch have arrived, but the offsets in Spark's checkpoint promise {wanted}. The "
                "whole batch is discarded; run the pipeline again"
            )


def expected(
    begins: Sequence[Offset | None],
    ends: Sequence[Offset | None],
    sources: Mapping[str, SparkSource],
    *,
    fail_on_data_loss: bool,
) -> Expected:
    """Returns the number of records between the offsets. sources: the journals; they are one source of the query, the last."""
    total = Expected()
    for index, (begin, end) in enumerate(zip_longest(begins, ends)):
        if end is None:
            continue
        if sources and index == len(ends) - 1:
            total += _of_journals(begin, end, sources, fail_on_data_loss)
        else:
            messages = messages_between(begin or {}, end)
            total += Expected(0, messages, messages * TOPIC_BYTES_PER_RECORD)
    return total


def _of_journals(begin: Offset | None, end: Offset, sources: Mapping[str, SparkSource], fail_on_data_loss: bool) -> Expected:
    total = Expected()
    for name, position in end.items():
        known = None if begin is None else begin.get(name)
        last = int(position["sequence"])
        if position == known:
            continue
        if known is None or known["uuid"] is None or name not in sources:  # its first records have come since the batch before
            total += Expected(0, last)
            continue
        source, first = sources[name], int(known["sequence"])
        if not fail_on_data_loss and source.kept(known, last)[0] < first:  # it was replaced, and is read from further back
            total += Expected(0, last)
            continue
        size_bytes = Range(source, first, last).size()[1]  # an archive is listed by this, if the range is not known
        records = count_assigned(source.gaps(first, last), first, last)
        total += Expected(records if fail_on_data_loss else 0, records, size_bytes)
    return total


def messages_between(begin: Offset, end: Offset) -> int:
    """Returns the distance in offsets between two positions of Spark's source for Kafka."""
    return sum(
        max(0, int(offset) - int(begin.get(topic, {}).get(partition, 0)))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    )
