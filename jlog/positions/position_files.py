"""The file of each subscriber and checkpoint, which holds its durable position."""

from __future__ import annotations

import errno
import os
import re
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from jlog._core.format import dual_slot
from jlog._core.system.durable import sync_directory
from jlog._core.system.lock import AT_ONCE, NEVER, RANGES, Deadline, HeldRange, LockFile
from jlog._core.work.window import look
from jlog.errors import CheckpointNotFound, CorruptJournal, JournalLocked, SubscriberBusy, SubscriberNotFound
from jlog.positions.names import check_name, check_new_name, is_name
from jlog.positions.work_files import WorkOptions
from jlog.storage.meta import Meta, check_is, read_meta, unless_deleted
from jlog.system.clock import time_of
from jlog.system.files import Directory, file_in, has_more_entries, is_there, stat_file

if TYPE_CHECKING:
    from collections.abc import Callable

SUBSCRIBER = "subscriber"
CHECKPOINT = "checkpoint"
FEW = 64


def table_locked(path: str, deadline: Deadline = NEVER) -> HeldRange:
    """Returns a context that holds the lock under which positions are created, removed or moved backward, and segments are
    removed. It raises JournalLocked where another process does one of these until the deadline."""
    with unless_deleted(path):
        return HeldRange(
            file_in(path, "lock"),
            RANGES["table"],
            deadline,
            f"{path}: its table of subscribers was being changed, or its segments removed, by another process for the whole "
            "lock_timeout; try again. If that process is stopped, continue or end it",
        )


DEAD_AFTER = timedelta(days=1)  # so that a subscriber is not called dead over a night without work


def is_dead(busy: bool, lag: int, idle_seconds: float) -> bool:
    """Says whether a subscriber is dead: it has records to read, no Reader has its name, and it has not moved for a day."""
    return not busy and lag > 0 and idle_seconds >= DEAD_AFTER.total_seconds()


@dataclass(frozen=True)
class SharedWork:
    """How the records of a shared subscriber stand: `taken`, `delayed`, `done` after the oldest unfinished one, `unfinished` up
    to the journal's end, and each living worker's pid with what it has taken. `full`: whether the window has no room, so that
    new records wait until unfinished ones are done. The totals count since the window was created; `deaths` are failures of
    records that their worker had in work when it died."""

    taken: int
    delayed: int
    done: int
    unfinished: int
    workers: list[dict[str, int]]
    takes: int = 0
    finishes: int = 0
    failures: int = 0
    rejections: int = 0
    deaths: int = 0
    full: bool = False
    options: WorkOptions = field(default_factory=WorkOptions)

    def fields(self) -> dict[str, Any]:
        """Returns what --json shows of a shared subscriber beside its position."""
        counts = {name: getattr(self, name) for name in ("taken", "delayed", "done", "unfinished", "workers")}
        return counts | {name: getattr(self.options, name) for name in ("order", "max_attempts", "dead_letters", "backoff")}


@dataclass(frozen=True)
class Position:
    """The position of a subscriber or a checkpoint."""

    sequence: int
    lag: int
    busy: bool = False  # whether a Reader or a Worker has the subscriber's name
    moved_us: int = 0  # clock when it was last moved, microseconds since 1970; 0: not known
    damaged: bool = False  # whether its file cannot be read: it holds everything back until it is set again
    idle_seconds: float = 0.0  # since it was last moved
    held_bytes: int = 0  # content of the sealed segments that retention keeps for it
    expired: bool = False  # whether a subscriber has not committed for subscriber_max_age, and holds nothing back any more
    work: SharedWork | None = None  # of a subscriber that Workers share

    @property
    def moved(self) -> datetime | None:
        """Time when it was last moved; for a subscriber, its last commit. None where that is not known."""
        return time_of(self.moved_us or None)

    @property
    def dead(self) -> bool:
        """Whether there are records to read, no Reader has the name, and nothing was committed for DEAD_AFTER, a day."""
        return is_dead(self.busy, self.lag, self.idle_seconds)


def _open(path: str, kind: str, name: str) -> tuple[LockFile, OSError | None]:
    """Opens the file, for reading alone where this process may not write, together with the error that says so. Raises
    FileNotFoundError where it is missing."""
    file, refused = path_of(path, kind, name), None
    with Directory(path, f"{kind}s") as directory:
        try:
            opened = LockFile(file)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
                raise
            opened, refused = LockFile(file, writable=False), error
        try:
            # A link may have taken the directory's place in between.
            named = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
            if not os.path.samestat(os.fstat(opened.fileno()), named):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
        except BaseException:
            opened.close()
            raise
        return opened, refused


