"""Takes tasks from a subscriber that many workers share."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import closing
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakSet

from jlog._core.read.cursor import Cursor
from jlog._core.system.lock import NEVER, Deadline
from jlog._core.work.task import Task
from jlog._core.work.tasks import Interrupt, TaskSource
from jlog.options import check_lock_timeout
from jlog.positions import position_files
from jlog.positions.names import Start, check_name
from jlog.positions.position_files import SUBSCRIBER, PositionFile
from jlog.positions.work_files import Order
from jlog.reading.journal_records import JournalRecords
from jlog.reading.subscriber import create_if_missing as create_subscriber
from jlog.storage.creation import create_if_missing
from jlog.storage.damage import Damage
from jlog.storage.meta import Meta
from jlog.system.arguments import SECONDS_MAX, check_count, check_flag, check_seconds, check_timeout
from jlog.system.files import HeldPath
from jlog.system.filesystem import journal_path
from jlog.typed.codec import Decoder
from jlog.working.policy import TaskPolicy
from jlog.working.shared_subscriber import SharedSubscriber, check_options

if TYPE_CHECKING:
    from jlog.typed.codec import Codec
    from jlog.working.asynchronous import AsyncTakes
    from jlog.working.running import Run


class Tasks(TaskSource):
    """The records of the subscriber. What take() raises is handled in Python, whose frame has its memory by then."""

    def take(self, most: int, deadline: Deadline, interrupt: Interrupt | None = None) -> list[Task]:
        try:
            return TaskSource.take(self, most, deadline, interrupt)
        except BaseException as error:
            self.untold(error)
            if isinstance(error, OSError):
                self.window.check_open()  # close() in another thread may have closed the files under the call
            raise


_sources: WeakSet[Tasks] = WeakSet()
_children: set[int] = set()  # processes of multiprocessing that call _leave() as they end, since they do not run atexit


@atexit.register
def _leave() -> None:
    """Notes that the program ends by itself, without close(): what its workers hold has not failed."""
    for source in list(_sources):
        source.window.leave()


def _let_leave(source: Tasks) -> None:
    _sources.add(source)
    finalizers = sys.modules.get("multiprocessing.util")
    if finalizers is not None and os.getpid() not in _children:
        _children.add(os.getpid())
        finalizers.Finalize(None, _leave, exitpriority=0)


class Worker:
    """One of many workers that share the subscriber `name` of the journal at `path`. Each record goes to one of them at a time,
    and is finished by itself.

    A record is delivered at least once: again if its worker dies, or its lease ends and another worker takes it. A finished one
    is never delivered again, whichever process is killed. A worker that is not closed, because the program ends or has no
    reference to it any more, gives back what it holds, as close() does. The subscriber's committed position is its oldest
    unfinished record, so retention, lag and checkpoints treat it as any subscriber. A name belongs to one Reader, or to any
    number of Workers.

    start, create: as those of Reader.
    lease: seconds for which a taken record stays with this worker without an extend(). None: while its process lives.
    codec: decodes records, for example `jlog.typed.json(Order)`: `task.decoded` is an object. A record that it cannot decode
        goes to the dead letters at once, if there are any, when the DecodeError ends its attempt.
    lock_timeout: seconds that one call waits for the locks of others, before JournalLocked; None: for ever.

    The other options belong to the subscriber. None leaves them as they are. Another value holds for all workers that live, and
    for those that are opened later.

    order: "any", or "key": records with the same key are handed out one after the other, in their order. It holds for records
        that no worker has come to before. New: "any".
    max_attempts: a record that has failed so often is rejected. New: no limit. A failure is a nack, an exception, a lease that
        was taken over, and the death of a worker that had the record in work.
    dead_letters: path of another journal, for rejected records. New: none; a rejected record is finished, counted and logged.
    backoff: (first, most) seconds before the next attempt, doubled each time. New: (1.0, 60.0).
    window: most records that are handed out, delayed or passed over because of their key, and not finished. New: 65,536.

    Any number of threads may use one Worker. After a fork the child's worker raises JournalClosed, and frees nothing.
    """

    _tasks: type[Tasks] = Tasks
    _source: Tasks
    _async: AsyncTakes | None = None
    _run: Run | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str,
        *,
        start: Start = "begin",
        create: bool = True,
        lease: float | None = None,
        codec: Codec | None = None,
        lock_timeout: float | None = None,
        order: Order | None = None,
        max_attempts: int | None = None,
        dead_letters: str | os.PathLike[str] | None = None,
        backoff: tuple[float, float] | None = None,
        window: int | None = None,
    ) -> None:
        self._lock_timeout = check_lock_timeout(lock_timeout)
        check_name(name, SUBSCRIBER)
        check_flag("create", create)
        if lease is not None:
            check_seconds("lease", lease, SECONDS_MAX, more=", or None: as long as this process lives")
        given = check_options(
            journal_path(path),
            {"order": order, "max_attempts": max_attempts, "dead_letters": dead_letters, "backoff": backoff, "window": window},
        )
        deadline = NEVER if self._lock_timeout is None else Deadline(self._lock_timeout)
        if create:
            create_if_missing(journal_path(path), deadline)
        self._journal = journal = JournalRecords(path, durable_only=False)
        decoder = None if codec is None else Decoder(codec, str(journal.path))
        create_subscriber(journal, name, start, create, deadline)
        self._subscriber = SharedSubscriber(journal, name, given, deadline, self._lock_timeout)
        try:
            again = Cursor(journal.path, journal.meta.uuid)
            self._policy = TaskPolicy(journal, self._subscriber, decoder, self._lock_timeout)
            self._source = self._tasks(self._subscriber.window, journal.cursor, again, self._policy, lease)
            self._source.begin()
            _let_leave(self._source)
        except BaseException:
            self._subscriber.close()
            raise
        self._closed = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"<jlog.Worker {self._journal.path!r} {self.name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Worker cannot be pickled; hand over its path and name, and open one where they arrive")

    @property
    def name(self) -> str:
        return self._subscriber.name

    @property
    def path(self) -> str:
        return self._journal.path

    @property
    def committed(self) -> int:
        """Sequence of the subscriber's oldest unfinished record."""
        return self._source.window.committed

    # --- Taking ----------------------------------------------------------------------------------------------------

    def take(self, max_records: int = 1, timeout: float | None = None) -> list[Task]:
        """Takes at least one record, and at most `max_records`. The list is empty only if none came within `timeout` seconds
        (None: waits for ever). What is free again or due comes before what is new.

        Raises PositionLost once for unfinished records that retention was forced to remove; the next call goes on after them.
        Raises CorruptJournal at damage, until skip_damage().
        """
        max_records = check_count("max_records", max_records)
        check_timeout("timeout", timeout)
        return self._source.take(max_records, Deadline(timeout))

    def skip_damage(self) -> Damage:
        """Goes on after the damage that take() has met among new records, and says what was lost."""
        return self._source.with_cursor(self._journal.skip_damage)

    def tasks(self, timeout: float | None = None) -> Iterator[Task]:
        """Iterates over tasks, each taken when it is asked for. It ends after `timeout` seconds without one; None: never. After
        stop() it ends too."""
        check_timeout("timeout", timeout)
        while not self._source.stopped:
            tasks = self.take(1, timeout)
            if not tasks:
                return
            tasks[0].begin()
            yield tasks.pop()  # this frame keeps no reference to a task that the program has dropped

    def __iter__(self) -> Iterator[Task]:
        return self.tasks()

    async def take_async(self, max_records: int = 1, timeout: float | None = None) -> list[Task]:
        """The same as take(), in the running asyncio loop. A call that is cancelled gives back what it was about to return."""
        max_records = check_count("max_records", max_records)
        check_timeout("timeout", timeout)
        return await self._takes().take(max_records, timeout)

    def tasks_async(self, timeout: float | None = None) -> AsyncIterator[Task]:
        """The same as tasks(), for `async for` in the running asyncio loop."""
        check_timeout("timeout", timeout)
        return self._takes().tasks(timeout)

    def _takes(self) -> AsyncTakes:
        if self._async is None:
            from jlog.working.asynchronous import AsyncTakes  # imports asyncio, which most programs do not need

            self._async = AsyncTakes(self._source)
        return self._async

    # --- Running ---------------------------------------------------------------------------------------------------

    def run(self, handle: Callable[[Task], object], *, threads: int = 1, grace: float = 30.0) -> None:
        """Calls handle(task) for each task, in `threads` threads, until stop(), SIGTERM or SIGINT. It acknowledges a task when
        handle returns; an Exception is logged, and the task is given back for its next attempt.

        After a stop it waits for `grace` seconds until the tasks in work are finished, and then gives them back without an
        attempt. It extends no lease. In the main thread it sets the handlers of SIGTERM and SIGINT, and restores them.
        """
        from jlog.working.running import Run

        self._check_open()
        self._run = Run(self._source, self.stop, self.path, handle)
        try:
            self._run.run(threads, grace)
        finally:
            self._run = None

    def stop(self) -> None:
        """Ends run() and the iterations of this worker, in any thread, once what they hold is finished, and those that begin
        later at once: to go on, open another worker."""
        self._source.stopped = True
        if self._pid != os.getpid():
            return  # another thread of the parent may have held what wake() needs
        self._source.ring()
        if self._run is not None:
            self._run.wake()

    # --- Finishing -------------------------------------------------------------------------------------------------

    def ack(self, tasks: Iterable[Task], *, durable: bool = False) -> None:
        """Finishes these tasks, those that are still held. Then raises LeaseLost for the others, with them in its `tasks`. With
        `durable=True` the finishes survive a power loss when it returns."""
        try:
            self._source.finish_all(list(tasks))
        finally:
            if durable:
                self.sync_finishes()

    def sync_finishes(self) -> None:
        """Makes all finishes so far survive a power loss. Calls that wait for this meanwhile share one sync."""
        self._policy.sync_finishes()

    # --- The end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Gives back what this worker holds, without an attempt, and frees its place. A second close does nothing. Threads that
        wait in this worker get JournalClosed. In a child of a fork it does nothing."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        # Each part is closed even if one before it fails. Without memory an ExitStack could not be created.
        try:
            self._source.close()
        finally:
            try:
                if self._run is not None:
                    self._run.wake()
                self._policy.close()
            finally:
                try:
                    self._subscriber.close()
                finally:
                    held = self._journal.path
                    self._journal.close()
                    if isinstance(held, HeldPath):  # other objects of this worker still name files below it
                        held.close()

    def _check_open(self) -> None:
        self._source.window.check_open()

    def __enter__(self) -> Worker:  # noqa: PYI034
        self._check_open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def sync_finishes(path: str, meta: Meta, lock_timeout: float | None) -> None:
    """Does what Worker.sync_finishes does, for all shared subscribers of the journal at the absolute `path`."""
    for name in position_files.names(path, SUBSCRIBER):
        try:
            with closing(PositionFile(path, meta, SUBSCRIBER, name)) as file:
                window = file.window()
        except LookupError:
            continue  # removed in the meantime
        if window is not None and window["finishes"] != window["synced"]:
            with Worker(path, name, create=False, lock_timeout=lock_timeout) as worker:
                worker.sync_finishes()
