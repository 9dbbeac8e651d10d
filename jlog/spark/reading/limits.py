"""Limits the records of one trigger. Sequences of gaps have no record, and count nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from jlog.spark.reading.options import ReadOptions
from jlog.spark.reading.plan import Range, RangePiece, pieces_of
from jlog.storage.gaps import count_assigned

Gaps = Iterable[tuple[int, int]]  # first sequence and next sequence of each


class TriggerLimits:
    """Decides how much of a backlog a trigger takes."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._turns: dict[str, int] = {}  # the last batch in which each journal had a share
        self._batches = 0
        self._last_trigger = float("-inf")

    def is_too_little(self, backlogs: Mapping[str, Range]) -> bool:
        """Says whether to wait for more records: there are fewer than minRecordsPerTrigger, and maxTriggerDelay is not over. As
        in Spark's source for Kafka, the very first batch never waits."""
        now = time.monotonic()
        least = self._options.min_records_per_trigger or 0
        waited = now - self._last_trigger >= self._options.max_trigger_delay
        if not waited and (_sequences_in(backlogs) < least or sum(_records_in(backlogs, _gaps_in(backlogs)).values()) < least):
            return True
        self._last_trigger = now
        return False

    def ends_within(self, backlogs: Mapping[str, Range]) -> dict[str, int]:
        """Returns where a batch ends in each journal."""
        ends = {name: backlog.end for name, backlog in backlogs.items()}
        most = self._options.max_records_per_trigger
        if most is not None and _sequences_in(backlogs) > most:
            gaps = _gaps_in(backlogs)
            records = _records_in(backlogs, gaps)
            taken = shares(most, records, self._turns)
            self._batches += 1
            self._turns.update({name: self._batches for name, count in taken.items() if count})
            for name, backlog in backlogs.items():
                if taken[name] < records[name]:
                    ends[name] = sequence_after(backlog.start, taken[name], gaps[name])
        if self._options.max_bytes_per_trigger is not None:
            pieces = {name: list(pieces_of(replace(backlogs[name], end=end))) for name, end in ends.items()}
            sizes = {name: round(sum(piece.size_bytes for piece in found)) for name, found in pieces.items()}
            allowed = shares(self._options.max_bytes_per_trigger, sizes)
            ends.update({name: end_within(allowed[name], found) for name, found in pieces.items() if found})
        return ends


def _sequences_in(backlogs: Mapping[str, Range]) -> int:
    return sum(backlog.end - backlog.start for backlog in backlogs.values())


def _gaps_in(backlogs: Mapping[str, Range]) -> dict[str, list[tuple[int, int]]]:
    return {name: sorted(one.source.gaps(one.start, one.end)) if one.start < one.end else [] for name, one in backlogs.items()}


def _records_in(backlogs: Mapping[str, Range], gaps: Mapping[str, Gaps]) -> dict[str, int]:
    return {name: count_assigned(gaps[name], backlog.start, backlog.end) for name, backlog in backlogs.items()}


def sequence_after(start: int, records: int, gaps: Gaps) -> int:
    """Returns the end of so many records from this sequence on. gaps: in ascending order."""
    for first, following in gaps:
        if first - start >= records:
            break
        records -= max(0, first - start)
        start = max(start, following)
    return start + records


def shares(most: int, backlogs: dict[str, int], turns: Mapping[str, int] | None = None) -> dict[str, int]:
    """Shares `most` among the backlogs; all of them where there are fewer. Each backlog gets one, and the rest goes in
    proportion to their sizes.

    turns: the batch in which each name had its last share. Where `most` is too little for each, those that have waited longest
        come first.
    """
    if sum(backlogs.values()) <= most:
        return dict(backlogs)
    known = turns or {}
    waiting = sorted((name for name, backlog in backlogs.items() if backlog), key=lambda name: (known.get(name, -1), name))
    found = {**dict.fromkeys(backlogs, 0), **dict.fromkeys(waiting[:most], 1)}
    left = most - sum(found.values())
    rests = {name: backlogs[name] - found[name] for name in waiting}
    total = sum(rests.values())
    more = {name: left * rest // total for name, rest in rests.items()}
    left -= sum(more.values())
    for name in sorted(rests, key=lambda name: (-rests[name], name)):
        one = min(left, 1, rests[name] - more[name])
        found[name] += more[name] + one
        left -= one
    return found


def end_within(size_bytes: float, pieces: Iterable[RangePiece]) -> int:
    """Returns the end of the records, from the first on, that have about so many bytes; of one at least."""
    end = least = 0
    for piece in pieces:
        first = piece.range.start + piece.before
        least = least or first + 1
        if piece.size_bytes > size_bytes:
            return max(least, first + int(piece.records * size_bytes / piece.size_bytes))
        end, size_bytes = piece.range.end, size_bytes - piece.size_bytes
    return end