class PositionFile:
    """The open file of one subscriber or checkpoint. The name is this object's while `held`. In a shared subscriber's workers
    lock bytes of their own in its `lock_file`."""

    def __init__(self, path: str, meta: Meta, kind: str, name: str) -> None:
        check_name(name, kind)
        self.kind = kind
        self.name = name
        self.path: str = path_of(path, kind, name)
        self._meta = meta
        try:
            self.lock_file: LockFile
            self.lock_file, self._refused = _open(path, kind, name)
        except FileNotFoundError:
            raise not_found(path, kind, name) from None
        # The core's method: a frame of Python here could be interrupted before the file is closed, and the name be held for as
        # long as anything keeps the exception.
        self.close: Callable[[], None] = self.lock_file.close

    def hold(self, deadline: Deadline) -> bool:
        """Takes the name, which the kernel gives back when this process dies. Returns False where another Reader has it until
        the deadline."""
        self.check_writable()
        try:
            return self.lock_file.acquire(0, timeout=deadline.left())
        except JournalLocked:
            return False  # this thread has it itself, so that no wait would end

    def check_writable(self) -> None:
        """Raises the OSError that says why this process may only read the file, if it is so."""
        if self._refused is not None:
            raise self._refused

    @property
    def is_current(self) -> bool:
        """Says whether the name still stands for this file: it may have been removed, and created again."""
        try:
            named, ours = stat_file(self.path), os.fstat(self.lock_file.fileno())
        except FileNotFoundError:
            return False
        return os.path.samestat(named, ours)

    @property
    def changed_us(self) -> int:
        """When it was written last, by the kernel's coarse clock; -1 where it was removed, or another one has its name."""
        return dual_slot.change_us(self.lock_file, self.path)

    def read(self) -> int:
        return self.read_all().sequence

    def read_all(self) -> dual_slot.StoredPosition:
        return dual_slot.read_position(self.lock_file, self._meta.uuid, self.path)

    def window(self) -> dict[str, Any] | None:
        """Returns what the window of a shared subscriber states; None if it has none in this boot."""
        journal = os.path.dirname(os.path.dirname(self.path))
        return look(journal, self._meta.uuid, self.name, self.lock_file) if self.kind == SUBSCRIBER else None

    def read_now(self) -> dual_slot.StoredPosition:
        """Reads the position; that of a shared subscriber as its workers have it, who write it every 64 records."""
        stored, window = self.read_all(), self.window()
        if window is not None and window["oldest"] > stored.sequence and window["stored"] == stored.sequence:
            return stored._replace(sequence=window["oldest"])
        return stored

    def write(self, sequence: int) -> None:
        """Writes the position. It survives the death of the process, but a power loss only after sync()."""
        dual_slot.write_position(self.lock_file, self._meta.uuid, self._meta.epoch, sequence, self.path)

    def take_up_window(self) -> None:
        """Writes the position as workers have left it that were killed. Called with the name held."""
        try:
            stored, now = self.read(), self.read_now().sequence
        except CorruptJournal:
            return  # as it is, until it is set again
        if now != stored:
            self.write(now)

    def to_commit(self) -> dual_slot.HeldPosition:
        """Returns the object that writes the position while the name is held."""
        return dual_slot.HeldPosition(self.lock_file, self._meta.uuid, self._meta.epoch, str(self.path))

    def sync(self) -> None:
        self.lock_file.sync()


def path_of(path: str, kind: str, name: str) -> str:
    return file_in(path, os.path.join(f"{kind}s", name))


def not_found(path: str, kind: str, name: str) -> LookupError:
    read_meta(path)  # raises where the journal was deleted, and all names with it
    found = names(path, kind)
    there = ", ".join(found[:FEW]) or "none"
    more = f" and {len(found) - FEW:,} more" if len(found) > FEW else ""
    error = SubscriberNotFound if kind == SUBSCRIBER else CheckpointNotFound
    return error(f"{path} has no {kind} {name!r}; there: {there}{more}")


