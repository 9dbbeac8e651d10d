"""The segments that are to hold what can still be read of a damaged journal. Nothing is changed here.

Sequences never change: numbers whose records are lost become a hole, which the header of the segment behind it states.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from jlog._core.format.dual_slot import Bounds
from jlog._core.read.rebuild import Body, Page
from jlog._core.recover.abandoned_buffer import is_longer
from jlog._core.recover.recovery import scan
from jlog._core.segments.segment import (
    BLOCK_HEADER_BYTES,
    SEGMENT_HEADER_BYTES,
    SegmentFile,
    list_segments,
    segment_name,
)
from jlog.care.verify import Progress
from jlog.errors import CorruptJournal
from jlog.repair.scan import Head, Run, Source, open_end, survey
from jlog.repair.target import State, Target
from jlog.storage.damage import Damage
from jlog.storage.meta import Meta

EMPTY_SEGMENT_BYTES = SEGMENT_HEADER_BYTES + BLOCK_HEADER_BYTES


@dataclass
class Plan:
    """`targets`: the journal's segments, oldest first. Where `sound`, they are those that are there; else the last one is
    empty, and writing goes on there, with `next_sequence`."""

    sources: list[Source]
    targets: list[Target]
    sound: bool
    first_sequence: int
    next_sequence: int
    clock_us: int
    damage: list[Damage] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)

    @property
    def records(self) -> int:
        runs = [run for target in self.targets for run in target.runs]
        bodies = [target.body for target in self.targets if target.body is not None]
        return sum(run.end_sequence - run.first_sequence for run in runs) + sum(b.records for b in bodies)

    @property
    def holes(self) -> list[tuple[int, int]]:
        ends = [(target.previous or (0, 0, 0))[2] for target in self.targets]
        firsts = [target.first_sequence for target in self.targets]
        return [(end, first) for end, first in zip(ends, firsts, strict=True) if end < first]

    @property
    def blocks(self) -> int:
        parts = [part for target in self.targets for part, _ in target.parts()]
        return sum(part.blocks if isinstance(part, Run) else 1 for part in parts)


def plan(path: str, meta: Meta, bounds: Bounds | None, page: Page | None, positions: list[int], progress: Progress) -> Plan:
    """`positions`: where subscribers and checkpoints stand, for the numbers before them have been given out."""
    if page is not None and bounds is not None and is_behind(page, bounds):
        page = page._replace(current=False, whole=False, direct=False)
    mark_segment = bounds.mark_segment if bounds is not None else 0
    sources = survey(path, meta.uuid, bounds, page, progress)
    if bounds is not None:
        first_kept = bounds.first_sequence
    else:  # positions hold back what follows them
        first_kept = min([source.segment for source in sources] + positions, default=0)
    targets = _assemble(sources, first_kept)
    _complete(path, meta, sources, targets)
    sound = bounds is not None and _is_sound(path, meta, bounds, page, sources, targets)
    bodies = page.bodies if page is not None else []
    if not sound:
        _add_bodies(path, meta.uuid, targets, bodies)
    known_end = _known_end(sources, targets, bounds, page, positions)
    found = Plan(
        sources,
        targets,
        sound,
        first_kept,
        next_sequence=max(known_end, _next_sequence(targets, bounds, page)),
        clock_us=max([s.clock_us for s in sources] + [b.clock_us for b in bodies], default=0),
    )
    if not sound:
        last = targets[-1]
        if last.end_sequence > last.first_sequence or last.first_sequence < found.next_sequence:
            targets.append(Target(found.next_sequence, state={}))
        for target in targets:
            target.doubtful = page is not None and page.sync_failed and target.first_sequence >= mark_segment
        _complete(path, meta, sources, targets)
        found.lost = _lost(sources, targets, known_end)
        found.damage = _damage(path, sources, _nameless(path, sources, bounds, page), found.lost)
        if page is not None and page.current and not page.whole:
            buffer = os.path.join(path, "precommit")
            found.damage.append(Damage(buffer, 0, "the open block cannot be read", page.first_sequence, 0))
    return found


def is_behind(page: Page, bounds: Bounds) -> bool:
    """Whether a repair that was killed has begun a segment behind what the page speaks of."""
    return bounds.mark_segment > page.segment


# --- Which segments there are to be ------------------------------------------------------------------------------


def _assemble(sources: list[Source], first_kept: int) -> list[Target]:
    targets: list[Target] = []
    for source in sources:
        for run in source.runs:
            last = targets[-1] if targets else None
            if last is not None and run.first_sequence < last.end_sequence:
                continue  # the same numbers stand before
            if last is not None and last.source is source and run.first_sequence == last.end_sequence:
                last.runs.append(run)
                continue
            begins = source.segment if run.has_state_block else run.first_sequence
            if last is not None and last.first_sequence == begins:
                targets.pop()  # it has no record; what it has of the state goes on into this one
            targets.append(Target(begins, source, [run], None if run.has_state_block else {}, last))
    if not targets or targets[0].first_sequence > first_kept:
        # A position may stand there: so the numbers from there on are a hole, and no segment is missing.
        own = [source for source in sources if source.segment == first_kept]
        targets.insert(0, Target(first_kept, own[0] if own else None, state={}))
    return targets


def _add_bodies(path: str, uuid: bytes, targets: list[Target], bodies: list[Body]) -> None:
    """What the pre-commit buffer holds and no segment does. A repair that was killed may have begun the one behind it."""
    for found in sorted(bodies, key=lambda body: body.first_sequence):
        at = sum(target.first_sequence <= found.first_sequence for target in targets)
        before = targets[at - 1] if at else None
        body = None if before is None else _rest_of(path, uuid, found, before)
        if before is None or body is None:
            continue
        if at < len(targets) and body.first_sequence + body.records > targets[at].first_sequence:
            continue
        if body.first_sequence == before.first_sequence:
            before.body = body
        else:
            targets.insert(at, Target(body.first_sequence, state={}, body=body))


def _rest_of(path: str, uuid: bytes, body: Body, before: Target) -> Body | None:
    """What of the body lies behind the target before it: all of it; or, where a block of its place has its first records, the
    others; else nothing."""
    if body.first_sequence >= before.end_sequence:
        return body
    run = before.runs[-1] if before.runs else None
    if run is None or before.body is not None or before.source is None or before.source.segment != body.segment:
        return None
    file = SegmentFile(path, body.segment, uuid, check_header=False)
    try:
        block, _ = file.block_at(body.offset)
    finally:
        file.close()
    image = body.base_time_us.to_bytes(8, "little", signed=True) + body.raw
    if block is None or block.first_sequence != body.first_sequence or not is_longer(image, block):
        return None
    if run.end != block.end or block.has_state:
        return None
    return body._replace(
        first_sequence=block.first_sequence + block.records,
        raw=body.raw[block.raw_bytes :],
        records=body.records - block.records,
    )


def _known_end(
    sources: list[Source],
    targets: list[Target],
    bounds: Bounds | None,
    page: Page | None,
    positions: list[int],
) -> int:
    """Every number before it was given out for certain."""
    known = [targets[-1].end_sequence, *positions, *(source.durable_end for source in sources)]
    if bounds is not None:
        known += [bounds.mark_sequence, 0 if bounds.closed is None else bounds.closed[2]]
    if page is not None and page.current:
        known.append(page.open_first_sequence)
    return max(known)


def _next_sequence(targets: list[Target], bounds: Bounds | None, page: Page | None) -> int:
    """No number from here on was ever given out, as far as anything tells it."""
    end = targets[-1].end_sequence
    if page is not None and page.whole:
        return max(end, page.first_sequence)
    if bounds is None:
        return end
    return max(end, bounds.lease_limit if bounds.closed is None else bounds.closed[2])


def _is_sound(
    path: str,
    meta: Meta,
    bounds: Bounds,
    page: Page | None,
    sources: list[Source],
    targets: list[Target],
) -> bool:
    """Whether every segment stands as it is to be, and who opens the journal finds its end where the last one's is. What
    a power loss has left behind that end is then no damage: it was promised to nobody."""
    if not all(target.stands for target in targets) or any(source.gaps for source in sources[:-1]):
        return False
    last = targets[-1]
    if page is not None and page.current:
        if last.first_sequence != page.segment:
            return False
        file = SegmentFile(path, page.segment, meta.uuid)
        return page.whole and last.end[1:] == open_end(file, page)
    try:
        end = scan(path, meta.uuid, bounds)
    except CorruptJournal:
        return False
    place = end.segment, end.offset, end.sequence
    elsewhere = page is not None and any(
        body.first_sequence >= last.end_sequence and (body.segment, body.offset, body.first_sequence) != place
        for body in page.bodies
    )
    as_closed = bounds.closed is None or bounds.closed == place
    return not end.damage and place == last.end and as_closed and not elsewhere


# --- What they begin with ----------------------------------------------------------------------------------------


def _complete(path: str, meta: Meta, sources: list[Source], targets: list[Target]) -> None:
    """State, epoch, and what each segment says of the one before. Done again when targets have been added."""
    _make_states(path, meta.uuid, targets)
    heads = {source.segment: source.head for source in sources if source.head is not None}
    for i, target in enumerate(targets):
        if i:
            target.previous = targets[i - 1].end
        elif target.first_sequence in heads:
            target.previous = heads[target.first_sequence].previous
        else:  # what was before it was removed, or never was
            first = target.first_sequence
            target.previous = (0, EMPTY_SEGMENT_BYTES, first) if first else None
        target.epoch = _epoch_of(meta, heads, target)


def _epoch_of(meta: Meta, heads: dict[int, Head], target: Target) -> int:
    """Its own, or the last one that had begun by then and was not over."""
    numbers = [epoch for epoch, _ in meta.epochs]
    own = heads.get(target.first_sequence if target.source is None else target.source.segment)
    if own is not None and own.epoch in numbers:
        return own.epoch
    later = [head.epoch for name, head in heads.items() if name > target.first_sequence]
    limit = min((numbers.index(epoch) for epoch in later if epoch in numbers), default=len(numbers) - 1)
    begun = [i for i, (_, first) in enumerate(meta.epochs) if first <= target.first_sequence and i <= limit]
    return numbers[max(begun, default=0)]


def _make_states(path: str, uuid: bytes, targets: list[Target]) -> None:
    """The state block of each target that has lost its own, from what comes before it; and what a gap has taken of the
    state, as far as the next state block that is whole tells it."""
    place: tuple[Target, int] | None = None  # of the last gap since then: before this run of this target
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


def _state_behind(path: str, uuid: bytes, behind: Target | None, before: Target | None) -> State:
    if behind is None:
        return {}
    if behind is not before and behind.state is not None:  # one without a record, of which there is no target any more
        behind.state = state_after(path, uuid, before) if before is not None else {}
    return state_after(path, uuid, behind)


def _put_back(path: str, uuid: bytes, before: Target, whole: Target, target: Target, run: int) -> None:
    """The changes that lie between what the blocks before `whole` make of the state and what its own block says."""
    found, wanted = state_after(path, uuid, before), _own_state(path, uuid, whole)
    changes = {key: wanted.get(key) for key in [*found, *wanted] if found.get(key) != wanted.get(key)}
    if changes and run == 0 and target.state is not None:
        target.state = _changed(target.state, changes)
    elif changes:
        target.changes[run] = changes


def _changed(state: State, changes: dict[bytes, bytes | None]) -> State:
    return {key: value for key, value in {**state, **changes}.items() if value is not None}


def _own_state(path: str, uuid: bytes, target: Target) -> State:
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


def state_after(path: str, uuid: bytes, target: Target) -> State:
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


# --- What is lost ------------------------------------------------------------------------------------------------


def _lost(sources: list[Source], targets: list[Target], known_end: int) -> list[tuple[int, int]]:
    """The numbers that had been given out and whose records are nowhere any more."""
    heads = [(source.head.previous, source.segment) for source in sources if source.head is not None]
    holes = [(previous[2], segment) for previous, segment in heads if previous is not None]
    found = []
    for i, target in enumerate(targets[1:], 1):
        end = target.first_sequence if i < len(targets) - 1 else min(target.first_sequence, known_end)
        found += _without(targets[i - 1].end_sequence, end, holes)
    return found


def _without(first: int, end: int, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What the parts leave of the numbers from `first` to `end`."""
    found = []
    for part_first, part_end in sorted(parts):
        if first < part_end and part_first < end:
            found.append((first, part_first))
            first = part_end
    return [(a, b) for a, b in [*found, (first, end)] if a < b]


