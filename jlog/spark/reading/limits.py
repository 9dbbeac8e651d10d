"""Limits the records of one trigger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jlog.spark.reading.plan import RangePiece


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
