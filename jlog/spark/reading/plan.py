"""Cuts ranges of sequences into partitions, by the sizes of segments and without reading a record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pyspark.sql.datasource import InputPartition

from jlog.archive import ArchivedSegment
from jlog.spark.reading.options import ReadOptions
from jlog.spark.reading.sources import SparkSource
from jlog.storage.segments import Segment


@dataclass(frozen=True)
class Range:
    """The records of a journal from `start` to before `end`. `gaps`: the sequences that have no record, where no record need be
    read to know the others; None where they have to be read."""

    source: SparkSource
    start: int
    end: int
    gaps: tuple[tuple[int, int], ...] | None = None

    def segments(self) -> Sequence[Segment | ArchivedSegment]:
        """Lists the segments that have records of the range, oldest first."""
        return self.source.segments_between(self.start, self.end) if self.start < self.end else []

    def size(self) -> tuple[int, int]:
        """Counts the records that are still there, and their share of the segments' bytes."""
        records, size_bytes = 0, 0.0
        for segment in self.segments():
            count = min(self.end, segment.end_sequence) - max(self.start, segment.first_sequence)
            if count > 0:
                records += count
                size_bytes += segment.size_bytes * count / segment.records
        return records, round(size_bytes)


class JournalPartition(InputPartition):
    """The ranges that one task reads, in order."""

    def __init__(self, ranges: list[Range]) -> None:
        super().__init__(None)
        self.ranges = ranges


@dataclass(frozen=True)
class RangePiece:
    """A range with its share of the segment's bytes. `is_remote`: the segment is read over the network. `before`: the number of
    sequences before the segment's, which no segment holds. A gap after a power loss has millions of them, and no record."""

    range: Range
    size_bytes: float
    is_remote: bool = False
    before: int = 0

    @property
    def records(self) -> int:
        return self.range.end - self.range.start - self.before


def pieces_of(wanted: Range, segments: Iterable[Segment | ArchivedSegment] | None = None) -> Iterator[RangePiece]:
    """Cuts the range at its segments, which may be given, and leaves nothing out. Sequences that no segment holds go with the
    piece after them, so that reading finds out whether they are missing or a gap."""
    at = wanted.start
    for segment in wanted.segments() if segments is None else segments:
        end = min(wanted.end, segment.end_sequence)
        records = end - max(at, segment.first_sequence)
        if records > 0:
            size_bytes = segment.size_bytes * records / segment.records
            is_remote = segment.archived and not segment.path.startswith("file:")
            before = max(0, segment.first_sequence - at)
            yield RangePiece(replace(wanted, start=at, end=end), size_bytes, is_remote, before)
            at = end
    if at < wanted.end:
        yield RangePiece(replace(wanted, start=at), 0)


def without_reading(wanted: Range, segments: Iterable[Segment | ArchivedSegment]) -> Range:
    """Returns the range with its gaps, if the segments and the gaps between them account for each of its sequences: within a
    segment there is none without a record. Otherwise returns it as it is, so that reading says what is missing."""
    gaps: list[tuple[int, int]] = []
    at = wanted.start
    for segment in segments:
        if at < segment.first_sequence:
            gaps.append((at, segment.first_sequence))
        at = max(at, segment.end_sequence)
    if at < wanted.end:
        return wanted
    known = wanted.source.gaps(wanted.start, wanted.end) if gaps else []
    if all(any(first <= start and end <= last for first, last in known) for start, end in gaps):
        return replace(wanted, gaps=tuple(gaps))
    return wanted


def partitions_of(pieces: list[RangePiece], options: ReadOptions) -> list[JournalPartition]:
    """Puts pieces into partitions of about equal size, none larger than the options allow: many small segments in one, or a
    large one in several. A remote segment is cut only if it is larger than a partition may be."""
    total = sum(piece.size_bytes for piece in pieces)
    count = max(1, options.min_partitions, math.ceil(total / options.partition_bytes))
    by_bytes = total > 0
    quota = (total if by_bytes else sum(piece.records for piece in pieces)) / count
    packing = _Packing(quota, options.max_records_per_partition or 1 << 63)
    for piece in pieces:
        size = piece.size_bytes if by_bytes else piece.records
        if not piece.is_remote:
            packing.fill(piece, size)
            continue
        parts = max(1, math.ceil(piece.size_bytes / options.partition_bytes))
        if len(pieces) < options.min_partitions:
            parts = max(parts, math.ceil(options.min_partitions / len(pieces)))
        if parts > 1 or piece.records > packing.most:
            packing.close()
            packing.cut(piece, size, parts)
        else:
            packing.add_whole(piece, size, options.partition_bytes if options.min_partitions == 1 else quota)
    packing.close()
    return packing.found


class _Packing:
    """Fills one partition after the other."""

    def __init__(self, quota: float, most: int) -> None:
        self.most = most
        self.found: list[JournalPartition] = []
        self._quota = quota
        self._ranges: list[Range] = []
        self._size = 0.0
        self._records = 0

    def fill(self, piece: RangePiece, size: float) -> None:
        """Adds the piece, cut wherever a partition is full."""
        begin, at, end = piece.range.start, piece.range.start + piece.before, piece.range.end
        each = size / piece.records
        while at < end:
            wanted = end - at if each == 0 else max(1, round((self._quota - self._size) / each))
            taken = min(end - at, self.most - self._records, wanted)
            self._add(replace(piece.range, start=begin, end=at + taken), taken * each, taken)
            begin = at = at + taken
            if self._quota - self._size < each / 2 or self._records == self.most:
                self.close()

    def add_whole(self, piece: RangePiece, size: float, quota: float) -> None:
        """Adds the piece to the partition, or to the next one where it would make this one too large."""
        if self._size + size > quota or self._records + piece.records > self.most:
            self.close()
        self._add(piece.range, size, piece.records)

    def cut(self, piece: RangePiece, size: float, parts: int) -> None:
        """Cuts the piece alone into partitions of about equal size."""
        parts = max(parts, math.ceil(piece.records / self.most))
        start, end = piece.range.start + piece.before, piece.range.end
        borders = [piece.range.start, *(start + piece.records * part // parts for part in range(1, parts)), end]
        for at, following in pairwise(borders):
            if at < following:
                self._add(replace(piece.range, start=at, end=following), size / parts, following - max(at, start))
                self.close()

    def _add(self, following: Range, size: float, records: int) -> None:
        """Appends a range, or joins it with the last one where they are of the same journal."""
        self._size += size
        self._records += records
        if self._ranges and self._ranges[-1].source == following.source:
            following = replace(following, start=self._ranges.pop().start)
        self._ranges.append(following)

    def close(self) -> None:
        """Ends the partition."""
        if self._ranges:
            planned = [replace(one, source=one.source.for_task(one.start, one.end)) for one in self._ranges]
            self.found.append(JournalPartition(planned))
        self._ranges, self._size, self._records = [], 0.0, 0
