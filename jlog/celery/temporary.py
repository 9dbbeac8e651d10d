"""Queues that end with their consumer: of replies, of a worker's own commands, of events. They lie in a folder of their own."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jlog

SUBSCRIBER = "celery"
UNUSED_SECONDS = 60.0  # so long a queue may wait for its first consumer
PUT_SECONDS = 0.05  # longest wait for a process that puts a message there just now
TRANSIENT: dict[str, Any] = {  # a message that nobody takes in time may be lost
    "segment_bytes": 64 << 10,
    "retention": jlog.Retention(max_bytes=1 << 20, keep_for_subscribers=False),
}


def file_name(queue: str) -> str:
    name = quote(queue, safe="@")
    return "%2E" + name[1:] if name.startswith(".") else name


def create(path: Path, **options: object) -> None:
    """Creates the journal of a queue. Its subscriber keeps what is put there before anybody consumes."""
    jlog.Journal.create(path, exist_ok=True, **options)  # type: ignore[arg-type] # options of the user
    with suppress(jlog.SubscriberExists):
        jlog.Journal(path).add_subscriber(SUBSCRIBER)


class TemporaryQueues:
    """The queues below one directory. The last consumer removes its queue. If it was killed, or another process has the queue
    open at that moment, the next process that looks removes it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, queue: str) -> Path:
        return self._directory / file_name(queue)

    def exists(self, queue: str) -> bool:
        return (self.path(queue) / "journal.meta").exists()

    def end(self, queue: str) -> None:
        """Removes the queue, unless another process consumes from it."""
        _end(self.path(queue))

    def is_unused(self, queue: str) -> bool:
        return _is_unused(self.path(queue))

    def sweep(self) -> None:
        """Removes the queues whose consumers were killed."""
        with suppress(FileNotFoundError):
            for path in self._directory.iterdir():
                if _is_unused(path):
                    _end(path)


def _is_unused(path: Path) -> bool:
    """Tells whether the queue has no consumer, and has had time to get its first one."""
    try:
        return path.stat().st_mtime < time.time() - UNUSED_SECONDS and not _has_consumer(path)
    except FileNotFoundError:
        return True


def _has_consumer(path: Path) -> bool:
    try:
        place = jlog.Journal(path).subscribers().get(SUBSCRIBER)
    except jlog.JournalNotFound:
        return False
    return place is not None and place.busy


def _end(path: Path) -> None:
    if not _has_consumer(path):
        with suppress(jlog.JournalNotFound, jlog.JournalLocked, jlog.SubscriberBusy):
            jlog.Journal.delete(path, lock_timeout=PUT_SECONDS)
