"""Plans a repair: the segments that are to hold what can still be read of a damaged journal. Nothing is changed here.

Sequences never change: where records are lost, a gap stays, which the header of the segment behind it states.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from jlog._core.format.constants import BLOCK_HEADER_BYTES, SEGMENT_HEADER_BYTES
from jlog._core.read.rebuild import Body
from jlog._core.recover.abandoned_buffer import is_longer
from jlog._core.recover.recovery import scan as scan_after_power_loss
from jlog._core.segments.segment import SegmentFile
from jlog.errors import CorruptJournal
from jlog.repair.losses import damaged_places, lost_sequences
from jlog.repair.planned import PlannedSegment
from jlog.repair.scan import BlockRun, Findings, SegmentHead, SegmentRemains, open_end
from jlog.repair.states import make_states
from jlog.storage.damage import Damage
from jlog.storage.meta import Meta

EMPTY_SEGMENT_BYTES = SEGMENT_HEADER_BYTES + BLOCK_HEADER_BYTES


@dataclass(frozen=True)
class RepairPlan:
    """What a repair is to do. `segments`: the journal's segments as they are to be, oldest first. Where `sound`, they are those
    that are there; else the last one is empty, and writing goes on there, with `next_sequence`."""

    findings: Findings
    segments: tuple[PlannedSegment, ...]
    sound: bool
    first_sequence: int
    next_sequence: int
    clock_us: int  # no block of the journal was written later
    meta: Meta  # as it is to be
    begins_epoch: bool  # `meta` has a new epoch
    damage: tuple[Damage, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()

    @property
    def records(self) -> int:
        runs = [run for segment in self.segments for run in segment.runs]
        bodies = [segment.body for segment in self.segments if segment.body is not None]
        return sum(run.end_sequence - run.first_sequence for run in runs) + sum(b.records for b in bodies)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Sequences between two segments that no record has: (first, the one behind the last)."""
        ends = [(segment.previous or (0, 0, 0))[2] for segment in self.segments]
        firsts = [segment.first_sequence for segment in self.segments]
        return [(end, first) for end, first in zip(ends, firsts, strict=True) if end < first]

    @property
    def blocks(self) -> int:
        parts = [part for segment in self.segments for part, _ in segment.parts()]
        return sum(part.blocks if isinstance(part, BlockRun) else 1 for part in parts)


def plan(findings: Findings) -> RepairPlan:
    """Plans the repair of what was found. It reads the live state out of blocks, and changes nothing."""
    bounds, page = findings.bounds, findings.believed_page
    if bounds is not None:
        first_retained = bounds.first_sequence
    else:  # positions hold back what follows them
        first_retained = min([*(found.segment for found in findings.segments), *findings.positions], default=0)
    segments = _assemble(findings.segments, first_retained)
    _complete(findings, segments)
    sound = bounds is not None and _is_sound(findings, segments)
    bodies = page.bodies if page is not None else []
    if not sound:
        _add_bodies(findings, segments, bodies)
    known_end = _known_end(findings, segments)
    next_sequence = max(known_end, _next_sequence(findings, segments))
    lost, damage = [], []
    if not sound:
        last = segments[-1]
        if last.end_sequence > last.first_sequence or last.first_sequence < next_sequence:
            segments.append(PlannedSegment(next_sequence, state={}))
        mark_segment = bounds.mark_segment if bounds is not None else 0
        for segment in segments:
            segment.doubtful = page is not None and page.sync_failed and segment.first_sequence >= mark_segment
        _complete(findings, segments)
        lost = lost_sequences(findings, segments, known_end)
        damage = damaged_places(findings, lost)
        if page is not None and page.current and not page.whole:
            buffer = os.path.join(findings.path, "precommit")
            damage.append(Damage(buffer, 0, "the open block cannot be read", page.first_sequence, 0))
    meta, begins_epoch = findings.meta, not findings.has_meta or (not sound and bounds is None)
    if begins_epoch:
        import secrets  # slow to import, and repairs are rare

        meta = replace(meta, epochs=[*meta.epochs, (secrets.randbits(63), next_sequence)])
        if not sound and segments[-1].source is None:
            segments[-1].epoch = meta.epoch
    clock_us = max([*(found.clock_us for found in findings.segments), *(body.clock_us for body in bodies)], default=0)
    return RepairPlan(
        findings,
        tuple(segments),
        sound,
        first_retained,
        next_sequence,
        clock_us,
        meta,
        begins_epoch,
        tuple(damage),
        tuple(lost),
    )


# --- The segments that there are to be -----------------------------------------------------------------------------


def _assemble(sources: Sequence[SegmentRemains], first_retained: int) -> list[PlannedSegment]:
    segments: list[PlannedSegment] = []
    for source in sources:
        for run in source.runs:
            last = segments[-1] if segments else None
            if last is not None and run.first_sequence < last.end_sequence:
                continue  # the same numbers stand before
            if last is not None and last.source is source and run.first_sequence == last.end_sequence:
                last.runs.append(run)
                continue
            begins = source.segment if run.has_state_block else run.first_sequence
            if last is not None and last.first_sequence == begins:
                segments.pop()  # it has no record; what it has of the state goes on into this one
            segments.append(PlannedSegment(begins, source, [run], None if run.has_state_block else {}, last))
    if not segments or segments[0].first_sequence > first_retained:
        # A position may stand there: so the numbers from there on are a hole, and no segment is missing.
        own = [source for source in sources if source.segment == first_retained]
        segments.insert(0, PlannedSegment(first_retained, own[0] if own else None, state={}))
    return segments


