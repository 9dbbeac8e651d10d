"""Creates a journal in a directory, and takes one apart. Both hold the open lock, and both can be killed and done again."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from jlog._core.format.constants import RESERVATION_STRIDE
from jlog._core.format.dual_slot import BoundsFile
from jlog._core.recover.recovery import create_segment
from jlog._core.segments.build import segment_start
from jlog._core.system.durable import sync_directory
from jlog._core.system.file import OpenFile
from jlog._core.system.lock import NEVER, OWNERS, RANGES, Deadline, LockFile, check_alone
from jlog.errors import CorruptJournal, JournalExists, JournalLocked, JournalMoved
from jlog.options import DEFAULTS, PRECOMMIT_DEFAULT
from jlog.storage.meta import DELETED, DIRECTORIES, NAME, Meta, write_meta
from jlog.system.files import Directory, HeldPath, file_in, is_there, names_in, share, stat_file

NEW_SEGMENT_BYTES_MAX = 512  # a header, and a block without state
OWN_FILES = re.compile(
    r"\.?journal\.meta|\.?ids|precommit|bounds|\d{20}\.(seg|idx)"
    r"|next\.(\d{1,4}\.\d+(\.idx)?|recovery|repair|backup|restore\.idx)"  # all that a process leaves unfinished when it dies
)
# spark: rows that Spark has staged, jlog/spark/writing/left_over.py
OWN_DIRECTORIES = (*DIRECTORIES, "work", "quarantine", "spark")
_OF_A_CREATION = re.compile(r"lock|subscribers|checkpoints|bounds|\.journal\.meta|0{20}\.seg|next\.recovery")


@contextmanager
def opened_alone(path: str, deadline: Deadline, *, make: bool = False) -> Iterator[tuple[HeldPath, LockFile]]:
    """Holds the open lock of the directory at `path`, and yields the directory and its lock file. Looks again where one of them
    was removed or replaced while this waited for the lock. make=True creates the directory and those above it where they are
    missing, and raises JournalExists where files of others are in it."""
    while True:
        if make:
            with suppress(FileExistsError):  # it was deleted between two steps of makedirs()
                os.makedirs(path, exist_ok=True)
        held = lock_file = None
        try:
            held = HeldPath(path)
            if make:
                _refuse_others(held)
            lock_file = LockFile(file_in(held, "lock"), create=True)
            with lock_file.held(RANGES["open"], deadline=deadline, what="was creating, opening, changing or closing it"):
                if _are_current(held, lock_file):
                    yield held, lock_file
                    return
        except FileNotFoundError:
            if lock_file is not None or not make:  # else it was deleted since the directory was created
                raise
        finally:
            if lock_file is not None:
                lock_file.close()
            if held is not None:
                held.close()


def refuse_writers(path: str, lock_file: LockFile, before: str) -> None:
    """Raises JournalLocked while a process writes to the journal. The caller has the open lock. before: the step that the
    caller is about to take, for the error."""
    if lock_file.is_held(*OWNERS):
        raise JournalLocked(f"{path} is open for writing{lock_file.holders(*OWNERS)}; close its writers before {before}")
    check_alone(path)


def _are_current(held: HeldPath, lock_file: LockFile) -> bool:
    try:
        held.check()
        return os.path.samestat(stat_file(lock_file.path), os.fstat(lock_file.fileno()))
    except (JournalMoved, FileNotFoundError):
        return False


def create_if_missing(path: str, deadline: Deadline, **options: Any) -> None:
    """Creates a journal with these options, and the defaults of the others, unless there is one."""
    if not is_there(os.path.join(path, NAME)):
        created = {**DEFAULTS, "precommit": PRECOMMIT_DEFAULT, **options}
        create_journal(path, created, exist_ok=True, deadline=deadline)


def create_journal(path: str, options: dict[str, Any], *, exist_ok: bool, deadline: Deadline = NEVER) -> bool:
    """Creates an empty journal. Returns False where one exists and `exist_ok`. A creation or a deletion that was killed is
    completed first. Raises JournalLocked where another process creates it until the deadline."""
    if _is_no_directory(path):
        raise JournalExists(f"{path} is a file; choose another path for the journal, or remove it", path)
    with opened_alone(path, deadline, make=True) as (held, lock_file):
        if is_there(file_in(held, NAME)):
            if not exist_ok:
                message = f"{path} is already a journal; open it, or choose another path"
                raise JournalExists(message, path)
            return False
        if is_there(file_in(held, DELETED)):
            remove_own_files(held)
        _refuse_remains(held, lock_file)
        _fill(held, options, lock_file)
        return True


def _is_no_directory(path: str) -> bool:
    """Says whether something else than a directory is there, in one look: a directory may go at any moment."""
    try:
        return not stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return os.path.islink(path)  # to nothing
    except NotADirectoryError:
        return False  # makedirs() says what is in the way


def _refuse_others(held: HeldPath) -> None:
    """Raises JournalExists for a directory that is not empty and has no `lock`, which is the first file of a journal."""
    names = names_in(held)
    if names == ["lost+found"]:
        message = (
            f"{held} is the top of a file system, with its lost+found; choose a directory below it, such as {held}/journal"
        )
        raise JournalExists(message, held)
    if names and "lock" not in names:
        raise _has_others(held)


def _has_others(path: str) -> JournalExists:
    return JournalExists(f"{path} is a directory with other files; choose another path for the journal", path)


def _refuse_remains(held: HeldPath, lock_file: LockFile) -> None:
    """Raises unless the directory has no more than a creation that was killed leaves, which has no record: JournalExists for
    files of others, CorruptJournal for a journal that has lost its `journal.meta`."""
    names = names_in(held)
    segments = [name for name in names if name.endswith(".seg")]
    used = any(stat_file(file_in(held, name)).st_size > NEW_SEGMENT_BYTES_MAX for name in segments)
    if used or len(segments) > 1 or "precommit" in names:
        raise CorruptJournal(file_in(held, NAME), 0, "it is missing, although there are records")
    if os.fstat(lock_file.fileno()).st_size or not all(_OF_A_CREATION.fullmatch(name) for name in names):
        raise _has_others(held)


def _fill(held: HeldPath, options: dict[str, Any], lock_file: LockFile) -> None:
    """Creates every file but the pre-commit buffer, which the first writer creates. `journal.meta` comes last, for it makes the
    directory a journal."""
    import secrets  # slow to import, and most programs create no journal

    meta = Meta(secrets.token_bytes(16), [(secrets.randbits(63), 0)], options)
    share_lock(held, lock_file)
    for name in DIRECTORIES:
        Directory(held, name, make=True).close()
    start = segment_start(meta.uuid, meta.epoch, 0, None, {})
    create_segment(held, 0, start)
    BoundsFile.create(file_in(held, "bounds"), meta.uuid, RESERVATION_STRIDE, (0, len(start), 0))
    write_meta(held, meta)
    sync_directory(os.path.dirname(os.path.abspath(held)))


def share_lock(path: str, lock_file: LockFile) -> None:
    """Gives the lock file the owner, the group and the permissions of the directory. The core creates it, and knows none of
    them."""
    with Directory(path) as directory:
        share(lock_file.fileno(), directory.fd)


# --- Taking it apart ----------------------------------------------------------------------------------------------


def remove_own_files(held: HeldPath) -> None:
    """Removes all files of a journal that counts as deleted, but for `lock`: whoever holds that is at work here."""
    with Directory(held) as directory:
        for name in directory.names():
            if name in OWN_DIRECTORIES:
                _remove_tree(directory.fd, name)
            elif OWN_FILES.fullmatch(name):
                with suppress(IsADirectoryError):
                    directory.remove(name)
        directory.remove(DELETED)


def _remove_tree(directory: int, name: str) -> None:
    """Removes a directory with all that is in it. Leaves alone what is not a directory."""
    try:
        opened = OpenFile(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, directory)
    except NotADirectoryError:
        return
    with opened:
        for entry in os.listdir(opened.fd):
            try:
                os.unlink(entry, dir_fd=opened.fd)
            except IsADirectoryError:
                _remove_tree(opened.fd, entry)
    os.rmdir(name, dir_fd=directory)
