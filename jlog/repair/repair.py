"""Makes a damaged journal sound, and keeps every record that can still be read.

A repair scans the journal, plans what is to be, and applies the plan. Scanning and planning change nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from jlog._core.buffer.precommit import Precommit
from jlog._core.recover.abandoned_buffer import only_processes_died
from jlog._core.segments.segment import list_segments
from jlog._core.system.lock import NEVER, OWNERS, RANGES, Deadline, LockFile
from jlog._core.write.attachment import detach
from jlog.care.retention import attach
from jlog.care.verify import Progress, Report, verify
from jlog.errors import CorruptJournal, JournalLocked, JournalNotFound
from jlog.positions import position_files
from jlog.positions.position_files import SUBSCRIBER
from jlog.repair.apply import apply
from jlog.repair.plan import RepairPlan, plan
from jlog.repair.scan import scan
from jlog.repair.small_files import Action, Actions
from jlog.storage.copying import nobody_copies
from jlog.storage.meta import NAME as META
from jlog.system.files import naming_its_path


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
    """Repairs the journal at `path`. A dry run changes nothing, and reports what would be done.

    Raises JournalLocked while anybody writes or copies, or where it is being opened or cleaned until the deadline;
    SubscriberBusy while a subscriber reads; JournalNotFound where nothing is left of a journal.
    """
    while True:
        with _alone(path, dry_run, deadline) as lock_file:
            planned = plan(scan(path, progress))
            if dry_run or not _has_unwritten_records(planned):
                actions = Actions(path, dry_run)
                with ExitStack() as held:
                    if not dry_run:
                        for name in position_files.names(path, SUBSCRIBER):
                            held.callback(position_files.hold(path, planned.meta, name).close)
                    apply(planned, actions, lock_file, deadline)
                return _report(planned, actions, progress)
        # Opening the journal as a writer does writes to the segments what the buffer holds, and what a failed sync has left.
        detach(attach(path, deadline), deadline=deadline)


def _has_unwritten_records(planned: RepairPlan) -> bool:
    """Whether segments are to be made anew while a writer that opens the journal now would go on in the buffer."""
    found = planned.findings
    page, uuid = found.page, found.meta.uuid
    if planned.sound or page is None or not page.current or found.bounds is None:
        return False
    place = page.segment, page.offset, page.first_sequence
    has_body = any((body.segment, body.offset, body.first_sequence) == place for body in page.bodies)
    if not found.has_meta or not (has_body or page.direct or page.sync_failed):
        return False
    precommit = Precommit(found.path, uuid)
    try:
        precommit.map()
        return only_processes_died(found.path, uuid, precommit, found.bounds)
    except CorruptJournal:
        return False
    finally:
        precommit.close()


def _report(planned: RepairPlan, actions: Actions, progress: Progress) -> RepairReport:
    report = RepairReport(actions=actions.done, lost=list(planned.lost))
    report.damage = [*planned.findings.damage, *planned.damage]
    if actions.dry_run:
        report.records, report.blocks, report.segments = planned.records, planned.blocks, len(planned.segments)
        report.skipped = planned.gaps
        report.sound = not report.damage
    else:
        found = verify(actions.path, progress)
        report.records, report.blocks, report.segments = found.records, found.blocks, found.segments
        report.skipped, report.sound = found.skipped, found.ok
    return report


@contextmanager
def _alone(path: str, dry_run: bool, deadline: Deadline) -> Iterator[LockFile | None]:
    """A context in which nobody writes, opens, cleans or copies the journal, nor can begin to."""
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