def _add_bodies(findings: Findings, segments: list[PlannedSegment], bodies: Sequence[Body]) -> None:
    """Adds what the pre-commit buffer holds and no segment does. A repair that was killed may have begun the segment behind
    it."""
    for found in sorted(bodies, key=lambda body: body.first_sequence):
        at = sum(segment.first_sequence <= found.first_sequence for segment in segments)
        before = segments[at - 1] if at else None
        body = None if before is None else _rest_of(findings, found, before)
        if before is None or body is None:
            continue
        if at < len(segments) and body.first_sequence + body.records > segments[at].first_sequence:
            continue
        if body.first_sequence == before.first_sequence:
            before.body = body
        else:
            segments.insert(at, PlannedSegment(body.first_sequence, state={}, body=body))


def _rest_of(findings: Findings, body: Body, before: PlannedSegment) -> Body | None:
    """Returns what of the body lies behind the segment before it: all of it; the records that a block at its place has not; or
    nothing."""
    if body.first_sequence >= before.end_sequence:
        return body
    run = before.runs[-1] if before.runs else None
    if run is None or before.body is not None or before.source is None or before.source.segment != body.segment:
        return None
    file = SegmentFile(findings.path, body.segment, findings.meta.uuid, check_header=False)
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


def _known_end(findings: Findings, segments: Sequence[PlannedSegment]) -> int:
    """Returns the sequence before which every number was assigned for certain. Positions tell it too: the numbers before
    them were assigned."""
    bounds, page = findings.bounds, findings.believed_page
    known = [segments[-1].end_sequence, *findings.positions, *(found.durable_end for found in findings.segments)]
    if bounds is not None:
        known += [bounds.mark_sequence, 0 if bounds.closed is None else bounds.closed[2]]
    if page is not None and page.current:
        known.append(page.open_first_sequence)
    return max(known)


def _next_sequence(findings: Findings, segments: Sequence[PlannedSegment]) -> int:
    """Returns the sequence from which on no number was ever assigned, as far as anything tells it."""
    bounds, page = findings.bounds, findings.believed_page
    end = segments[-1].end_sequence
    if page is not None and page.whole:
        return max(end, page.first_sequence)
    if bounds is None:
        return end
    return max(end, bounds.lease_limit if bounds.closed is None else bounds.closed[2])


def _is_sound(findings: Findings, segments: Sequence[PlannedSegment]) -> bool:
    """Whether every segment stands as it is to be, and a process that opens the journal finds its end where the last segment's
    is. What a power loss has left behind that end is then no damage: it was promised to nobody."""
    path, uuid, bounds, page = findings.path, findings.meta.uuid, findings.bounds, findings.believed_page
    if not all(segment.stands for segment in segments) or any(found.gaps for found in findings.segments[:-1]):
        return False
    last = segments[-1]
    if page is not None and page.current:
        if last.first_sequence != page.segment:
            return False
        file = SegmentFile(path, page.segment, uuid)
        return page.whole and last.end[1:] == open_end(file, page)
    assert bounds is not None
    try:
        end = scan_after_power_loss(path, uuid, bounds)
    except CorruptJournal:
        return False
    place = end.segment, end.offset, end.sequence
    elsewhere = page is not None and any(
        body.first_sequence >= last.end_sequence and (body.segment, body.offset, body.first_sequence) != place
        for body in page.bodies
    )
    as_closed = bounds.closed is None or bounds.closed == place
    return not end.damage and place == last.end and as_closed and not elsewhere


# --- What each segment begins with ----------------------------------------------------------------------------------------


def _complete(findings: Findings, segments: Sequence[PlannedSegment]) -> None:
    """Sets the state and the epoch with which each segment begins, and what its header says of the one before. It is done
    again when segments have been added."""
    make_states(findings.path, findings.meta.uuid, segments)
    heads = {found.segment: found.head for found in findings.segments if found.head is not None}
    for i, segment in enumerate(segments):
        if i:
            segment.previous = segments[i - 1].end
        elif segment.first_sequence in heads:
            segment.previous = heads[segment.first_sequence].previous
        else:  # what was before it was removed, or never was
            first = segment.first_sequence
            segment.previous = (0, EMPTY_SEGMENT_BYTES, first) if first else None
        segment.epoch = _epoch_of(findings.meta, heads, segment)


def _epoch_of(meta: Meta, heads: dict[int, SegmentHead], segment: PlannedSegment) -> int:
    """Returns the segment's own epoch, or the last one that had begun by then and was not over."""
    numbers = [epoch for epoch, _ in meta.epochs]
    own = heads.get(segment.first_sequence if segment.source is None else segment.source.segment)
    if own is not None and own.epoch in numbers:
        return own.epoch
    later = [head.epoch for name, head in heads.items() if name > segment.first_sequence]
    limit = min((numbers.index(epoch) for epoch in later if epoch in numbers), default=len(numbers) - 1)
    begun = [i for i, (_, first) in enumerate(meta.epochs) if first <= segment.first_sequence and i <= limit]
    return numbers[max(begun, default=0)]
