"""A subscriber that workers share: its name, its options, its window and the durable copy of that."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from jlog._core.system.lock import Deadline, LockFile, Mutex
from jlog._core.system.notices import warn
from jlog._core.work.window import NAME_BYTE, OPENING_BYTE, SYNCING_BYTE, Unusable, Window
from jlog.errors import CorruptJournal, JournalLocked, SubscriberBusy
from jlog.positions import work_files
from jlog.positions.position_files import SUBSCRIBER, PositionFile
from jlog.positions.work_files import ORDERS, WINDOW_MAX, DurableCopy, WorkOptions
from jlog.reading.journal_records import JournalRecords
from jlog.storage.attaching import sync_up_to
from jlog.storage.segments import end_now
from jlog.system.arguments import check_choice, check_count, check_seconds
from jlog.system.filesystem import journal_path

BACKOFF_MAX = 10 * 365 * 86_400.0


def check_options(path: str, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that are given for workers of the journal at `path`, checked, as they are stored."""
    # Without items(): where there is no memory for a pair, CPython 3.11 crashes in it. Below, too.
    found = {name: given[name] for name in given if given[name] is not None}
    check_choice("order", found.get("order", "any"), ORDERS)
    for name, most in (("max_attempts", (1 << 32) - 1), ("window", WINDOW_MAX)):
        if name in found:
            found[name] = check_count(name, found[name], most=most)
    if "backoff" in found:
        found["backoff"] = _backoff(found["backoff"])
    if "dead_letters" in found:
        found["dead_letters"] = journal_path(found["dead_letters"], "dead_letters")
        if os.path.realpath(found["dead_letters"]) == os.path.realpath(path):
            raise ValueError(
                f"{path} is the journal that is worked on: each dead letter would come as a new record, and be rejected again; "
                "dead letters need a journal of their own"
            )
    return found


def _backoff(given: Any) -> tuple[float, float]:
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise TypeError(f"backoff must be (first, most) seconds, not {given!r}")
    first, longest = (float(check_seconds("backoff", seconds, BACKOFF_MAX, zero=True)) for seconds in given)
    if first > longest:
        raise ValueError(f"backoff is (first, most) seconds, and first is not above most: not {given!r}")
    return first, longest


