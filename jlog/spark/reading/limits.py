"""Limits the records of one trigger."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from jlog.spark.reading.options import ReadOptions
from jlog.spark.reading.plan import Range, RangePiece, pieces_of


class TriggerLimits:
    """Says how much of what is there a trigger takes."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._turns: dict[str, int] = {}  # the last batch in which each journal had a share
        self._batches = 0
        self._last_trigger = float("-inf")

    def is_too_little(self, records: int) -> bool:
        """Says whether to wait for more records: there are fewer than minRecordsPerTrigger, and maxTriggerDelay is not over. As
        in Spark's source for Kafka, the very first batch never waits."""
        now = time.monotonic()
        waited = now - self._last_trigger >= self._options.max_trigger_delay
        if not waited and records < (self._options.min_records_per_trigger or 0):
            return True
        self._last_trigger = now
        return False

    def ends_within(self, backlogs: dict[str, Range]) -> dict[str, int]:
        """Returns where a batch ends in each journal."""
        taken = {name: backlog.end - backlog.start for name, backlog in backlogs.items()}
        if self._options.max_records_per_trigger is not None:
            taken = shares(self._options.max_records_per_trigger, taken, self._turns)
            self._batches += 1
            self._turns.update({name: self._batches for name, count in taken.items() if count})
        if self._options.max_bytes_per_trigger is not None:
            pieces = {name: _first(backlogs[name], count) for name, count in taken.items() if count}
            sizes = {name: round(sum(piece.size_bytes for piece in found)) for name, found in pieces.items()}
            allowed = shares(self._options.max_bytes_per_trigger, sizes)
            for name, found in pieces.items():
                taken[name] = min(taken[name], records_within(allowed[name], found))
        return {name: backlog.start + taken[name] for name, backlog in backlogs.items()}


def _first(backlog: Range, count: int) -> list[RangePiece]:
    end = backlog.start + count
    return list(pieces_of(Range(backlog.source, backlog.start, end), backlog.source.segments_between(backlog.start, end)))


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


def records_within(size_bytes: float, pieces: Iterable[RangePiece]) -> int:
    """Returns how many records, from the first on, have about so many bytes; at least one."""
    records, left = 0, size_bytes
    for piece in pieces:
        count = piece.range.end - piece.range.start
        if piece.size_bytes > left:
            return max(1, records + int(count * left / piece.size_bytes))
        records, left = records + count, left - piece.size_bytes
    return records
