"""What works on a record outside this process, and may outlive it, holds a lock until it ends."""

from __future__ import annotations

from hashlib import blake2b

from jlog._core.system.lock import LockFile
from jlog._core.work.task import Task
from jlog.working.worker import Worker

FIRST_BYTE = 1 << 62  # of the subscriber's file, above all that workers lock in it


def exclusive(worker: Worker, task: Task) -> LockFile:
    """Waits until nobody else has the lock of the task's record, or with order="key" of its key, and takes it. Whoever has a
    duplicate of its descriptor keeps it."""
    subscriber = worker._subscriber
    by_key = subscriber.options.order == "key" and task.key is not None
    name = b"key %b" % (task.key or b"") if by_key else b"%d" % task.sequence
    lock = LockFile(subscriber.lock_file.path)
    try:
        lock.acquire(FIRST_BYTE + (int.from_bytes(blake2b(name, digest_size=8).digest(), "little") >> 3))
    except BaseException:
        lock.close()
        raise
    return lock
