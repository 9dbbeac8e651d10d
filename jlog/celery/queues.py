"""Queues as journals: each is a journal of its own, whose consumers share one subscriber."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jlog

SUBSCRIBER = "celery"
PURGED_AT_ONCE = 1000
TEMPORARY_BYTES = 1 << 20  # of a queue that belongs to one process: a message that nobody takes there is no loss


class Queues:
    """The queues below one directory, as one channel has them open."""

    def __init__(self, directory: Path, *, writer: dict[str, Any], worker: dict[str, Any]) -> None:
        self._directory = directory
        self._writer_options = writer
        self._worker_options = worker
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._writers: dict[str, jlog.Writer] = {}
        self._workers: dict[str, jlog.Worker] = {}

    def path(self, queue: str) -> Path:
        return self._directory / quote(queue, safe="@")

    def exists(self, queue: str) -> bool:
        return (self.path(queue) / "journal.meta").exists()

    def declare(self, queue: str, *, temporary: bool) -> None:
        """Creates the queue if there is none. Its subscriber keeps what is put there before anybody consumes."""
        if self.exists(queue):
            return
        retention = jlog.Retention(max_bytes=TEMPORARY_BYTES, keep_for_subscribers=False) if temporary else jlog.Retention()
        options = {"retention": retention, **self._writer_options}
        jlog.Journal.create(self.path(queue), exist_ok=True, **options)
        with suppress(jlog.SubscriberExists):
            jlog.Journal(self.path(queue)).add_subscriber(SUBSCRIBER)

    def put(self, queue: str, message: bytes) -> None:
        with self._lock:
            writer = self._writers.get(queue)
            if writer is None:
                self.declare(queue, temporary=False)
                writer = self._writers[queue] = jlog.Writer(self.path(queue))
        try:
            writer.append(message)
        except jlog.JournalMoved:
            self._forget(self._writers, queue, writer)
            self.put(queue, message)

    def take(self, queue: str) -> jlog.Task | None:
        worker = self._worker(queue)
        try:
            tasks = worker.take(1, timeout=0)
        except jlog.JournalMoved:
            self._forget(self._workers, queue, worker)
            return self.take(queue)
        return tasks[0] if tasks else None

    def _forget(self, opened: dict[str, Any], queue: str, one: Any) -> None:
        """Lets the next call open a queue that was deleted and declared again. Other threads may still use the old object: it
        is not closed here, and what a worker has handed out may still be finished."""
        with self._lock:
            if opened.get(queue) is one:
                del opened[queue]

    def _worker(self, queue: str) -> jlog.Worker:
        with self._lock:
            if self._process != os.getpid():  # a child of a fork holds nothing of its parent
                self._process, self._workers = os.getpid(), {}
            worker = self._workers.get(queue)
            if worker is None:
                self.declare(queue, temporary=False)
                worker = self._workers[queue] = jlog.Worker(self.path(queue), SUBSCRIBER, **self._worker_options)
            return worker

    def size(self, queue: str) -> int:
        """Returns how many messages are not done; among them those that consumers have taken."""
        if not self.exists(queue):
            return 0
        at = jlog.Journal(self.path(queue)).subscribers().get(SUBSCRIBER)
        if at is None:
            return 0
        return at.lag if at.work is None else at.work.unfinished

    def purge(self, queue: str) -> int:
        if not self.exists(queue):
            return 0
        purged = 0
        worker = self._worker(queue)
        while tasks := worker.take(PURGED_AT_ONCE, timeout=0):
            worker.ack(tasks)
            purged += len(tasks)
        return purged

    def delete(self, queue: str) -> None:
        """Deletes the queue, unless another process uses it."""
        with self._lock:
            worker, writer = self._workers.pop(queue, None), self._writers.pop(queue, None)
        if worker is not None:
            worker.close()
        if writer is not None:
            writer.close()
        with suppress(jlog.JournalNotFound, jlog.JournalLocked, jlog.SubscriberBusy):
            jlog.Journal.delete(self.path(queue), lock_timeout=0)

    def close(self) -> None:
        """Gives back what was taken and not finished."""
        with self._lock:
            workers, self._workers = self._workers, {}
            writers, self._writers = self._writers, {}
        for worker in workers.values():
            worker.close()
        for writer in writers.values():
            writer.close()
