"""Queues as journals: each is a journal of its own, whose consumers share one subscriber."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import jlog
from jlog.celery.temporary import SUBSCRIBER, TRANSIENT, TemporaryQueues, create, file_name
from jlog.celery.watching import Watch

PURGED_AT_ONCE = 1000
TIDY_SECONDS = 10.0  # between two looks for temporary queues that nobody consumes from any more

log: logging.Logger = logging.getLogger(__name__)


class Queues:
    """The queues below one directory, as one channel has them open."""

    def __init__(self, directory: Path, *, writer: dict[str, Any], worker: dict[str, Any]) -> None:
        self._directory = directory / "queues"
        self._temporary = TemporaryQueues(directory / "temporary")
        self._writer_options = writer
        self._worker_options = worker
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._declared: dict[str, dict[str, Any]] = {}  # temporary queues of this channel; their options
        self._writers: dict[str, jlog.Writer] = {}
        self._tidied = time.monotonic()
        self._workers: dict[str, jlog.Worker] = {}
        self._watches: dict[str, Watch] = {}

    # --- Which there are -------------------------------------------------------------------------------------------

    def path(self, queue: str) -> Path:
        return self._temporary.path(queue) if self.is_temporary(queue) else self._directory / file_name(queue)

    def is_temporary(self, queue: str) -> bool:
        return queue in self._declared or self._temporary.exists(queue)

    def exists(self, queue: str) -> bool:
        return (self._directory / file_name(queue) / "journal.meta").exists() or self._temporary.exists(queue)

    def declare(self, queue: str, *, temporary: bool = False, durable: bool = True) -> None:
        """Creates the queue if there is none. A temporary queue ends with its last consumer. If it is not durable either, it
        keeps only its newest MiB of messages."""
        if not self.exists(queue):
            if temporary:
                self._declared[queue] = self._writer_options if durable else TRANSIENT
                self._temporary.sweep()
            create(self.path(queue), **self._declared.get(queue, self._writer_options))

    def size(self, queue: str) -> int:
        """Returns how many messages are not done; among them those that consumers have taken."""
        if not self.exists(queue):
            return 0
        place = jlog.Journal(self.path(queue)).subscribers().get(SUBSCRIBER)
        if place is None:
            return 0
        return place.lag if place.work is None else place.work.unfinished

    # --- Putting ---------------------------------------------------------------------------------------------------

    def put(self, queue: str, message: bytes, *, creates: bool = True, keeps_open: bool = True) -> None:
        """Puts the message into the queue. One that does not exist is created, or the message is dropped. A temporary one may
        be closed again at once: no file of it stays open here when it ends."""
        if not keeps_open and self._temporary.exists(queue):
            with suppress(jlog.JournalNotFound), jlog.Writer(self.path(queue), create=False) as writer:
                writer.append(message)
            return
        if not creates and not self.exists(queue):
            return
        opened: jlog.Writer | None = None
        try:
            opened = self._writer(queue)
            opened.append(message)
        except (jlog.JournalMoved, jlog.JournalNotFound, jlog.JournalClosed):  # it was deleted, or is not used any more
            self._forget(self._writers, queue, opened)
            self.put(queue, message, creates=creates)

    def _writer(self, queue: str) -> jlog.Writer:
        with self._lock:
            if time.monotonic() >= self._tidied + TIDY_SECONDS:
                self._tidy()
            writer = self._writers.get(queue)
            if writer is None:
                self.declare(queue)
                writer = self._writers[queue] = jlog.Writer(self.path(queue), create=False)
            return writer

    def _tidy(self) -> None:
        """Closes the writers of temporary queues that have no consumer any more, and removes such queues."""
        self._tidied = time.monotonic()
        for queue in list(self._writers):
            if self.is_temporary(queue) and self._temporary.is_unused(queue):
                self._writers.pop(queue).close()
        self._temporary.sweep()

    # --- Taking ----------------------------------------------------------------------------------------------------

    def take(self, queue: str) -> jlog.Task | None:
        """Takes the next message, if there is one now. While a watch waits for the next message of the queue, there is none."""
        watch = self._watches.get(queue)
        if watch is not None and watch.is_waiting():
            return None
        worker = self._worker(queue)
        try:
            task = None if watch is None else watch.collect()
            tasks = worker.take(1, timeout=0) if task is None else [task]
        except jlog.JournalMoved:
            self._forget(self._workers, queue, worker)
            return self.take(queue)
        except jlog.PositionLost as error:  # its consumer is slow, and the queue is a transient one
            log.warning("messages of the queue %r were dropped before they were taken: %s", queue, error)
            return self.take(queue)
        return tasks[0] if tasks else None

    def watch(self, queue: str, ring: Callable[[], None]) -> None:
        """Rings when a message of the queue has come."""
        worker = self._worker(queue)
        with self._lock:
            watch = self._watches.get(queue)
            if watch is None or watch.worker is not worker:
                self._end_watch(queue)
                watch = self._watches[queue] = Watch(worker, ring)
        watch.want()

    def pause(self, queue: str | None = None) -> None:
        """Leaves the next messages to other consumers. queue: only those of this queue; None: those of all."""
        for name, watch in list(self._watches.items()):
            if queue in (None, name):
                watch.pause()

    def _end_watch(self, queue: str) -> None:
        watch = self._watches.pop(queue, None)
        if watch is not None:
            watch.close()

    def _forget(self, opened: dict[str, Any], queue: str, one: Any) -> None:
        """Lets the next call open a queue that was deleted and declared again. Other threads may still use the old object: it
        is not closed here, and what a worker has handed out may still be finished."""
        with self._lock:
            if opened.get(queue) is one:
                opened.pop(queue, None)

    def _worker(self, queue: str) -> jlog.Worker:
        with self._lock:
            if self._process != os.getpid():  # a child of a fork holds nothing of its parent
                self._process, self._workers, self._watches = os.getpid(), {}, {}
            worker = self._workers.get(queue)
            if worker is None:
                self.declare(queue)
                worker = self._workers[queue] = jlog.Worker(self.path(queue), SUBSCRIBER, **self._worker_options)
            return worker

    # --- The end ---------------------------------------------------------------------------------------------------

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
        """Deletes the queue, unless another process uses it. A temporary one ends unless another process consumes from it."""
        path, is_temporary = self.path(queue), self.is_temporary(queue)
        with self._lock:
            self._end_watch(queue)
            worker, writer = self._workers.pop(queue, None), self._writers.pop(queue, None)
            self._declared.pop(queue, None)
        if worker is not None:
            worker.close()
        if writer is not None:
            writer.close()
        if is_temporary:
            self._temporary.end(queue)
        else:
            with suppress(jlog.JournalNotFound, jlog.JournalLocked, jlog.SubscriberBusy):
                jlog.Journal.delete(path, lock_timeout=0)

    def close(self) -> None:
        """Gives back what was taken and not finished."""
        with self._lock:
            for queue in list(self._watches):
                self._end_watch(queue)
            workers, self._workers = self._workers, {}
            writers, self._writers = self._writers, {}
        for worker in workers.values():
            worker.close()
        for writer in writers.values():
            writer.close()


Binding = tuple[str, str, str]  # routing key, pattern, queue

OF_TEMPORARY = ".temporary"  # suffix of the binding of a temporary queue, which ends with the queue


class Bindings:
    """Bindings come and go as a whole, by one rename or unlink each, so that no process needs a lock for them."""

    def __init__(self, directory: Path, exists: Callable[[str], bool]) -> None:
        self._directory = directory
        self._exists = exists  # tells whether there is a queue of this name

    def _of(self, exchange: str) -> Path:
        return self._directory / hashlib.sha256(exchange.encode()).hexdigest()[:32]

    def _file(self, exchange: str, binding: Binding, suffix: str = "") -> Path:
        return self._of(exchange) / (hashlib.sha256(json.dumps(binding).encode()).hexdigest()[:32] + suffix)

    def add(self, exchange: str, binding: Binding, *, temporary: bool) -> None:
        _write(self._file(exchange, binding, OF_TEMPORARY if temporary else ""), json.dumps(binding))

    def remove(self, exchange: str, binding: Binding) -> None:
        for suffix in ("", OF_TEMPORARY):
            self._file(exchange, binding, suffix).unlink(missing_ok=True)

    def set_type(self, exchange: str, kind: str) -> None:
        _write(self._of(exchange) / "exchange.type", kind)

    def type_of(self, exchange: str) -> str | None:
        with suppress(FileNotFoundError):
            return (self._of(exchange) / "exchange.type").read_text()
        return None

    def table(self, exchange: str) -> list[Binding]:
        """Returns the bindings of the exchange. Those of temporary queues that are gone are removed."""
        bindings: list[Binding] = []
        with suppress(FileNotFoundError):
            for file in sorted(self._of(exchange).iterdir()):
                if file.suffix in ("", OF_TEMPORARY):
                    with suppress(FileNotFoundError):  # removed since it was listed
                        key, pattern, queue = json.loads(file.read_text())
                        if file.suffix == "" or self._exists(queue):
                            bindings.append((key, pattern, queue))
                        else:
                            file.unlink()
        return bindings


def _write(file: Path, text: str) -> None:
    """Creates the file as a whole, unless it exists. Any number of threads and processes, also of containers that count their
    processes apart, may do so at once."""
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{uuid.uuid4().hex}.new")
    unfinished.write_text(text)
    unfinished.rename(file)
