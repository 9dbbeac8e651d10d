"""Makes a damaged journal sound, and keeps every record that can still be read.

What is to be is worked out first (jlog.repair.plan). Then every step is a whole file, synced, and renamed to its name; or the
cutting of a file whose end is stated elsewhere already. Killed anywhere, the next repair goes on, and no record that can be
read is lost in between: segments are made from the newest on, for blocks only ever move into a later one than theirs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from jlog._core.buffer.precommit import Precommit
from jlog._core.format.constants import LEASE_STRIDE
from jlog._core.format.dual_slot import Bounds, BoundsFile
from jlog._core.read.rebuild import Page, invalidate_page, look_at_page
from jlog._core.recover.abandoned_buffer import only_processes_died
from jlog._core.recover.recovery import sync_data, sync_directory
from jlog._core.segments.segment import SEGMENT_HEADER_BYTES, list_segments, segment_name
from jlog._core.system.lock import NEVER, OWNERS, RANGES, Deadline, LockFile
from jlog._core.write.attachment import detach
from jlog.care.retention import attach
from jlog.care.verify import Progress, Report, damage_of_small_files, verify
from jlog.errors import CorruptJournal, JournalLocked, JournalNotFound
from jlog.options import DEFAULTS, PRECOMMIT_DEFAULT, Retention, retention_fields
from jlog.positions import position_files
from jlog.positions.position_files import CHECKPOINT, SUBSCRIBER, PositionFile
from jlog.repair.plan import Plan, is_behind, plan
from jlog.repair.rewrite import write_segment
from jlog.repair.scan import find_identity
from jlog.repair.small_files import (
    TEMPORARY,
    Action,
    Actions,
    mend_copies,
    mend_directories,
    mend_indexes,
    mend_positions,
    remove_unfinished,
)
from jlog.repair.target import Target
from jlog.storage.copying import nobody_copies
from jlog.storage.damage import Damage, bad_sectors_are_damage
from jlog.storage.meta import NAME as META
from jlog.storage.meta import Meta, read_meta, write_meta
from jlog.system.files import naming, naming_its_path, open_file, read_whole, write_whole

PIECE_BYTES = 1 << 20


@dataclass
class RepairReport(Report):
    """What repair() found and did. `damage` and `lost` are what it found, the numbers are those of the journal as it is
    then. `ok`: it is sound then; of a dry run: nothing was damaged."""

    actions: list[Action] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)  # (first, next) of records that are gone
    sound: bool = True

    @property
    def ok(self) -> bool:
        return self.sound


@naming_its_path
def repair(
    path: str,
    *,
    dry_run: bool = False,
    progress: Progress = lambda _: None,
    deadline: Deadline = NEVER,
) -> RepairReport:
    """Raises JournalLocked while anybody writes or copies, or where it is being opened or cleaned until the deadline;
    SubscriberBusy while a subscriber reads; JournalNotFound where nothing is left of a journal."""
    while True:
        with _alone(path, dry_run, deadline) as lock_file:
            work = _Repair(path, lock_file, dry_run, progress, deadline)
            if dry_run or not work.has_unwritten_records():
                return work.run(progress)
        # Opening the journal as a writer does writes to the segments what the buffer holds, and what a failed sync has left.
        detach(attach(path, deadline), deadline=deadline)


@contextmanager
def _alone(path: str, dry_run: bool, deadline: Deadline) -> Iterator[LockFile | None]:
    """While nobody writes, opens, cleans or copies; nor can anybody begin to."""
    left = os.path.isdir(path) and (list_segments(path) or {META, "bounds"} & set(os.listdir(path)))
    if not left:
        raise JournalNotFound(f"{path}: there is no journal, nor anything left of one; name a journal's directory")
    name = os.path.join(path, "lock")
    if dry_run and not os.path.exists(name):
        yield None
        return
    lock_file = LockFile(name, create=not dry_run, writable=not dry_run)
    try:
        _take(path, lock_file, "open", deadline, shared=dry_run)
        if lock_file.is_held(*OWNERS):
            raise JournalLocked(
                f"{path} is open for writing; close its writers before repairing it (`jlogtool verify` needs no such thing)"
            )
        with nullcontext() if dry_run else nobody_copies(path):
            if not dry_run:
                _take(path, lock_file, "table", deadline)
            yield lock_file
    finally:
        lock_file.close()


def _take(path: str, lock_file: LockFile, name: str, deadline: Deadline, *, shared: bool = False) -> None:
    if not lock_file.acquire(RANGES[name], shared=shared, timeout=deadline.left()):
        raise JournalLocked(
            f"{path}: another process was opening, closing or cleaning it for the whole lock_timeout; it may be stopped: "
            "continue or end it"
        )


class _Repair:
    """Making it looks at everything, run() does what is to be done."""

    def __init__(self, path: str, lock_file: LockFile | None, dry_run: bool, progress: Progress, deadline: Deadline) -> None:
        self.path = path
        self.lock_file = lock_file
        self.deadline = deadline
        self.actions = Actions(path, dry_run)
        self.report = RepairReport(actions=self.actions.done)
        self.meta, self.has_meta = self._read_meta()
        self.bounds = self._read_bounds()
        self.page: Page | None = look_at_page(path, self.meta.uuid)
        self.report.damage += damage_of_small_files(path, self.meta)
        self.plan: Plan = plan(path, self.meta, self.bounds, self.page, self._read_positions(), progress)

    # --- What is there ----------------------------------------------------------------------------------------------

    def _read_meta(self) -> tuple[Meta, bool]:
        """As it is, or made anew from what the other files say; and whether it is there."""
        try:
            return read_meta(self.path), True
        except JournalNotFound:
            reason = "it is missing"
        except CorruptJournal as error:
            reason = error.reason
        self.report.damage.append(Damage(os.path.join(self.path, META), 0, reason, 0, 0))
        uuid, epochs = find_identity(self.path)
        kept = retention_fields(Retention(delete_read=False))
        options = {**DEFAULTS, "precommit": PRECOMMIT_DEFAULT, "retention": kept}
        return Meta(uuid, epochs or [(secrets.randbits(63), 0)], options), False

    def _read_bounds(self) -> Bounds | None:
        try:
            with bad_sectors_are_damage():
                return BoundsFile(os.path.join(self.path, "bounds"), self.meta.uuid, None, writable=False).read()
        except (CorruptJournal, FileNotFoundError):
            return None

    def _read_positions(self) -> list[int]:
        """Those that can be read."""
        found = []
        for kind in (SUBSCRIBER, CHECKPOINT):
            for name in position_files.names(self.path, kind):
                file = PositionFile(self.path, self.meta, kind, name)
                try:
                    with bad_sectors_are_damage():
                        found.append(file.read())
                except CorruptJournal:
                    continue
                finally:
                    file.close()
        return found

    def has_unwritten_records(self) -> bool:
        """Whether segments are to be made anew while a writer that opens the journal now would go on in the buffer."""
        if self.plan.sound or self.page is None or not self.page.current or self.bounds is None:
            return False
        place = self.page.segment, self.page.offset, self.page.first_sequence
        has_body = any((body.segment, body.offset, body.first_sequence) == place for body in self.page.bodies)
        if not self.has_meta or not (has_body or self.page.direct or self.page.sync_failed):
            return False
        precommit = Precommit(self.path, self.meta.uuid)
        try:
            precommit.map()
            return only_processes_died(self.path, self.meta.uuid, precommit, self.bounds)
        except CorruptJournal:
            return False
        finally:
            precommit.close()

    # --- What is done -----------------------------------------------------------------------------------------------

    def run(self, progress: Progress) -> RepairReport:
        with ExitStack() as held:
            if not self.actions.dry_run:
                for name in position_files.names(self.path, SUBSCRIBER):
                    held.callback(position_files.hold(self.path, self.meta, name).close)
            mend_directories(self.actions)
            if not self.plan.sound:
                self._mend_journal()
            else:
                if not self.has_meta:
                    self._begin_epoch()
                if self.page is not None and self.bounds is not None and is_behind(self.page, self.bounds):
                    self._invalidate_page()  # all else was done by a repair that failed or was killed before this
                mend_copies(self.actions, self.meta, "bounds", bounds=True)
            ends = {target.first_sequence: target.end[1] for target in self.plan.targets[:-1]}
            written = {target.first_sequence for target in self.plan.targets if not target.stands}
            mend_indexes(self.actions, self.meta, ends, written)
            mend_positions(self.actions, self.meta, self.plan.first_sequence)
            remove_unfinished(self.actions)
        return self._finish(progress)

    def _finish(self, progress: Progress) -> RepairReport:
        report, plan = self.report, self.plan
        report.damage += plan.damage
        report.lost = plan.lost
        if self.actions.dry_run:
            report.records, report.blocks, report.segments = plan.records, plan.blocks, len(plan.targets)
            report.skipped = plan.holes
            report.sound = not report.damage
        else:
            found = verify(self.path, progress)
            report.records, report.blocks, report.segments = found.records, found.blocks, found.segments
            report.skipped, report.sound = found.skipped, found.ok
        return report

    def _mend_journal(self) -> None:
        """What is behind the damage is safe before anything that stands is replaced. First of all comes where writing goes
        on: from then on nobody who opens the journal looks for its end among what is damaged."""
        *targets, last = self.plan.targets
        if not self.has_meta or self.bounds is None:
            self._begin_epoch()
            last.epoch = self.meta.epoch if last.source is None else last.epoch
        self._keep_damaged_bytes()
        self._mend_segment(last)
        if not self.actions.dry_run:
            self._write_unsynced_again(last)
        self._mend_bounds(last)
        for target in reversed(targets):
            self._mend_segment(target)
        self._invalidate_page()
        self._cut_segments()
        self._take_away_the_rest()

    def _write_unsynced_again(self, last: Target) -> None:
        """What stays is before the mark from now on. Until now it may stand in the page cache alone, and the kernel may call it
        clean: it tells of a failed write once, and perhaps it told a process that has died. So the same bytes are written
        to their place once more, through the descriptor that is synced."""
        sources = {source.segment: source for source in self.plan.sources}
        mark = (0, 0, 0) if self.bounds is None else self.bounds[1:4]
        for segment in list_segments(self.path):
            if not mark[0] <= segment <= last.first_sequence:
                continue
            # The mark may be a place in a file that had the name before, where no record lies before it.
            synced = mark[1] if segment == mark[0] and segment != mark[2] else 0
            source = sources.get(segment)
            whole = [] if source is None else [(run.start, run.end) for run in source.runs]
            if source is not None and source.head is not None:
                whole.insert(0, (0, SEGMENT_HEADER_BYTES))
            path = os.path.join(self.path, segment_name(segment))
            with naming(path):
                fd = open_file(path, os.O_RDWR)
                try:
                    for start, end in whole:  # where the disk cannot read it is none, and stays damage
                        _write_again(fd, max(start, synced), end)
                    sync_data(fd, path)
                finally:
                    os.close(fd)

    def _invalidate_page(self) -> None:
        if self.page is not None and self.page.ready:
            text = "no longer says where the journal ends: all records are in segments"
            self.actions.do("precommit", text, invalidate_page, self.path, self.meta.uuid)

    def _begin_epoch(self) -> None:
        first = self.plan.next_sequence
        self.meta.epochs.append((secrets.randbits(63), first))
        text = f"a new epoch begins at sequence {first}"
        if not self.has_meta:
            text += (
                "; the options are those of a new journal, but that nothing is removed for having been read: open a Writer "
                "with those that it had"
            )
        self.actions.do(META, text, self._write_meta)

    def _write_meta(self) -> None:
        file = os.path.join(self.path, META)
        if not self.has_meta and os.path.exists(file):
            self.actions.quarantine.keep(file)
        write_meta(self.path, self.meta)

    def _mend_bounds(self, last: Target) -> None:
        made = "made anew: " if self.bounds is None else ""
        text = f"{made}numbering goes on at {last.first_sequence}"
        self.actions.do("bounds", text, self._write_bounds, last)

    def _write_bounds(self, last: Target) -> None:
        path = os.path.join(self.path, "bounds")
        lease, end = last.first_sequence + LEASE_STRIDE, last.end
        if self.bounds is not None:
            bounds = BoundsFile(path, self.meta.uuid, self.lock_file)
            bounds.update(mark=end, lease_limit=lease, closed=end, durable=True, deadline=self.deadline)
            bounds.close()
            return
        if os.path.exists(path):
            self.actions.quarantine.keep(path)
        first = self.plan.first_sequence
        BoundsFile.create(path, self.meta.uuid, lease, end, first_sequence=first, mark=end, temporary=TEMPORARY)
        sync_directory(self.path)

    # --- Segments ---------------------------------------------------------------------------------------------------

    def _keep_damaged_bytes(self) -> None:
        """Of files that are cut or replaced. What is moved away as a whole needs no copy."""
        sources = {source.segment: source for source in self.plan.sources}
        there = set(list_segments(self.path))
        for target in self.plan.targets:
            name, source = segment_name(target.first_sequence), sources.get(target.first_sequence)
            if source is None and target.first_sequence in there:
                self._keep(name, 0)  # nothing can be read of it, and another file gets its name
            elif source is not None:
                if source.head is None:
                    self._keep(name, 0, SEGMENT_HEADER_BYTES)
                for gap in source.gaps:
                    self._keep(name, gap.offset, gap.end)

    def _keep(self, name: str, start: int, end: int | None = None) -> None:
        file = os.path.join(self.path, name)
        if self.actions.quarantine.would_keep(file, start, end):
            text = f"what stands there from byte {start} on is kept in quarantine/"
            self.actions.do(name, text, self.actions.quarantine.keep, file, start, end)

    def _mend_segment(self, target: Target) -> None:
        if not target.stands:
            name, text = segment_name(target.first_sequence), describe(target)
            self.actions.do(name, text, write_segment, self.path, self.meta.uuid, target, self.plan.clock_us)

    def _cut_segments(self) -> None:
        """Those of which a part was damaged or is in another segment now, and the one that was open."""
        for target in self.plan.targets:
            name, end = segment_name(target.first_sequence), target.end[1]
            file = os.path.join(self.path, name)
            if target.source is not None and target.stands and os.path.getsize(file) > end:
                self._keep(name, max(end, target.source.looked_at))
                self.actions.do(name, f"cut to {end} bytes", _cut, file, end)

    def _take_away_the_rest(self) -> None:
        """Files of which nothing can be read, or all of which is in other segments now. What retention has removed is left
        to it."""
        names = {target.first_sequence for target in self.plan.targets}
        first = self.plan.targets[0].first_sequence
        for segment in list_segments(self.path):
            if segment not in names and (self.bounds is None or segment > first):
                name = segment_name(segment)
                file = os.path.join(self.path, name)
                self.actions.do(name, "moved to quarantine/", self.actions.quarantine.take, file)


def _cut(file: str, end: int) -> None:
    with naming(file), open(file, "r+b", opener=open_file) as opened:
        os.ftruncate(opened.fileno(), end)
        os.fsync(opened.fileno())


def _write_again(fd: int, start: int, end: int) -> None:
    for at in range(start, end, PIECE_BYTES):
        write_whole(fd, read_whole(fd, min(PIECE_BYTES, end - at), at), at)


def describe(target: Target) -> str:
    """What becomes of a segment that is written."""
    records = target.end_sequence - target.first_sequence
    if target.source is None or not target.runs:
        return f"made, with {records} records" + (" of the pre-commit buffer" if target.body is not None else "")
    if target.source.segment != target.first_sequence:
        return f"made, with {records} records that stood behind the damage in {segment_name(target.source.segment)}"
    new = []
    if target.source.head is None:
        new.append("its header")
    elif target.source.head.previous != target.previous:
        new.append("what its header says of the segment before")
    if target.state is not None:
        new.append("the state that it begins with")
    if target.changes:
        new.append("state that was stored where it is damaged")
    return f"written anew, with {records} records" + (f"; new is {', and '.join(new)}" if new else "")
