"""Shows the unfinished records of a shared subscriber, and acts on one of them, while workers live."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from jlog._core.records.record import Record
from jlog._core.work.task import Task
from jlog._core.work.window import entries
from jlog.errors import CorruptJournal, JournalError, PositionLost
from jlog.positions import position_files, work_files
from jlog.positions.position_files import SUBSCRIBER
from jlog.reading.reader import Reader
from jlog.storage.meta import Meta, read_meta
from jlog.system.filesystem import journal_path
from jlog.working import reasons
from jlog.working.worker import Worker

DEATH = "its worker died"
LOCK_SECONDS = 10.0  # a process that is stopped may hold what this needs


@dataclass(frozen=True)
class UnfinishedRecord:
    """A record that is "taken" by the process `pid`, "delayed", or has "failed" and is free again. age: seconds since the
    record's own time; attempt: how often it was handed out; reason: of its last failure, "" where it is not known any more. A
    damaged record has no key, and its age is None."""

    sequence: int
    key: bytes | None
    state: str
    age: float | None
    attempt: int
    failures: int
    reason: str
    pid: int | None


def unfinished(path: str, name: str, met: Callable[[CorruptJournal], None]) -> list[UnfinishedRecord]:
    """Returns the records of the shared subscriber that are taken, delayed, or have failed, by sequence. It changes nothing.

    met: is told of each record that is damaged.
    """
    path = journal_path(path)
    meta = _shared(path, name)
    why = reasons.read(path, meta.epoch, name)
    found = []
    with Reader(path) as reader:
        for sequence, pid, until_us, attempts, failures, deaths in entries(path, meta.uuid, name):
            state = "taken" if pid else "delayed" if until_us else "failed" if failures else ""
            if not state:
                continue
            reason = why.get(sequence, DEATH if deaths else "") if failures else ""
            key, age = None, None
            try:
                record = _read(reader, sequence)
            except PositionLost:
                continue
            except CorruptJournal as error:
                met(error)
            else:
                if record is None:
                    continue
                key, age = record.key, round(max(0.0, time.time() - record.timestamp_us / 1e6), 3)
            found.append(UnfinishedRecord(sequence, key, state, age, attempts, failures, reason, pid or None))
    return found


def _read(reader: Reader, sequence: int) -> Record | None:
    reader.seek(sequence)
    record = next(iter(reader.read(1, timeout=0)), None)
    return record if record is not None and record.sequence == sequence else None


def release(path: str, name: str, sequence: int) -> None:
    """Takes a record from whoever has it, or out of its delay, and gives it back at once, without a failure. The worker that
    had it gets LeaseLost."""
    with _worker(path, name) as worker:
        _seize(worker, sequence).release()


def reject(path: str, name: str, sequence: int, reason: str) -> None:
    """Takes a record from whoever has it, or out of its delay, and rejects it: into the dead letters, where there are any. If
    they cannot be opened the record stays where it is."""
    with _worker(path, name) as worker:
        worker._policy.open_letters()
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
    return Worker(path, name, create=False, lock_timeout=LOCK_SECONDS)


def _seize(worker: Worker, sequence: int) -> Task:
    with Reader(worker.path) as reader:
        _read(reader, sequence)  # one that cannot be read stays where it is
    return worker._source.seize(sequence)
