"""Gaps: sequences that have no record and never will. After a power loss numbering goes on after every sequence that may have
been given out."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from jlog._core.format.constants import NONE
from jlog._core.segments.segment import SegmentFile, list_segments
from jlog.errors import CorruptJournal


def count_assigned(gaps: Iterable[tuple[int, int]], start: int, end: int) -> int:
    """Returns how many sequences from `start` to before `end` lie in no gap."""
    if end <= start:
        return 0
    return end - start - sum(max(0, min(last, end) - max(first, start)) for first, last in gaps)


class Gaps:
    """The gaps that the segments' headers state. A header never changes, so each is read once."""

    def __init__(self, path: str, uuid: bytes) -> None:
        self.path = path
        self._uuid = uuid
        self._known: dict[int, int] = {}  # by segment: the end of the one before it

    def all(self) -> list[tuple[int, int]]:
        """Returns first and next sequence of each gap, ascending. A gap that reaches into the segment before it is damage,
        which other checks report; here it begins at that segment."""
        return self.between(0, 1 << 63)

    def between(self, start: int, end: int) -> list[tuple[int, int]]:
        """Returns those gaps that reach into this range. Only headers of segments in or beside it are read."""
        segments = list_segments(self.path)
        first, last = bisect_right(segments, start), bisect_left(segments, end) + 1
        found = []
        previous = segments[first - 1] if first else 0
        for segment in segments[first:last]:
            before = max(self._end_before(segment), previous)
            if before < min(segment, end):
                found.append((before, segment))
            previous = segment
        return found

    def _end_before(self, segment: int) -> int:
        if segment not in self._known:
            try:
                file = SegmentFile(self.path, segment, self._uuid)
            except (CorruptJournal, FileNotFoundError):
                return segment  # damaged or just removed, which others report
            first = file.previous_segment == NONE and segment == 0
            self._known[segment] = segment if first else file.previous_end_sequence
            file.close()
        return self._known[segment]

    def records_between(self, start: int, end: int) -> int:
        """Returns how many sequences from `start` to before `end` have a record."""
        return count_assigned(self.all(), start, end)

    def step_back(self, end: int, records: int, first_retained: int) -> int:
        """Returns the sequence so many records before `end`, but not beyond the gap before it."""
        for first, last in reversed(self.all()):
            if first < end <= last:
                end = first
        run = max([last for _, last in self.all() if last < end], default=0)
        return max(end - records, run, min(first_retained, end))
