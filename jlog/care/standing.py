"""Where subscribers and checkpoints stand, and what retention keeps for each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from jlog.care.retention import held_bytes, is_expired
from jlog.options import retention_of
from jlog.positions import position_files, work_files
from jlog.positions.position_files import SUBSCRIBER, Position
from jlog.storage.gaps import Gaps
from jlog.storage.meta import Meta, read_meta
from jlog.storage.segments import segments_now
from jlog.system.clock import now_us


def standing_positions(
    path: str, meta: Meta, kind: str, gaps: Gaps, first: int, end: int, only: Collection[str] | None = None
) -> dict[str, Position]:
    """Returns the subscribers or the checkpoints by their names. first, end: of the journal's records. only: the names to look
    at."""
    retention = retention_of(read_meta(path).options)
    now = now_us()
    found = {}
    for name, at in position_files.standing(path, meta, kind, now=True, only=only):
        busy = kind == SUBSCRIBER and position_files.is_held(path, meta, name)
        sequence = first if at is None else at.sequence
        lag = gaps.records_between(max(first, sequence), end)
        if at is None:
            found[name] = Position(sequence, lag, busy, damaged=True)
            continue
        expired = kind == SUBSCRIBER and is_expired(path, meta, at, retention)
        idle = max(0, now - at.moved_us) / 1e6
        work = work_files.shared_work(path, meta, name, sequence, lag) if kind == SUBSCRIBER else None
        found[name] = Position(sequence, lag, busy, at.moved_us, idle_seconds=idle, expired=expired, work=work)
    return _with_held_bytes(path, meta, found)


def _with_held_bytes(path: str, meta: Meta, found: dict[str, Position]) -> dict[str, Position]:
    lowest = min((at.sequence for at in found.values()), default=None)
    if lowest is None:
        return found
    held = held_bytes(segments_now(path, meta, lowest), [at.sequence for at in found.values()])
    return {
        name: at if at.expired else replace(at, held_bytes=size) for (name, at), size in zip(found.items(), held, strict=True)
    }
