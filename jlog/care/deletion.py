"""Deletes a journal."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress

from jlog._core.system.durable import sync_directory
from jlog._core.system.lock import NEVER, RANGES, Deadline, LockFile
from jlog.errors import JournalLocked, JournalMoved
from jlog.positions import position_files
from jlog.positions.position_files import SUBSCRIBER
from jlog.storage.creation import opened_alone, refuse_writers, remove_own_files
from jlog.storage.meta import DELETED, NAME, read_meta
from jlog.system.files import Directory, HeldPath, file_in, is_there, naming_its_path


@naming_its_path
def delete(path: str, deadline: Deadline = NEVER) -> None:
    """Removes the journal's own files, and the directory if nothing else is in it.

    The first step renames `journal.meta`, durably: from then on there is no journal. A call that is killed later is completed
    by the next one, or by the next creation of a journal there."""
    while True:
        if not is_there(os.path.join(path, DELETED)):
            read_meta(path)  # raises where no journal is there, and a lock would be created in a directory of others
        with suppress(FileNotFoundError):  # another process has deleted it meanwhile
            return _delete(path, deadline)


def _delete(path: str, deadline: Deadline) -> None:
    with opened_alone(path, deadline) as (held, lock_file), ExitStack() as subscribers:
        # Whoever creates a subscriber waits for the table, and whoever opens one for its name. A file that they created in the
        # meantime would stay, and the directory would be neither a journal nor free for one.
        with position_files.table_locked(held, deadline):
            if not is_there(file_in(held, DELETED)):
                _refuse_in_use(held, lock_file, subscribers)
                with Directory(held) as directory:
                    os.rename(NAME, DELETED, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
                sync_directory(held)
            remove_own_files(held)
            with Directory(held) as directory:
                directory.remove("lock")
                if directory.names():
                    return
        with suppress(OSError, JournalMoved):  # another process may be creating a journal here by now
            held.check()
            os.rmdir(os.path.realpath(path))  # a link to the directory stays


def _refuse_in_use(held: HeldPath, lock_file: LockFile, subscribers: ExitStack) -> None:
    """Raises where somebody uses the journal. Otherwise takes the names of all subscribers."""
    meta = read_meta(held)
    refuse_writers(held, lock_file, "deleting it")
    if lock_file.is_held(RANGES["copy"]):
        who = lock_file.holders(RANGES["copy"])
        raise JournalLocked(f"{held} is being copied by a backup{who}; delete it when that is done")
    for name in position_files.names(held, SUBSCRIBER):
        subscribers.callback(position_files.hold(held, meta, name).close)
