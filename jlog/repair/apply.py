"""Applies a repair's plan.

Every step is a whole file, synced, and renamed to its name; or the cutting of a file whose end is stated elsewhere already.
Killed anywhere, the next repair goes on, and no record that can be read is lost in between: segments are made from the newest
on, for blocks only ever move into a later segment than theirs.
"""

from __future__ import annotations

import os

from jlog._core.format.constants import LEASE_STRIDE, SEGMENT_HEADER_BYTES
from jlog._core.format.dual_slot import BoundsFile
from jlog._core.read.rebuild import invalidate_page
from jlog._core.recover.recovery import sync_data, sync_directory
from jlog._core.segments.segment import list_segments, segment_name
from jlog._core.system.lock import Deadline, LockFile
from jlog.repair.plan import RepairPlan
from jlog.repair.planned import PlannedSegment
from jlog.repair.rewrite import write_segment
from jlog.repair.small_files import (
    TEMPORARY,
    Actions,
    mend_copies,
    mend_directories,
    mend_indexes,
    mend_positions,
    remove_unfinished,
)
from jlog.storage.meta import NAME as META
from jlog.storage.meta import write_meta
from jlog.system.files import naming, open_file, read_whole, write_whole

PIECE_BYTES = 1 << 20


def apply(plan: RepairPlan, actions: Actions, lock_file: LockFile | None, deadline: Deadline) -> None:
    """Does what the plan says; in a dry run only notes it. The caller keeps writers, copies and subscribers out."""
    mend_directories(actions)
    if not plan.sound:
        _Segments(plan, actions, lock_file, deadline).repair()
    else:
        if plan.begins_epoch:
            _begin_epoch(plan, actions)
        if plan.findings.page_is_behind:
            _invalidate_page(plan, actions)  # all else was done by a repair that failed or was killed before this
        mend_copies(actions, plan.meta, "bounds", bounds=True)
    ends = {segment.first_sequence: segment.end[1] for segment in plan.segments[:-1]}
    written = {segment.first_sequence for segment in plan.segments if not segment.stands}
    mend_indexes(actions, plan.meta, ends, written)
    mend_positions(actions, plan.meta, plan.first_sequence)
    remove_unfinished(actions)


def _invalidate_page(plan: RepairPlan, actions: Actions) -> None:
    page = plan.findings.page
    if page is not None and page.ready:
        text = "no longer says where the journal ends: all records are in segments"
        actions.do("precommit", text, invalidate_page, actions.path, plan.meta.uuid)


def _begin_epoch(plan: RepairPlan, actions: Actions) -> None:
    text = f"a new epoch begins at sequence {plan.next_sequence}"
    if not plan.findings.has_meta:
        text += (
            "; the options are those of a new journal, but that nothing is removed for having been read: open a Writer "
            "with those that it had"
        )
    actions.do(META, text, _write_meta, plan, actions)


def _write_meta(plan: RepairPlan, actions: Actions) -> None:
    file = actions.file(META)
    if not plan.findings.has_meta and os.path.exists(file):
        actions.quarantine.keep(file)
    write_meta(actions.path, plan.meta)


