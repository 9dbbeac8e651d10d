"""The dead letters of a shared subscriber: a journal that takes the records that it rejects, each once."""

from __future__ import annotations

import json
from contextlib import suppress

from jlog._core.system.lock import Deadline, Mutex
from jlog._core.work.task import Task, TaskHolder
from jlog._core.work.window import REJECTING_BYTE
from jlog.errors import JournalError
from jlog.storage.epochs import ForeignPosition
from jlog.storage.meta import Meta, MetaReader
from jlog.storage.segments import state_of
from jlog.working.shared_subscriber import SharedSubscriber
from jlog.writer import Writer

REASON, ATTEMPTS, JOURNAL, SUBSCRIBER, SEQUENCE = (
    f"jlog.work.{name}" for name in ("reason", "attempts", "journal", "subscriber", "sequence")
)
HEADERS = (REASON, ATTEMPTS, JOURNAL, SUBSCRIBER, SEQUENCE)
REASON_BYTES = 1_000
KEPT = 32  # letters that the state may name before a worker looks for finished records, which takes a look at the window


class DeadLetters:
    """Writes dead letters, one rejecting worker after the other. The journal's state names the last letters, by the positions
    after their records: those whose records may be unfinished. A worker that was killed between the letter and the finish
    leaves a record with a letter. After a rewind a record may be rejected anew, and gets another letter. A restored backup of
    the worked journal gives numbers out again, which are in another epoch."""

    def __init__(self, subscriber: SharedSubscriber, journal: str, uuid: bytes, lock_timeout: float | None) -> None:
        self._subscriber, self._journal, self._lock_timeout = subscriber, journal, lock_timeout
        self._key = f"jlog.work:{uuid.hex()}:{subscriber.name}".encode()
        # The first writer of a restored backup may begin the epoch after this worker was opened.
        self._meta = MetaReader(journal)
        self._mutex = Mutex(subscriber.lock_file.path)
        self._writer: Writer | None = None
        self._rewinds = 0  # what the state says, as long as the letters' journal ends at `_end`
        self._stored: list[str] = []
        self._end = -1
        self._finished: set[str] = set()  # those of the stored ones whose records this worker has finished

    def reject(self, holder: TaskHolder, task: Task, reason: str, deadline: Deadline) -> None:
        """Stores the letter durably, then finishes the record."""
        locks, what = self._subscriber.lock_file, f"was writing dead letters of {self._subscriber.name!r}"
        with locks.held(REJECTING_BYTE, deadline=deadline, what=what, mutex=self._mutex):
            holder.check_held(task)
            try:
                position = self._store(task, reason)
            except BaseException:  # the next letter opens the journal anew: this one may have been removed, or have failed
                writer, self._writer, self._end = self._writer, None, -1
                if writer is not None:
                    with suppress(JournalError, OSError):
                        writer.close()
                raise
            holder.count_rejection(task)
            self._finished.add(position)

    def open(self, deadline: Deadline) -> None:
        """Raises what would keep reject() from storing a letter now."""
        locks, what = self._subscriber.lock_file, f"was writing dead letters of {self._subscriber.name!r}"
        with locks.held(REJECTING_BYTE, deadline=deadline, what=what, mutex=self._mutex):
            self._open()

    def _open(self) -> Writer:
        if self._writer is None:
            path = self._subscriber.options.dead_letters
            assert path is not None
            self._writer = Writer(path, lock_timeout=self._lock_timeout)
        return self._writer

    def _store(self, task: Task, reason: str) -> str:
        """Stores the letter, if there is none yet. Returns the position after its record."""
        writer = self._open()
        meta = self._meta.read()
        if writer.next_sequence != self._end:  # state_of() reads all of the open segment
            self._rewinds, self._stored = _letters_in(state_of(writer.path).get(self._key, b"[0]"), meta)
        if self._rewinds != self._subscriber.rewinds:  # those letters are of records that may be rejected anew
            self._rewinds, self._stored = self._subscriber.rewinds, []
        position = str(ForeignPosition.of(meta, task.sequence + 1))
        if position not in self._stored:
            kept = [*self._unfinished(), position]
            own = [header for header in task.headers if header[0] not in HEADERS]
            about = [
                (REASON, reason.encode("utf-8", "replace")[:REASON_BYTES].decode("utf-8", "ignore").encode()),
                (ATTEMPTS, str(task.attempt).encode()),
                (JOURNAL, self._journal.encode("utf-8", "surrogateescape")),
                (SUBSCRIBER, self._subscriber.name.encode()),
                (SEQUENCE, str(task.sequence).encode()),
            ]
            state = {self._key: json.dumps([self._rewinds, *kept]).encode()}
            self._end = 1 + writer.extend([task.value], [task.key], [[*own, *about]], [task.timestamp_us], state=state)
            self._stored, self._finished = kept, set()
        writer.sync()
        return position

    def _unfinished(self) -> list[str]:
        """Returns the letters that the state names, without those whose records are known to be finished. To know that of the
        letters of other workers takes a look at the whole window."""
        left = [position for position in self._stored if position not in self._finished]
        if len(left) < KEPT or len(left) & (len(left) - 1):
            return left
        unfinished = {entry[0] for entry in self._subscriber.window.snapshot()[2]}
        return [position for position in left if ForeignPosition.parse(position).sequence - 1 in unfinished]

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _letters_in(state: bytes, meta: Meta) -> tuple[int, list[str]]:
    """Returns what the state says: how often the position was moved back before these letters, and the positions after their
    records. Earlier versions of jlog have stored the sequences of the records."""
    rewinds, *found = json.loads(state)
    positions = [entry for entry in found if isinstance(entry, str)]
    numbers = [entry for entry in found if isinstance(entry, int)]
    kept = [number for number in numbers if ForeignPosition.of_number(meta, number + 1).shared_with(meta).end > number]
    return rewinds, [*positions, *(str(ForeignPosition.of(meta, number + 1)) for number in kept)]
