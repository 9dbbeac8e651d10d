"""Where subscribers and checkpoints stand, and what retention keeps for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from itertools import accumulate
from typing import Any

from jlog.care.retention import is_expired
from jlog.errors import CorruptJournal
from jlog.options import retention_of
from jlog.positions import position_files, work_files
from jlog.positions.names import is_name
from jlog.positions.position_files import SUBSCRIBER, Position, PositionFile, SharedWork
from jlog.positions.work_files import WorkOptions
from jlog.storage.gaps import count_assigned
from jlog.storage.meta import Meta, read_meta
from jlog.storage.segments import Segment
from jlog.system.clock import now_us


def standing_positions(
    path: str,
    meta: Meta,
    kind: str,
    gaps: Callable[[], list[tuple[int, int]]],
    first: int,
    end: int,
    only: Collection[str] | None = None,
) -> dict[str, Position]:
    """Returns the subscribers or the checkpoints by their names, without what retention keeps for each. gaps: is asked for the
    journal's gaps once there is a position. first, end: of the journal's records. only: the names to look at."""
    retention = retention_of(read_meta(path).options)
    found = {}
    for name in position_files.names(path, kind) if only is None else sorted(filter(is_name, only)):
        busy, at, window = False, None, None
        try:
            with suppress(CorruptJournal), closing(PositionFile(path, meta, kind, name)) as file:
                busy, window = kind == SUBSCRIBER and file.lock_file.is_held(0), file.window()
                at = file.read_now()
        except LookupError:
            continue  # removed in the meantime
        sequence = first if at is None else at.sequence
        lag = count_assigned(gaps(), max(first, sequence), end)
        found[name] = Position(
            sequence,
            lag,
            busy,
            moved_us=0 if at is None else at.moved_us,
            damaged=at is None,
            idle_seconds=0.0 if at is None else max(0, now_us() - at.moved_us) / 1e6,
            expired=kind == SUBSCRIBER and at is not None and is_expired(path, meta, at, retention),
            work=None if window is None else _work(window, sequence, lag, work_files.read_options(path, name)),
        )
    return found


def _work(window: dict[str, Any], oldest: int, lag: int, options: WorkOptions) -> SharedWork:
    """Returns how the records of a shared subscriber stand."""
    workers = window["workers"]
    done = max(0, window["next"] - oldest - window["used"])
    return SharedWork(
        taken=sum(worker["taken"] for worker in workers),
        delayed=window["delayed"],
        done=done,
        unfinished=max(0, lag - done),
        workers=workers,
        takes=window["takes"],
        finishes=window["finishes"],
        failures=window["failures"],
        rejections=window["rejections"],
        deaths=window["deaths"],
        full=window["used"] >= window["limit"],
        options=options,
    )


def shared_fields(found: Mapping[str, Position], look: Callable[[], Any]) -> dict[str, dict[str, Any]]:
    """Returns what --json shows of the subscribers that workers share, beside their position. look: Journal.stats()."""
    shared = {name: at.work.fields() for name, at in found.items() if at.work}
    now = look().subscribers if shared else {}
    for name, fields in shared.items():
        fields["oldest_unread_seconds"] = now[name].oldest_unread_seconds if name in now else None
    return shared


def with_held_bytes(found: dict[str, Position], segments: Iterable[Segment]) -> dict[str, Position]:
    """Returns the positions with the content of those of the segments that are sealed and that a position has not passed. An
    expired subscriber holds nothing back."""
    sealed = [segment for segment in segments if segment.sealed]
    ends, passed = [segment.end_sequence for segment in sealed], [0, *accumulate(segment.size_bytes for segment in sealed)]
    return {
        name: at if at.expired else replace(at, held_bytes=passed[-1] - passed[bisect_right(ends, at.sequence)])
        for name, at in found.items()
    }