def _nameless(path: str, sources: list[Source], bounds: Bounds | None, page: Page | None) -> dict[int, str]:
    """The segments of which nothing is left, and why: the files that others speak of, and those that nothing can be read
    of."""
    first_kept = 0 if bounds is None else bounds.first_sequence
    wanted = [source.head.previous[0] for source in sources if source.head is not None and source.head.previous]
    if bounds is not None:
        wanted += [bounds.mark_segment] + ([bounds.closed[0]] if bounds.closed is not None else [])
    if page is not None and page.current:
        wanted.append(page.segment)
    there = [name for name in list_segments(path) if name <= max([*wanted, *(s.segment for s in sources), 0])]
    left = {source.segment for source in sources}
    found = dict.fromkeys(wanted, "the segment file is missing")
    found |= dict.fromkeys(there, "nothing of the segment can be read")
    return {name: reason for name, reason in found.items() if name not in left and name >= first_kept}


def _damage(path: str, sources: list[Source], nameless: dict[int, str], lost: list[tuple[int, int]]) -> list[Damage]:
    """Each damaged place; what is lost and lies in none of them is a missing file's."""
    found, explained = [], []
    for source in sources:
        if source.head is None:
            found.append(Damage(source.path, 0, "the segment's header is damaged", source.segment, 0))
        for gap in source.gaps:
            found.append(gap.damage(source.path))
            explained.append((gap.first_sequence, gap.next_sequence))
    unexplained = [part for first, end in lost for part in _without(first, end, explained)]
    for name, reason in sorted(nameless.items()):
        parts = [(first, end) for first, end in unexplained if first <= name < end]
        unexplained = [part for part in unexplained if part not in parts]
        first, end = parts[0] if parts else (name, name)
        found.append(Damage(os.path.join(path, segment_name(name)), 0, reason, first, end - first))
    for first, end in unexplained:
        found.append(Damage(path, 0, "no file holds these records any more", first, end - first))
    return sorted(found, key=lambda damage: (damage.first_sequence, damage.path, damage.offset))
