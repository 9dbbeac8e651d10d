"""The live state with which each segment of a repaired journal begins."""

from __future__ import annotations

from contextlib import closing

from jlog._core.segments.segment import SegmentFile
from jlog.repair.draft import SegmentDraft, State, StateChanges
from jlog.repair.findings import BlockRun


class StateReader:
    """Reads the state that whole blocks hold, by their place."""

    def __init__(self, path: str, uuid: bytes) -> None:
        self._path = path
        self._uuid = uuid

    def of_block(self, segment: int, offset: int) -> State:
        """Returns the state that a whole STATE block holds."""
        with closing(SegmentFile(self._path, segment, self._uuid, check_header=False)) as file:
            block, _ = file.block_at(offset)
            assert block is not None
            return file.apply_state(block, {})

    def state_after_run(self, segment: int, run: BlockRun, state: State) -> State:
        """Returns what the blocks of a run make of `state`."""
        with closing(SegmentFile(self._path, segment, self._uuid, check_header=False)) as file:
            return file.state_between(run.start, run.end, state)


def make_states(states: StateReader, drafts: list[SegmentDraft]) -> None:
    """Gives each draft that has lost its state block the state of the blocks before it. Puts back the changes that a gap has
    taken, as far as the next whole state block tells them."""
    place: tuple[SegmentDraft, int] | None = None  # of the last gap since then: before this run of this draft
    for i, draft in enumerate(drafts):
        before = drafts[i - 1] if i else None
        jumps = before is not None and before.end_sequence < draft.first_sequence
        if before is not None and not jumps and before.ends_in_damage:
            place = before, len(before.runs)
        if draft.state is not None:
            draft.state = _state_of(states, draft.follows or before, before)
            place = draft, 0
        elif before is not None and place is not None and not jumps:  # else the changes may have stood in the gap
            _put_back(states, before, draft, *place)
        if draft.state is None:
            place = None
        if len(draft.runs) > 1:
            place = draft, len(draft.runs) - 1


def _state_of(states: StateReader, follows: SegmentDraft | None, before: SegmentDraft | None) -> State:
    if follows is None:
        return {}
    if follows is not before and follows.state is not None:  # one without a record, which is not a draft any more
        follows.state = _state_after(states, before) if before is not None else {}
    return _state_after(states, follows)


def _put_back(states: StateReader, before: SegmentDraft, whole: SegmentDraft, draft: SegmentDraft, run: int) -> None:
    """Puts the changes back that lie between the state of the blocks before `whole` and its own state block."""
    found, wanted = _state_after(states, before), _state_at_start(states, whole)
    changes = {key: wanted.get(key) for key in [*found, *wanted] if found.get(key) != wanted.get(key)}
    if changes and run == 0 and draft.state is not None:
        draft.state = _changed(draft.state, changes)
    elif changes:
        draft.changes[run] = changes


def _changed(state: State, changes: StateChanges) -> State:
    return {key: value for key, value in {**state, **changes}.items() if value is not None}


def _state_at_start(states: StateReader, draft: SegmentDraft) -> State:
    """Returns what the state block says."""
    if draft.state is not None:
        return draft.state
    assert draft.source is not None
    return states.of_block(draft.source.segment, draft.runs[0].start)


def _state_after(states: StateReader, draft: SegmentDraft) -> State:
    """Returns the state after the last block."""
    state = _state_at_start(states, draft)
    for i in range(len(draft.runs) + 1):
        state = _changed(state, draft.changes.get(i, {}))
        if i < len(draft.runs):
            assert draft.source is not None
            state = states.state_after_run(draft.source.segment, draft.runs[i], state)
    return state
