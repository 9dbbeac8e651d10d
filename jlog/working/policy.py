"""Decoding, rejection, dead letters and retention for the tasks of one worker."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from jlog._core.system.lock import NEVER, Deadline
from jlog._core.system.notices import warn
from jlog._core.work.task import Task, TaskHolder
from jlog.care.passed_segments import PassedSegments
from jlog.errors import DecodeError, JournalClosed, JournalError, LeaseLost, text_of
from jlog.reading.journal_records import JournalRecords
from jlog.typed.codec import Decoder
from jlog.working.shared_subscriber import SharedSubscriber

if TYPE_CHECKING:
    from jlog.working.dead_letters import DeadLetters


REJECTING_SECONDS = 1.0  # that a take waits for another worker which rejects a record


class TaskPolicy:
    """Decodes and rejects the tasks of one worker, and lets retention look. The core calls it. It refers neither to the worker
    nor to the source of its tasks: so a worker is freed as soon as the program has no reference to it."""

    def __init__(
        self,
        journal: JournalRecords,
        subscriber: SharedSubscriber,
        decoder: Decoder | None,
        lock_timeout: float | None,
    ) -> None:
        self._path = str(journal.path)  # without the descriptor of the directory
        self._epoch = journal.meta.epoch
        self._subscriber = subscriber
        self._decoder = decoder
        self._lock_timeout = lock_timeout
        self._passed = PassedSegments(journal.path, journal.meta, journal.cursor, subscriber.name)
        self._warned = False
        self._uuid = journal.meta.uuid
        self._letters: DeadLetters | None = None
        self._letters_path: str | None = None
        self._choosing = threading.Lock()

    def deadline(self) -> Deadline:
        return NEVER if self._lock_timeout is None else Deadline(self._lock_timeout)

    def close(self) -> None:
        if self._letters is not None:
            self._letters.close()
        self._passed.close()

    def _dead_letters(self) -> DeadLetters | None:
        """Returns where rejected records go now; None if they go nowhere. Any worker may have changed that."""
        self._subscriber.refresh_options()
        path = self._subscriber.options.dead_letters
        with self._choosing:
            if path is not None and path != self._letters_path:  # other threads may still use those of before
                from jlog.working.dead_letters import DeadLetters  # few programs need it

                self._letters = DeadLetters(self._subscriber, self._path, self._uuid, self._lock_timeout)
                self._letters_path = path
            return self._letters

    def open_letters(self) -> None:
        """Raises what would keep reject() from storing a dead letter now."""
        letters = self._dead_letters()
        if letters is not None:
            letters.open(self.deadline())

    def decode(self, task: Task) -> Any:
        if self._decoder is None:
            raise JournalError(f"{self._path}: this worker has no codec; open it with codec=…, or use task.value")
        return self._decoder.decode(task)

    def passed(self, committed: int) -> int:
        """Lets retention look, once for each segment. Returns the position at which it wants to look again."""
        self._passed.clean(committed)
        return self._passed.clean_at

    def warn_full(self, limit: int) -> None:
        if not self._warned:
            self._warned = True
            warn(
                self._path,
                f"subscriber {self._subscriber.name!r} hands out no new records",
                f"its window of {limit} unfinished ones is full",
            )

    def sync_finishes(self) -> None:
        """Makes all finishes so far survive a power loss. Calls that wait for this meanwhile share one sync."""
        self._subscriber.sync_finishes(self.deadline())

    def note_reason(self, sequence: int, reason: str) -> None:
        from jlog.working import reasons  # where nothing fails it is not needed

        reasons.note(self._path, self._epoch, self._subscriber.name, sequence, reason)

    def failed(self, holder: TaskHolder, task: Task, error: BaseException) -> None:
        """Ends a `with task` out of which an exception came, which goes on to the caller whatever becomes of the task."""
        try:
            if isinstance(error, DecodeError) and error.sequence == task.sequence and self._dead_letters() is not None:
                task.reject(reason_of(error))  # another attempt would fail too
            elif isinstance(error, Exception):
                task.nack(reason=reason_of(error))
            else:
                task.release()
        except (JournalError, OSError) as refused:
            self._put_off(holder, task, refused)

    def _put_off(self, holder: TaskHolder, task: Task, refused: Exception) -> None:
        """Lets a record come again that could not be rejected or given back, such as while the disk of the dead letters is
        full."""
        if isinstance(refused, (LeaseLost, JournalClosed)):
            return
        try:
            holder.put_off(task)
        except JournalError:
            return
        warn(self._path, f"record {task.sequence} could not be rejected or given back, and comes again", refused)

    def reject(self, holder: TaskHolder, task: Task, reason: str, deadline: Deadline | None = None) -> None:
        letters = self._dead_letters()
        if letters is not None:
            letters.reject(holder, task, reason, deadline or self.deadline())
            self._subscriber.sync_finishes(deadline or self.deadline())
            return
        warn(self._path, f"record {task.sequence} was rejected after {task.attempt} attempts", reason or "no reason given")
        holder.count_rejection(task)

    def reject_exhausted(self, holder: TaskHolder, task: Task) -> None:
        """Rejects a record that was given back with no attempt left."""
        try:
            # Another worker may be stopped while it rejects: the records that are taken meanwhile do not wait for it.
            self.reject(holder, task, "its worker died, or its lease ended, in its last attempt", Deadline(REJECTING_SECONDS))
        except (JournalError, OSError) as refused:
            self._put_off(holder, task, refused)
        except BaseException:
            holder.put_off(task)
            raise


def reason_of(error: BaseException) -> str:
    """Returns the last line of the error's traceback."""
    text = text_of(error)
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}: {text}" if text else name
