"""Repairs a damaged journal, and keeps every record that can still be read: scan, plan, apply.

`scan` says what is there, `plan` works out what is to be, and `apply` does it step by step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field

from jlog._core.segments.segment import list_segments
from jlog._core.system.lock import NEVER, RANGES, Deadline, LockFile
from jlog.care.verify import Progress, Report, verify
from jlog.errors import JournalLocked, JournalNotFound
from jlog.positions import position_files
from jlog.positions.position_files import SUBSCRIBER
from jlog.repair.apply import Applier
from jlog.repair.findings import Findings
from jlog.repair.plan import RepairPlan, plan
from jlog.repair.scan import has_unwritten_records, scan
from jlog.repair.states import StateReader
from jlog.storage.attaching import attached
from jlog.storage.copying import nobody_copies
from jlog.storage.creation import refuse_writers, share_lock
from jlog.storage.meta import DELETED, read_meta
from jlog.storage.meta import NAME as META
from jlog.system.files import is_there, naming_its_path


@dataclass(frozen=True)
class RepairAction:
    """A change that a repair has made to a file; in a dry run, one that it would make."""

    path: str
    text: str


@dataclass
class RepairReport(Report):
    """Result of repair(). `damage` and `lost` are what it found. The numbers are those of the journal as it is afterwards.
    `ok`: it is sound then; of a dry run: nothing was damaged."""

    actions: list[RepairAction] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)  # (first, next) of records that are gone
    sound: bool = True

    @property
    def ok(self) -> bool:
        return self.sound


@naming_its_path
def repair(
    path: str, *, dry_run: bool = False, progress: Progress = lambda _: None, deadline: Deadline = NEVER
) -> RepairReport:
    """Raises JournalLocked while any process writes or copies, or where it is being opened or cleaned until the deadline;
    SubscriberBusy while a subscriber reads; JournalNotFound where nothing is left of a journal."""
    while True:
        with _alone(path, dry_run, deadline) as lock_file:
            findings = scan(path, progress)
            wanted = plan(findings, StateReader(path, findings.meta.uuid))
            if dry_run:
                return _report_of(findings, wanted)
            if wanted.sound or not has_unwritten_records(findings):
                assert lock_file is not None
                return _apply(findings, wanted, lock_file, progress, deadline)
        # Opening the journal as a writer does writes to the segments what the buffer holds, and what a failed sync has left.
        with attached(path, deadline):
            pass


def _report_of(findings: Findings, wanted: RepairPlan) -> RepairReport:
    """Returns what a repair would report."""
    report = RepairReport(damage=list(wanted.damage), lost=list(wanted.lost), sound=not wanted.damage)
    report.actions = [
        RepairAction(os.path.join(findings.path, step.file), step.text) for step in wanted.steps if step.text is not None
    ]
    report.records, report.blocks, report.segments = wanted.records, wanted.blocks, len(wanted.segments)
    report.skipped = wanted.gaps
    return report


def _apply(findings: Findings, wanted: RepairPlan, lock_file: LockFile, progress: Progress, deadline: Deadline) -> RepairReport:
    report = RepairReport(damage=list(wanted.damage), lost=list(wanted.lost))
    path, meta = findings.path, findings.meta
    with ExitStack() as held:
        for name in position_files.names(path, SUBSCRIBER):
            held.callback(position_files.hold(path, meta, name).close)
        applier = Applier(path, meta, lock_file, deadline)
        for step in wanted.steps:
            step.act(applier, os.path.join(path, step.file))
            if step.text is not None:
                report.actions.append(RepairAction(os.path.join(path, step.file), step.text))
    found = verify(path, progress)
    report.records, report.blocks, report.segments = found.records, found.blocks, found.segments
    report.skipped, report.sound = found.skipped, found.ok
    return report


@contextmanager
def _alone(path: str, dry_run: bool, deadline: Deadline) -> Iterator[LockFile | None]:
    """Runs the context while no process writes, opens, cleans or copies the journal; nor can any begin to."""
    if is_there(os.path.join(path, DELETED)):
        read_meta(path)  # raises, and says so
    left = os.path.isdir(path) and (list_segments(path) or {META, "bounds"} & set(os.listdir(path)))
    if not left:
        raise JournalNotFound(f"{path}: there is no journal and no remains of one; give the directory of a journal")
    name = os.path.join(path, "lock")
    if dry_run and not os.path.exists(name):
        yield None
        return
    lock_file = LockFile(name, create=not dry_run, writable=not dry_run)
    try:  # without closing(), in whose frames a signal's handler could raise, and the journal would stay locked
        if not dry_run:
            share_lock(path, lock_file)
        _take(path, lock_file, "open", deadline, shared=dry_run)
        refuse_writers(path, lock_file, "repairing it (`jlogtool verify` runs beside them)")
        with nullcontext() if dry_run else nobody_copies(path):
            if not dry_run:
                _take(path, lock_file, "table", deadline)
            yield lock_file
    finally:
        lock_file.close()


def _take(path: str, lock_file: LockFile, name: str, deadline: Deadline, *, shared: bool = False) -> None:
    if not lock_file.acquire(RANGES[name], shared=shared, timeout=deadline.left()):
        who = lock_file.holders(RANGES[name])
        raise JournalLocked(
            f"{path}: another process{who} was opening, closing or cleaning it for the whole lock_timeout; if that process is "
            "stopped, continue or end it"
        )
