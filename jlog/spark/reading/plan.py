"""Cuts ranges of sequences into partitions, by the sizes of segments and without reading a record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from jlog.archive import ArchivedSegment
from jlog.spark.reading.options import ReadOptions
from jlog.spark.reading.sources import Source
from jlog.storage.segments import Segment


@dataclass(frozen=True)
class Range:
    """The records of a journal from `start` to before `end`."""

    source: Source
    start: int
    end: int


class JournalPartition(InputPartition):
    """The ranges that one task reads, in order."""

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__(None)
        self.ranges = ranges


@dataclass(frozen=True)
class RangePiece:
    """A range with its share of the segment's bytes."""

    range: Range
    size_bytes: float


def pieces_of(wanted: Range, segments: Iterable[Segment | ArchivedSegment]) -> Iterator[RangePiece]:
    """Cuts the range at the segments, and leaves nothing out. Sequences that no segment holds go with the piece behind them, so
    that reading finds out whether they are missing or a gap."""
    at = wanted.start
    for segment in segments:
        end = min(wanted.end, segment.end_sequence)
        records = end - max(at, segment.first_sequence)
        if records > 0:
            yield RangePiece(Range(wanted.source, at, end), segment.size_bytes * records / segment.records)
            at = end
    if at < wanted.end:
        yield RangePiece(Range(wanted.source, at, wanted.end), 0)


def partitions_of(pieces: list[RangePiece], options: ReadOptions) -> list[JournalPartition]:
    """Puts pieces into partitions of about equal size, none larger than the options allow: many small segments in one, or a
    large one in several."""
    total = sum(piece.size_bytes for piece in pieces)
    count = max(1, options.min_partitions, math.ceil(total / options.partition_bytes))
    by_bytes = total > 0
    quota = (total if by_bytes else sum(_records(piece) for piece in pieces)) / count
    most = options.max_records_per_partition or 1 << 63
    found: list[JournalPartition] = []
    current: list[Range] = []
    left, room = quota, most
    for piece in pieces:
        at, end = piece.range.start, piece.range.end
        each = (piece.size_bytes if by_bytes else _records(piece)) / _records(piece)
        while at < end:
            wanted = end - at if each == 0 else max(1, round(left / each))
            taken = min(end - at, room, wanted)
            _extend(current, Range(piece.range.source, at, at + taken))
            at, left, room = at + taken, left - taken * each, room - taken
            if left < each / 2 or room == 0:
                found.append(JournalPartition(current))
                current, left, room = [], quota, most
    return [*found, JournalPartition(current)] if current else found


def _records(piece: RangePiece) -> int:
    return piece.range.end - piece.range.start


def _extend(ranges: list[Range], following: Range) -> None:
    """Appends a range, or joins it with the last one where they are of the same journal."""
    if ranges and ranges[-1].source == following.source:
        following = Range(following.source, ranges.pop().start, following.end)
    ranges.append(following)