class SharedSubscriber:
    """The subscriber `name`, opened for one worker.

    given: options, checked; those that are not given stay as the subscriber has them.
    """

    def __init__(
        self,
        journal: JournalRecords,
        name: str,
        given: dict[str, Any],
        deadline: Deadline,
        lock_timeout: float | None,
    ) -> None:
        self.name = name
        self.options: WorkOptions = WorkOptions()
        self.rewinds: int = 0  # since the subscriber was shared
        self._revision = 0  # of the options
        self._journal = journal
        self._lock_timeout = lock_timeout
        self._given = given
        self._file = self._open_file(deadline)
        self._syncing = Mutex(self._file.path)
        try:
            self._open(deadline)
        except BaseException:
            self._file.close()
            raise

    def _open_file(self, deadline: Deadline) -> PositionFile:
        path, meta = self._journal.path, self._journal.meta
        while True:
            file = PositionFile(path, meta, SUBSCRIBER, self.name)
            try:
                file.check_writable()
                if not file.lock_file.acquire(OPENING_BYTE, timeout=deadline.left()):
                    raise JournalLocked(
                        f"{path}: another process opened a Worker of {self.name!r} for the whole lock_timeout; if it is "
                        "stopped, continue or end it"
                    )
            except BaseException:
                file.close()
                raise
            if file.is_current:
                return file
            file.close()

    def _open(self, deadline: Deadline) -> None:
        locks = self._file.lock_file
        alone = locks.acquire(NAME_BYTE, timeout=0)
        if not alone and not locks.acquire(NAME_BYTE, shared=True, timeout=0):
            raise SubscriberBusy(
                f"{self._journal.path}: subscriber {self.name!r} is read by a Reader: close it, or choose another name"
            )
        meta = self._journal.meta
        self.window: Window = Window(self._journal.path, meta.uuid, meta.epoch, self.name, locks, self._lock_timeout)
        try:
            changed = self._open_alone() if alone else self._join()
            self.window.register()
            if alone:
                locks.acquire(NAME_BYTE, shared=True)
                self.window.drop_before(self._position)
            if changed and alone:
                self.sync_finishes(deadline, anew=True)
            elif changed:
                self._change_options(deadline)
            locks.release(OPENING_BYTE)
        except BaseException:
            self.window.release()
            raise

    def _join(self) -> bool:
        """Opens the window beside living workers. Returns whether the options have to be changed."""
        path = self._journal.path
        try:
            self.window.open(alone=False)
        except (FileNotFoundError, Unusable) as error:
            reason = error if isinstance(error, Unusable) else "it was removed"
            raise JournalLocked(
                f"{self.window.path} cannot be used while other workers live that have it open: {reason}; close all workers of "
                f"{self.name!r}, and open them again"
            ) from None
        copy = work_files.read(path, self._journal.meta, self.name)
        self.options, self.rewinds = (copy.options, copy.rewinds) if copy else (WorkOptions(), 0)
        self._revision = self.window.revision
        return replace(self.options, **self._given) != self.options

    def _open_alone(self) -> bool:
        """Opens the window while no worker lives, or creates it. Returns whether the durable copy has to be written."""
        copy = self._durable_copy()
        known = copy.options if copy else WorkOptions()
        self.options = replace(known, **self._given)
        self.rewinds = copy.rewinds if copy else 0
        position = self._position = self.window.read_position()
        try:
            stored = self.window.open(alone=True)
            if stored > position:
                raise Unusable("the subscriber's position was moved back")
        except (FileNotFoundError, Unusable) as error:
            if copy is not None and not (copy.next_sequence is None and isinstance(error, FileNotFoundError)):
                self._tell(error)
            self._create(copy, position)
        self._configure()
        self.window.read_position()
        return copy is None or known != self.options

    def _configure(self) -> None:
        options = self.options
        self.window.configure(options.window, options.max_attempts or 0, options.order == "key", options.backoff)
        self._revision = self.window.revision

    def _change_options(self, deadline: Deadline) -> None:
        """Changes the options beside living workers. These see them in the window, or read them from the file once the window's
        revision has changed. No worker overwrites them meanwhile, since that needs the lock that is held here."""
        with self._syncs(deadline):
            self.refresh_options()
            self.options = replace(self.options, **self._given)
            self._log_changes(deadline, anew=True)
            self._configure()

    def refresh_options(self) -> None:
        """Reads the options again if any worker has changed them."""
        revision = self.window.revision
        if revision != self._revision:
            copy = work_files.read(self._journal.path, self._journal.meta, self.name)
            if copy is not None:
                self.options = copy.options
            self._revision = revision

    def _durable_copy(self) -> DurableCopy | None:
        try:
            return work_files.read(self._journal.path, self._journal.meta, self.name)
        except CorruptJournal as error:
            warn(self._journal.path, f"the options of the shared subscriber {self.name!r} are lost", error)
            return DurableCopy()

    def _tell(self, error: Exception) -> None:
        reason = "it is missing" if isinstance(error, FileNotFoundError) else error
        warn(self.window.path, "records that were finished may come again, for this window cannot be used", reason)

    def _create(self, copy: DurableCopy | None, position: int) -> None:
        """Creates the window, with what the durable copy says is finished."""
        following, unfinished = position, []
        if copy is not None and copy.next_sequence is not None:
            unfinished, following = copy.unfinished, max(position, copy.next_sequence)
            self._position = position = max(position, min((entry[0] for entry in unfinished), default=following))
        self.window.create(self.options.window, position, key_order=self.options.order == "key")
        self.window.restore(unfinished, following)

    # --- The durable copy ------------------------------------------------------------------------------------------

    def sync_finishes(self, deadline: Deadline, *, anew: bool = False) -> None:
        """Makes all finishes so far survive a power loss: those of the calls that wait here meanwhile too, in one go.

        anew: writes the copy also where nothing was finished since the last one.
        """
        wanted = self.window.finishes
        with self._syncs(deadline):
            if self.window.synced < wanted or anew:
                self.refresh_options()
                self._log_changes(deadline, anew)

    def _syncs(self, deadline: Deadline) -> AbstractContextManager[object]:
        what = f"was syncing what is finished of {self.name!r}"
        return self.lock_file.held(SYNCING_BYTE, deadline=deadline, what=what, mutex=self._syncing)

    def _log_changes(self, deadline: Deadline, anew: bool) -> None:
        """Writes what has changed since the last sync, or all that is unfinished."""
        path, meta = self._journal.path, self._journal.meta
        changes = None if anew else self.window.changes()
        file = None
        if changes is not None:
            finishes, following, passed, finished = changes
            self._sync_records(following, deadline)
            file = work_files.append(path, self.name, self.window.copy, following, finished, passed)
        if file is None:
            finishes, following, unfinished = self.window.snapshot()
            self._sync_records(following, deadline)
            file = work_files.write(path, meta, self.name, DurableCopy(self.options, following, unfinished, self.rewinds))
        self.window.note_synced(finishes, following, file)

    def _sync_records(self, following: int, deadline: Deadline) -> None:
        """Makes finished records durable before a file says that they are finished."""
        if end_now(self._journal.path, self._journal.meta.uuid, durable_only=True) < following:
            sync_up_to(self._journal.path, following, deadline)

    # --- The rest --------------------------------------------------------------------------------------------------

    @property
    def lock_file(self) -> LockFile:
        return self._file.lock_file

    def close(self) -> None:
        """Frees the name."""
        self._file.close()
