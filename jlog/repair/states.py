"""The live state that each planned segment begins with, and what damage has taken of it."""

from __future__ import annotations

from collections.abc import Sequence

from jlog._core.segments.segment import SegmentFile
from jlog.repair.planned import PlannedSegment, State


def make_states(path: str, uuid: bytes, targets: Sequence[PlannedSegment]) -> None:
    """The state block of each target that has lost its own, from what comes before it; and what a gap has taken of the
    state, as far as the next state block that is whole tells it."""
    place: tuple[PlannedSegment, int] | None = None  # of the last gap since then: before this run of this target
    for i, target in enumerate(targets):
        before = targets[i - 1] if i else None
        hole = before is not None and before.end_sequence < target.first_sequence
        if before is not None and not hole and before.ends_in_gap:
            place = before, len(before.runs)
        if target.state is not None:
            target.state = _state_behind(path, uuid, target.behind or before, before)
            place = target, 0
        elif before is not None and place is not None and not hole:  # else the changes may have stood in the hole
            _put_back(path, uuid, before, target, *place)
        if target.state is None:
            place = None
        if len(target.runs) > 1:
            place = target, len(target.runs) - 1


def _state_behind(path: str, uuid: bytes, behind: PlannedSegment | None, before: PlannedSegment | None) -> State:
    if behind is None:
        return {}
    if behind is not before and behind.state is not None:  # one without a record, of which there is no target any more
        behind.state = state_after(path, uuid, before) if before is not None else {}
    return state_after(path, uuid, behind)


def _put_back(path: str, uuid: bytes, before: PlannedSegment, whole: PlannedSegment, target: PlannedSegment, run: int) -> None:
    """The changes that lie between what the blocks before `whole` make of the state and what its own block says."""
    found, wanted = state_after(path, uuid, before), _own_state(path, uuid, whole)
    changes = {key: wanted.get(key) for key in [*found, *wanted] if found.get(key) != wanted.get(key)}
    if changes and run == 0 and target.state is not None:
        target.state = _changed(target.state, changes)
    elif changes:
        target.changes[run] = changes


def _changed(state: State, changes: dict[bytes, bytes | None]) -> State:
    return {key: value for key, value in {**state, **changes}.items() if value is not None}


def _own_state(path: str, uuid: bytes, target: PlannedSegment) -> State:
    """What its state block says."""
    if target.state is not None:
        return target.state
    assert target.source is not None
    run = target.runs[0]
    file = SegmentFile(path, target.source.segment, uuid, check_header=False)
    try:
        block, _ = file.block_at(run.start)
        assert block is not None
        return file.apply_state(block, {})
    finally:
        file.close()


def state_after(path: str, uuid: bytes, target: PlannedSegment) -> State:
    """The state behind its last block."""
    state = _own_state(path, uuid, target)
    for i in range(len(target.runs) + 1):
        state = _changed(state, target.changes.get(i, {}))
        if i < len(target.runs):
            assert target.source is not None
            file = SegmentFile(path, target.source.segment, uuid, check_header=False)
            state = file.state_between(target.runs[i].start, target.runs[i].end, state)
            file.close()
    return state
