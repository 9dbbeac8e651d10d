"""Works out what a repair is to do, of what a scan has found. It neither reads nor writes a file; the state that blocks hold is
read for it, by their place.

Sequences never change: the numbers of lost records become a gap, which the header of the next segment states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from jlog._core.format.constants import BLOCK_HEADER_BYTES, SEGMENT_HEADER_BYTES
from jlog._core.recover.abandoned_buffer import Body
from jlog._core.segments.segment import segment_name
from jlog.repair.apply import Applier
from jlog.repair.draft import SegmentDraft
from jlog.repair.findings import BlockRun, Findings, FoundBody, FoundSegment, SegmentHead, is_outdated
from jlog.repair.losses import damage_of_segments, lost_records
from jlog.repair.states import StateReader, make_states
from jlog.storage.damage import Damage
from jlog.storage.meta import NAME as META

EMPTY_SEGMENT_BYTES = SEGMENT_HEADER_BYTES + BLOCK_HEADER_BYTES


@dataclass(frozen=True)
class RepairStep:
    """One step of a repair. `file` is a name in the journal's directory; `text` says what is done, None where no user needs to
    know. `act` takes the step: a method of Applier, which gets the file's path."""

    file: str
    text: str | None
    act: Callable[[Applier, str], None]


@dataclass(frozen=True)
class RepairPlan:
    """`segments`: the journal's segments as they are to be, oldest first. Where `sound`, they are those that are there;
    otherwise the last one is empty, and writing goes on there."""

    segments: tuple[SegmentDraft, ...]
    sound: bool
    steps: tuple[RepairStep, ...]
    damage: tuple[Damage, ...]
    lost: tuple[tuple[int, int], ...]

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.segments)

    @property
    def blocks(self) -> int:
        parts = [part for segment in self.segments for part, _ in segment.parts()]
        return sum(part.blocks if isinstance(part, BlockRun) else 1 for part in parts)

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of sequences that no record has."""
        ends = [(segment.previous or (0, 0, 0))[2] for segment in self.segments]
        firsts = [segment.first_sequence for segment in self.segments]
        return [(end, first) for end, first in zip(ends, firsts, strict=True) if end < first]


def plan(findings: Findings, states: StateReader) -> RepairPlan:
    """`states` reads the state that blocks hold."""
    first_retained = _first_retained(findings)
    drafts = _assemble(findings.segments, first_retained)
    _complete(findings, states, drafts)
    if _is_sound(findings, drafts):
        wanted = tuple(_steps_where_sound(findings, drafts, first_retained))
        return RepairPlan(tuple(drafts), True, wanted, findings.damage, ())

    _add_bodies(drafts, findings.bodies)
    known_end = _known_end(findings, drafts)
    next_sequence = max(known_end, _next_sequence(findings, drafts))
    last = drafts[-1]
    if last.end_sequence > last.first_sequence or last.first_sequence < next_sequence:
        drafts.append(SegmentDraft(next_sequence, state={}))
    mark_segment = 0 if findings.bounds is None else findings.bounds.mark_segment
    for draft in drafts:
        sync_failed = findings.page is not None and findings.page.sync_failed
        draft.doubtful = sync_failed and draft.first_sequence >= mark_segment
    _complete(findings, states, drafts)
    if drafts[-1].source is None and (not findings.has_meta or findings.bounds is None):
        drafts[-1].epoch = findings.new_epoch
    lost = lost_records(findings, drafts, known_end)
    wanted = tuple(_steps_where_damaged(findings, drafts, first_retained, next_sequence))
    damage = (*findings.damage, *damage_of_segments(findings, lost))
    return RepairPlan(tuple(drafts), False, wanted, damage, tuple(lost))


# --- The segments that are to be -----------------------------------------------------------------------------------------


def _first_retained(findings: Findings) -> int:
    if findings.bounds is not None:
        return findings.bounds.first_sequence
    # Positions hold back what follows them.
    return min([segment.segment for segment in findings.segments] + _sequences_of_positions(findings), default=0)


def _sequences_of_positions(findings: Findings) -> list[int]:
    return [position.sequence for position in findings.positions if position.sequence is not None]


def _assemble(segments: tuple[FoundSegment, ...], first_retained: int) -> list[SegmentDraft]:
    drafts: list[SegmentDraft] = []
    for source in segments:
        for run in source.runs:
            last = drafts[-1] if drafts else None
            if last is not None and run.first_sequence < last.end_sequence:
                continue  # the same numbers stand before
            if last is not None and last.source is source and run.first_sequence == last.end_sequence:
                last.runs.append(run)
                continue
            begins = source.segment if run.has_state_block else run.first_sequence
            if last is not None and last.first_sequence == begins:
                drafts.pop()  # it has no record; what it has of the state goes on into this one
            drafts.append(SegmentDraft(begins, source, [run], None if run.has_state_block else {}, last))
    if not drafts or drafts[0].first_sequence > first_retained:
        # A position may stand there: so the numbers from there on are a gap, and no segment is missing.
        own = [source for source in segments if source.segment == first_retained]
        drafts.insert(0, SegmentDraft(first_retained, own[0] if own else None, state={}))
    return drafts


def _add_bodies(drafts: list[SegmentDraft], bodies: tuple[FoundBody, ...]) -> None:
    """Adds what the pre-commit buffer holds and no segment does. A repair that was killed may have begun the next segment."""
    for found in sorted(bodies, key=lambda found: found.body.first_sequence):
        at = sum(draft.first_sequence <= found.body.first_sequence for draft in drafts)
        before = drafts[at - 1] if at else None
        body = None if before is None else _rest_of(found, before)
        if before is None or body is None:
            continue
        if at < len(drafts) and body.first_sequence + body.records > drafts[at].first_sequence:
            continue
        if body.first_sequence == before.first_sequence:
            before.body = body
        else:
            drafts.insert(at, SegmentDraft(body.first_sequence, state={}, body=body))


def _rest_of(found: FoundBody, before: SegmentDraft) -> Body | None:
    """Returns what of the body comes after the segment before it: all of it, or the records after those that a block of its
    place has, or nothing."""
    if found.body.first_sequence >= before.end_sequence:
        return found.body
    run = before.runs[-1] if before.runs else None
    if run is None or before.body is not None or before.source is None or before.source.segment != found.body.segment:
        return None
    return found.rest if run.end == found.written_end else None


def _known_end(findings: Findings, drafts: list[SegmentDraft]) -> int:
    """Every number before it was given out for certain."""
    known = [drafts[-1].end_sequence, *_sequences_of_positions(findings)]
    known += [segment.durable_end for segment in findings.segments]
    bounds, page = findings.bounds, findings.trusted_page
    if bounds is not None:
        known += [bounds.mark_sequence, 0 if bounds.closed is None else bounds.closed[2]]
    if page is not None and page.current:
        known.append(page.open_first_sequence)
    return max(known)


def _next_sequence(findings: Findings, drafts: list[SegmentDraft]) -> int:
    """No number from here on was ever given out, as far as any file tells it."""
    end = drafts[-1].end_sequence
    bounds, page = findings.bounds, findings.trusted_page
    if page is not None and page.whole:
        return max(end, page.first_sequence)
    if bounds is None:
        return end
    return max(end, bounds.reservation_limit if bounds.closed is None else bounds.closed[2])


def _is_sound(findings: Findings, drafts: list[SegmentDraft]) -> bool:
    """Says whether every segment stands as it is to be, and a process that opens the journal finds its end where the end of the
    last segment is. Bytes that a power loss has left beyond that end are not damage then: no caller was promised them."""
    bounds, page = findings.bounds, findings.trusted_page
    if bounds is None or not all(draft.stands for draft in drafts):
        return False
    if any(segment.damaged_ranges for segment in findings.segments[:-1]):
        return False
    last = drafts[-1]
    if page is not None and page.current:
        return page.whole and last.end == findings.open_end
    if findings.page is None and bounds.closed is None:
        return False  # the buffer is missing: what is left becomes a closed journal
    place = findings.recovered_end
    elsewhere = any(
        found.body.first_sequence >= last.end_sequence
        and (found.body.segment, found.body.offset, found.body.first_sequence) != place
        for found in findings.bodies
    )
    return place == last.end and bounds.closed in (None, place) and not elsewhere


def _complete(findings: Findings, states: StateReader, drafts: list[SegmentDraft]) -> None:
    """Sets the state, the epoch, and what each segment says of the one before. Done again when drafts have been added."""
    make_states(states, drafts)
    heads = {segment.segment: segment.head for segment in findings.segments if segment.head is not None}
    for i, draft in enumerate(drafts):
        if i:
            draft.previous = drafts[i - 1].end
        elif draft.first_sequence in heads:
            draft.previous = heads[draft.first_sequence].previous
        else:  # what was before it was removed, or never was
            first = draft.first_sequence
            draft.previous = (0, EMPTY_SEGMENT_BYTES, first) if first else None
        draft.epoch = _epoch_of(findings.meta.epochs, heads, draft)


def _epoch_of(epochs: list[tuple[int, int]], heads: dict[int, SegmentHead], draft: SegmentDraft) -> int:
    """Returns its own, or the last one that had begun by then and was not over."""
    numbers = [epoch for epoch, _ in epochs]
    own = heads.get(draft.first_sequence if draft.source is None else draft.source.segment)
    if own is not None and own.epoch in numbers:
        return own.epoch
    later = [head.epoch for name, head in heads.items() if name > draft.first_sequence]
    limit = min((numbers.index(epoch) for epoch in later if epoch in numbers), default=len(numbers) - 1)
    begun = [i for i, (_, first) in enumerate(epochs) if first <= draft.first_sequence and i <= limit]
    return numbers[max(begun, default=0)]


# --- The steps -----------------------------------------------------------------------------------------------------------


def _steps_where_sound(findings: Findings, drafts: list[SegmentDraft], first_retained: int) -> Iterator[RepairStep]:
    yield from _make_directories(findings)
    if not findings.has_meta:
        yield _begin_epoch(findings, max(_known_end(findings, drafts), _next_sequence(findings, drafts)))
    if is_outdated(findings.page, findings.bounds):
        yield from _invalidate_page(findings)  # all else was done by a repair that failed or was killed before this
    yield from _restore_copies("bounds", findings.damaged_bounds_copies, is_bounds=True)
    yield from _tidy(findings, drafts, first_retained)


def _steps_where_damaged(
    findings: Findings, drafts: list[SegmentDraft], first_retained: int, next_sequence: int
) -> Iterator[RepairStep]:
    """Everything after the damage is safe before any existing file is replaced. The place where writing goes on comes first:
    from then on no process that opens the journal looks for its end among what is damaged."""
    *others, last = drafts
    clock_us = max(
        [segment.clock_us for segment in findings.segments] + [found.body.clock_us for found in findings.bodies], default=0
    )
    yield from _make_directories(findings)
    if not findings.has_meta or findings.bounds is None:
        yield _begin_epoch(findings, next_sequence)
    yield from _keep_damaged_bytes(findings, drafts)
    yield from _write_segment(last, clock_us)
    yield from _write_unsynced_again(findings, last)
    made = "made anew: " if findings.bounds is None else ""
    text = f"{made}numbering goes on at {last.first_sequence}"
    write = partial(Applier.write_bounds, first_sequence=first_retained, end=last.end, is_new=findings.bounds is None)
    yield RepairStep("bounds", text, write)
    for draft in reversed(others):
        yield from _write_segment(draft, clock_us)
    yield from _invalidate_page(findings)
    yield from _cut_segments(findings, drafts)
    yield from _take_away_the_rest(findings, drafts)
    yield from _tidy(findings, drafts, first_retained)


def _make_directories(findings: Findings) -> Iterator[RepairStep]:
    for name in findings.missing_directories:
        yield RepairStep(name, "made anew: it was missing", Applier.make_directory)


def _begin_epoch(findings: Findings, first: int) -> RepairStep:
    text = f"a new epoch begins at sequence {first}"
    if not findings.has_meta:
        text += (
            "; the options are those of a new journal, but that nothing is removed for having been read: open a Writer "
            "with those that it had"
        )
    meta = replace(findings.meta, epochs=[*findings.meta.epochs, (findings.new_epoch, first)])
    return RepairStep(META, text, partial(Applier.write_meta, meta=meta, keep_old=not findings.has_meta))


def _keep_damaged_bytes(findings: Findings, drafts: list[SegmentDraft]) -> Iterator[RepairStep]:
    """Keeps those of files that are cut or replaced. What is moved away as a whole needs no copy."""
    ends = {segment.segment: segment.known_end for segment in findings.segments}
    for draft in drafts:
        file = findings.segment_files.get(draft.first_sequence)
        for start, end in file.to_keep if file is not None else ():
            if end is not None or draft.first_sequence not in ends:  # what lies beyond the known end is kept when it is cut
                yield _keep(segment_name(draft.first_sequence), start, end)


def _keep(name: str, start: int, end: int | None) -> RepairStep:
    text = f"what stands there from byte {start} on is kept in quarantine/"
    return RepairStep(name, text, partial(Applier.keep_bytes, start=start, end=end))


def _write_segment(draft: SegmentDraft, clock_us: int) -> Iterator[RepairStep]:
    if not draft.stands:
        write = partial(Applier.write_segment, segment=draft, clock_us=clock_us)
        yield RepairStep(segment_name(draft.first_sequence), draft.describe(), write)


def _write_unsynced_again(findings: Findings, last: SegmentDraft) -> Iterator[RepairStep]:
    """Everything that stays is before the mark from now on. Until now it may stand in the page cache alone, and the kernel may
    call it clean: it tells of a failed write once, and perhaps it told a process that has died. So the same bytes are written
    to their place once more, through the descriptor that is synced. Where the disk cannot read, nothing is whole, and stays
    damage."""
    sources = {segment.segment: segment for segment in findings.segments}
    mark = (0, 0, 0) if findings.bounds is None else findings.bounds[1:4]
    for name in sorted(findings.segment_files.keys() | {last.first_sequence}):
        if not mark[0] <= name <= last.first_sequence:
            continue
        # The mark may be a place in a file that had the name before, where no record lies before it.
        synced = mark[1] if name == mark[0] and name != mark[2] else 0
        source = sources.get(name)
        whole = [] if source is None else [(run.start, run.end) for run in source.runs]
        if source is not None and source.head is not None:
            whole.insert(0, (0, SEGMENT_HEADER_BYTES))
        ranges = tuple((max(start, synced), end) for start, end in whole)
        yield RepairStep(segment_name(name), None, partial(Applier.write_again, ranges=ranges))


def _invalidate_page(findings: Findings) -> Iterator[RepairStep]:
    if findings.page is not None and findings.page.ready:
        text = "no longer says where the journal ends: all records are in segments"
        yield RepairStep("precommit", text, Applier.invalidate_page)


def _cut_segments(findings: Findings, drafts: list[SegmentDraft]) -> Iterator[RepairStep]:
    """Cuts those of which a part was damaged or is in another segment now, and the one that was open."""
    for draft in drafts:
        name, end = segment_name(draft.first_sequence), draft.end[1]
        file = findings.segment_files.get(draft.first_sequence)
        if draft.source is not None and draft.stands and file is not None and file.file_bytes > end:
            for start, kept_end in file.to_keep:
                if kept_end is None:
                    yield _keep(name, start, kept_end)
            yield RepairStep(name, f"cut to {end} bytes", partial(Applier.cut, end=end))


def _take_away_the_rest(findings: Findings, drafts: list[SegmentDraft]) -> Iterator[RepairStep]:
    """Moves files of which nothing can be read, or all of which is in other segments now. What retention has removed is left to
    it."""
    names = {draft.first_sequence for draft in drafts}
    for name in findings.segment_files:
        if name not in names and (findings.bounds is None or name > drafts[0].first_sequence):
            yield RepairStep(segment_name(name), "moved to quarantine/", Applier.take_away)


def _tidy(findings: Findings, drafts: list[SegmentDraft], first_retained: int) -> Iterator[RepairStep]:
    """Repairs the rest: indexes, positions, unfinished files."""
    ends = {draft.first_sequence: draft.end[1] for draft in drafts[:-1]}
    written = {draft.first_sequence for draft in drafts if not draft.stands}
    for index in findings.indexes:
        if index.segment in written:
            continue
        if index.segment not in ends:
            yield RepairStep(index.file, "removed: it is of no sealed segment", Applier.remove)
        elif not index.right:
            yield _make_index(index.file, "made anew", index.segment, ends[index.segment])
    for segment in sorted(written & ends.keys()):
        yield _make_index(segment_name(segment), None, segment, ends[segment])
    for position in findings.positions:
        if position.sequence is None:
            # At the first record it holds everything back, as it did while it was damaged.
            text = f"set to {first_retained}, the first record kept: where it stood cannot be read"
            move = partial(Applier.set_position, kind=position.kind, name=position.name, sequence=first_retained)
            yield RepairStep(position.file, text, move)
        else:
            yield from _restore_copies(position.file, position.damaged_copies)
    for name in findings.unfinished:
        yield RepairStep(name, "removed: it was never finished", Applier.remove)


def _make_index(file: str, text: str | None, segment: int, end: int) -> RepairStep:
    return RepairStep(file, text, partial(Applier.make_index, segment=segment, end=end))


def _restore_copies(file: str, offsets: tuple[int, ...], *, is_bounds: bool = False) -> Iterator[RepairStep]:
    for offset in offsets:
        restore = partial(Applier.restore_copy, offset=offset, is_bounds=is_bounds)
        yield RepairStep(file, "its damaged copy is made anew from the other one", restore)
