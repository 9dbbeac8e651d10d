"""Limits the records of one trigger."""

from __future__ import annotations

from collections.abc import Iterable

from jlog.spark.reading.plan import RangePiece


def shares(most: int, backlogs: dict[str, int]) -> dict[str, int]:
    """Shares `most` among the backlogs, in proportion to their sizes; all of them where there are fewer. Where there is too
    little for each, the largest come first."""
    total = sum(backlogs.values())
    if total <= most:
        return dict(backlogs)
    found = {name: most * backlog // total for name, backlog in backlogs.items()}
    left = most - sum(found.values())
    for name in sorted(backlogs, key=lambda name: (-backlogs[name], name)):
        more = min(left, 1, backlogs[name] - found[name])
        found[name] += more
        left -= more
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
