"""A worker for work outside of this process that may outlive it: the work holds a lock on its record until it ends."""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from hashlib import blake2b

from jlog._core.system.lock import Deadline, LockFile
from jlog._core.work.task import Task
from jlog._core.work.tasks import Interrupt
from jlog.working.worker import Tasks, Worker

FIRST_BYTE = 1 << 62  # of the subscriber's file, above all that workers lock in it
LATER_SECONDS = 0.2  # after which a record whose lock is held is tried again
SHORT = errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM

_log = logging.getLogger("jlog")


class ExclusiveTasks(Tasks):
    """Hands a record out with the lock of the record, or with order="key" of its key. A record whose lock is held is set aside:
    the worker holds it, without having begun it, until release_aside()."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._locks: dict[int, LockFile] = {}
        self._aside: deque[Task] = deque()
        self._is_short = False

    def take(self, most: int, deadline: Deadline, interrupt: Interrupt | None = None) -> list[Task]:
        try:
            return [task for task in super().take(most, deadline, interrupt) if self._lock(task)]
        except OSError as error:
            if error.errno not in SHORT:
                raise
            self.wait_for_more(error)
            return []

    def _lock(self, task: Task) -> bool:
        """Takes the task's lock. Where that is held, sets the task aside; after a stop it gives it back."""
        subscriber = self.policy._subscriber
        by_key = subscriber.options.order == "key" and task.key is not None
        name = b"key %b" % (task.key or b"") if by_key else b"%d" % task.sequence
        lock = LockFile(subscriber.lock_file.path)
        if not lock.acquire(FIRST_BYTE + (int.from_bytes(blake2b(name, digest_size=8).digest(), "little") >> 3), timeout=0):
            lock.close()
            self._aside.append(task)
        elif self.stopped:
            lock.close()
            task.release_quietly()
        else:
            self._locks[task.sequence] = lock
            return True
        return False

    def lock_of(self, task: Task) -> LockFile:
        """Returns the lock of a task that was handed out. It stays held while any process has a duplicate of its descriptor."""
        return self._locks.pop(task.sequence)

    def release_aside(self) -> None:
        """Gives back what was set aside, without an attempt, to be tried again."""
        for _ in range(len(self._aside)):
            self._aside.popleft().release_quietly()

    def wait_for_more(self, error: OSError) -> None:
        """Waits a little: other work that ends frees what this process or the machine is short of."""
        if not self._is_short:
            self._is_short = True
            _log.warning("%s; records wait for others to end: run fewer at a time, or raise the limit", error)
        time.sleep(LATER_SECONDS)


class ExclusiveWorker(Worker):
    _tasks = ExclusiveTasks
    _source: ExclusiveTasks