class _Segments:
    """The repair of a journal's segments, and of `bounds`, which says where writing goes on."""

    def __init__(self, plan: RepairPlan, actions: Actions, lock_file: LockFile | None, deadline: Deadline) -> None:
        self._plan = plan
        self._actions = actions
        self._lock_file = lock_file
        self._deadline = deadline
        self._remains = {found.segment: found for found in plan.findings.segments}

    def repair(self) -> None:
        """What is behind the damage is safe before anything that stands is replaced. The place where writing goes on comes
        first: from then on nobody who opens the journal looks for its end among what is damaged."""
        *others, last = self._plan.segments
        if self._plan.begins_epoch:
            _begin_epoch(self._plan, self._actions)
        self._keep_damaged_bytes()
        self._write(last)
        if not self._actions.dry_run:
            self._write_unsynced_again(last)
        self._repair_bounds(last)
        for segment in reversed(others):
            self._write(segment)
        _invalidate_page(self._plan, self._actions)
        self._cut()
        self._take_away_the_rest()

    def _write(self, segment: PlannedSegment) -> None:
        if not segment.stands:
            name, text = segment_name(segment.first_sequence), describe(segment)
            meta, clock_us = self._plan.meta, self._plan.clock_us
            self._actions.do(name, text, write_segment, self._actions.path, meta.uuid, segment, clock_us)

    def _write_unsynced_again(self, last: PlannedSegment) -> None:
        """Writes the same bytes to their place once more, through the descriptor that is synced then. What stays is before the
        synced mark from now on. Until now it may stand in the page cache alone, and the kernel may call it clean: it tells
        of a failed write once, and perhaps it told a process that has died."""
        bounds = self._plan.findings.bounds
        mark = (0, 0, 0) if bounds is None else bounds[1:4]
        for segment in list_segments(self._actions.path):
            if not mark[0] <= segment <= last.first_sequence:
                continue
            # The mark may be a place in a file that had the name before, where no record lies before it.
            synced = mark[1] if segment == mark[0] and segment != mark[2] else 0
            found = self._remains.get(segment)
            intact = [] if found is None else [(run.start, run.end) for run in found.runs]
            if found is not None and found.head is not None:
                intact.insert(0, (0, SEGMENT_HEADER_BYTES))
            path = self._actions.file(segment_name(segment))
            with naming(path):
                fd = open_file(path, os.O_RDWR)
                try:
                    for start, end in intact:  # a place that the disk cannot read is in none, and stays damage
                        _write_again(fd, max(start, synced), end)
                    sync_data(fd, path)
                finally:
                    os.close(fd)

    def _repair_bounds(self, last: PlannedSegment) -> None:
        made = "made anew: " if self._plan.findings.bounds is None else ""
        text = f"{made}numbering goes on at {last.first_sequence}"
        self._actions.do("bounds", text, self._write_bounds, last)

    def _write_bounds(self, last: PlannedSegment) -> None:
        path, uuid = self._actions.file("bounds"), self._plan.meta.uuid
        lease, end = last.first_sequence + LEASE_STRIDE, last.end
        if self._plan.findings.bounds is not None:
            bounds = BoundsFile(path, uuid, self._lock_file)
            bounds.update(mark=end, lease_limit=lease, closed=end, durable=True, deadline=self._deadline)
            bounds.close()
            return
        if os.path.exists(path):
            self._actions.quarantine.keep(path)
        first = self._plan.first_sequence
        BoundsFile.create(path, uuid, lease, end, first_sequence=first, mark=end, temporary=TEMPORARY)
        sync_directory(self._actions.path)

    def _keep_damaged_bytes(self) -> None:
        """Keeps the damaged bytes of files that are cut or replaced. A file that is moved away as a whole needs no copy."""
        there = set(list_segments(self._actions.path))
        for segment in self._plan.segments:
            name, found = segment_name(segment.first_sequence), self._remains.get(segment.first_sequence)
            if found is None and segment.first_sequence in there:
                self._keep(name, 0)  # nothing can be read of it, and another file gets its name
            elif found is not None:
                if found.head is None:
                    self._keep(name, 0, SEGMENT_HEADER_BYTES)
                for gap in found.gaps:
                    self._keep(name, gap.offset, gap.end)

    def _keep(self, name: str, start: int, end: int | None = None) -> None:
        file, quarantine = self._actions.file(name), self._actions.quarantine
        if quarantine.would_keep(file, start, end):
            text = f"what stands there from byte {start} on is kept in quarantine/"
            self._actions.do(name, text, quarantine.keep, file, start, end)

    def _cut(self) -> None:
        """Cuts the segments of which a part was damaged or is in another segment now, and the one that was open."""
        for segment in self._plan.segments:
            name, end = segment_name(segment.first_sequence), segment.end[1]
            file = self._actions.file(name)
            if segment.source is not None and segment.stands and os.path.getsize(file) > end:
                self._keep(name, max(end, segment.source.looked_at))
                self._actions.do(name, f"cut to {end} bytes", _cut, file, end)

    def _take_away_the_rest(self) -> None:
        """Moves files to quarantine of which nothing can be read, or whose records are all in other segments now. What
        retention has removed is left to it."""
        names = {segment.first_sequence for segment in self._plan.segments}
        first = self._plan.segments[0].first_sequence
        for segment in list_segments(self._actions.path):
            if segment not in names and (self._plan.findings.bounds is None or segment > first):
                name = segment_name(segment)
                self._actions.do(name, "moved to quarantine/", self._actions.quarantine.take, self._actions.file(name))


def _cut(file: str, end: int) -> None:
    with naming(file), open(file, "r+b", opener=open_file) as opened:
        os.ftruncate(opened.fileno(), end)
        os.fsync(opened.fileno())


def _write_again(fd: int, start: int, end: int) -> None:
    for at in range(start, end, PIECE_BYTES):
        write_whole(fd, read_whole(fd, min(PIECE_BYTES, end - at), at), at)


def describe(segment: PlannedSegment) -> str:
    """Says what becomes of a segment that is written."""
    records = segment.end_sequence - segment.first_sequence
    source = segment.source
    if source is None or not segment.runs:
        return f"made, with {records} records" + (" of the pre-commit buffer" if segment.body is not None else "")
    if source.segment != segment.first_sequence:
        return f"made, with {records} records that stood behind the damage in {segment_name(source.segment)}"
    new = []
    if source.head is None:
        new.append("its header")
    elif source.head.previous != segment.previous:
        new.append("what its header says of the segment before")
    if segment.state is not None:
        new.append("the state that it begins with")
    if segment.changes:
        new.append("state that was stored where it is damaged")
    return f"written anew, with {records} records" + (f"; new is {', and '.join(new)}" if new else "")
