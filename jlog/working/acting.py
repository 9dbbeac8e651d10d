"""Shows the unfinished records of a shared subscriber, and acts on one of them, while workers live."""

from __future__ import annotations

import time
from dataclasses import dataclass

from jlog._core.work.task import Task
from jlog._core.work.window import entries
from jlog.errors import JournalError, PositionLost
from jlog.positions import position_files, work_files
from jlog.positions.position_files import SUBSCRIBER
from jlog.reading.reader import Reader
from jlog.storage.meta import Meta, read_meta
from jlog.system.filesystem import journal_path
from jlog.working import reasons
from jlog.working.worker import Worker

DEATH = "its worker died"


@dataclass(frozen=True)
class UnfinishedRecord:
    """A record that is "taken" by the process `pid`, "delayed", or has "failed" and is free again. age: seconds since the
    record's own time; attempt: how often it was handed out; reason: of its last failure, "" where it is not known any more."""

    sequence: int
    key: bytes | None
    state: str
    age: float
    attempt: int
    failures: int
    reason: str
    pid: int | None


def unfinished(path: str, name: str) -> list[UnfinishedRecord]:
    """Returns the records of the shared subscriber that are taken, delayed, or have failed, by sequence. It changes nothing."""
    path = journal_path(path)
    meta = _shared(path, name)
    why = reasons.read(path, meta.epoch, name)
    found = []
    with Reader(path) as reader:
        for sequence, pid, until_us, attempts, failures, deaths in entries(path, meta.uuid, name):
            state = "taken" if pid else "delayed" if until_us else "failed" if failures else ""
            if not state:
                continue
            try:
                reader.seek(sequence)
                record = next(iter(reader.read(1, timeout=0)), None)
            except PositionLost:
                continue
            if record is None or record.sequence != sequence:
                continue
            reason = why.get(sequence, DEATH if deaths else "") if failures else ""
            age = round(max(0.0, time.time() - record.timestamp_us / 1e6), 3)
            found.append(UnfinishedRecord(sequence, record.key, state, age, attempts, failures, reason, pid or None))
    return found


def release(path: str, name: str, sequence: int) -> None:
    """Takes a record from whoever has it, or out of its delay, and gives it back at once, without a failure. The worker that
    had it gets LeaseLost."""
    with _worker(path, name) as worker:
        _seize(worker, sequence).release()


def reject(path: str, name: str, sequence: int, reason: str) -> None:
    """Takes a record from whoever has it, or out of its delay, and rejects it: into the dead letters, where there are any."""
    with _worker(path, name) as worker:
        _seize(worker, sequence).reject(reason)


def _shared(path: str, name: str) -> Meta:
    meta = read_meta(path)
    if not position_files.exists(path, SUBSCRIBER, name):
        raise position_files.not_found(path, SUBSCRIBER, name)
    if work_files.read(path, meta, name) is None:
        raise JournalError(f"{path}: no workers have shared subscriber {name!r}; it belongs to a Reader")
    return meta


def _worker(path: str, name: str) -> Worker:
    _shared(journal_path(path), name)
    return Worker(path, name, create=False)


def _seize(worker: Worker, sequence: int) -> Task:
    return worker._source.seize(sequence)