def names(path: str, kind: str) -> list[str]:
    """Returns the names of all subscribers or checkpoints, sorted."""
    try:
        with Directory(path, f"{kind}s") as directory:
            found = directory.names()
    except FileNotFoundError:
        return []
    return sorted(name for name in found if is_name(name))


def are_many(path: str) -> bool:
    """Says whether there are so many subscribers or checkpoints that looking at them all takes a millisecond or more."""
    return any(has_more_entries(os.path.join(path, f"{kind}s"), FEW) for kind in (SUBSCRIBER, CHECKPOINT))


def exists(path: str, kind: str, name: str) -> bool:
    return is_there(path_of(path, kind, name))


def read(path: str, meta: Meta, kind: str, name: str) -> int:
    """Returns the stored position."""
    with closing(PositionFile(path, meta, kind, name)) as file:
        return file.read()


def create(path: str, meta: Meta, kind: str, name: str, sequence: int) -> None:
    """Creates a new position file, durably and as a whole. Called under the table's lock, which a deletion may have had."""
    check_is(path, meta)
    temporary = f".{os.getpid()}.new"
    with Directory(path, f"{kind}s", make=True) as directory, directory.made(check_new_name(name, kind), temporary) as fd:
        dual_slot.write_position(fd, meta.uuid, meta.epoch, sequence, os.path.join(directory.path, temporary))
    sync_directory(directory.path)


def put(path: str, meta: Meta, kind: str, name: str, sequence: int) -> None:
    """Creates the position or moves it, durably. Called under the table's lock."""
    if not exists(path, kind, name):
        create(path, meta, kind, name, sequence)
        return
    with closing(PositionFile(path, meta, kind, name)) as file:
        file.write(sequence)
        file.sync()


def hold(path: str, meta: Meta, name: str, deadline: Deadline = AT_ONCE) -> PositionFile:
    """Opens the subscriber's file and takes the name. Raises SubscriberBusy where another Reader has it until the deadline."""
    while True:
        file = PositionFile(path, meta, SUBSCRIBER, name)
        try:
            if not file.hold(deadline):
                raise SubscriberBusy(f"{path}: subscriber {name!r} {_read_by(file.lock_file.holders(0))}")
            if file.is_current:
                file.take_up_window()
                return file
        except BaseException:
            file.close()  # what was raised may hold on to this frame
            raise
        file.close()


def _read_by(holders: str) -> str:
    """Says who reads a subscriber, and what to do. holders: the processes, as LockFile names them."""
    if str(os.getpid()) in re.findall(r"\d+", holders):
        return (
            f"is read by another Reader or by Workers of this process{holders}, as when a notebook's cell runs again: close "
            "these first, or open them in a `with` block, which closes them; or choose another name"
        )
    return f"is read by another Reader or by Workers{holders}: close these, or choose another name"


def remove(path: str, kind: str, name: str) -> None:
    """Removes the file. Called under the table's lock, and for a subscriber with its name held."""
    try:
        with Directory(path, f"{kind}s") as directory:
            os.unlink(check_name(name, kind), dir_fd=directory.fd)
    except FileNotFoundError:
        raise not_found(path, kind, name) from None


def standing(path: str, meta: Meta, kind: str) -> list[tuple[str, dual_slot.StoredPosition | None]]:
    """Returns name and stored position of every subscriber or checkpoint, with None for a file that cannot be read."""
    try:
        with Directory(path, f"{kind}s") as directory:
            found = sorted(name for name in directory.names() if is_name(name))
            return dual_slot.read_positions(directory.fd, directory.path, found, meta.uuid)
    except FileNotFoundError:
        return []


def lowest(path: str, meta: Meta) -> tuple[PositionFile, int] | None:
    """Opens the subscriber or checkpoint with the lowest position, and returns it with that position. Returns None where one
    cannot be read."""
    found = [
        (at.sequence if at else -1, kind, name) for kind in (SUBSCRIBER, CHECKPOINT) for name, at in standing(path, meta, kind)
    ]
    if not found or min(found)[0] < 0:
        return None
    sequence, kind, name = min(found)
    try:
        return PositionFile(path, meta, kind, name), sequence
    except LookupError:
        return None  # removed in the meantime


def sync_all(path: str, meta: Meta) -> None:
    """Makes every position durable. Called under the table's lock."""
    for kind in (SUBSCRIBER, CHECKPOINT):
        for name in names(path, kind):
            with closing(PositionFile(path, meta, kind, name)) as file:
                file.sync()
