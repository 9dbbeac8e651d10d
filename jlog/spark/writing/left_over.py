"""Removes the staged rows that dead writes have left. The next commit does so, or `jlogtool clean`.

It needs no Spark, for it may run where only the journal is.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress

import portalocker

import jlog
from jlog.errors import JournalError
from jlog.spark.writing.ledger import NAMELESS, queries
from jlog.system.files import Directory, read_small

DIRECTORY = "spark"  # in the journal's directory
STALE_SECONDS = 24 * 3600
BEGUN = "begun"  # file of a nameless write whose commit has begun: it names the directory where the rows are staged
PATH_BYTES_MAX = 1 << 16


def clean(path: str | os.PathLike[str]) -> list[str]:
    """Removes the rows that Spark has staged for writes that died, and returns the ids of these writes. Rows of a write that
    still runs stay, and so do rows of a commit that can be resumed. The process needs no Spark."""
    journal = os.path.abspath(path)
    return remove_left_over(journal, jlog.Journal(journal).uuid, {os.path.join(journal, DIRECTORY)}, None)


def elsewhere(directory: str, uuid: str) -> str:
    """Returns the place for the staged rows of a journal in a directory that several journals may share."""
    return os.path.join(directory, f"{DIRECTORY}-{uuid}")


def remove_left_over(journal: str, uuid: str, roots: set[str], own: str | None) -> list[str]:
    """Removes the remains of nameless writes that died in their commit, and of queries that have done nothing for a day. roots:
    the directories where queries stage; own: the query whose files stay. Files of commits that can be resumed stay, and files
    of a running commit."""
    homes = os.path.join(journal, DIRECTORY)
    entries = [entry for root in roots | {homes} for entry in _entries(root)]
    strays = {entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)}  # no query has created them
    names = {entry.name for entry in entries} - strays - {own}
    if names:
        names -= {name for name, known in queries(journal).items() if known.manifest is not None}
    removed = []
    for name in sorted(names):
        places = {os.path.join(root, name) for root in roots | {homes}}
        begun_in = _begun_in(os.path.join(homes, name), uuid)
        stale = max(_newest(place) for place in places) < time.time() - STALE_SECONDS
        if begun_in is not None or stale:
            places |= {begun_in} if begun_in is not None else set()
            if _remove_unless_held(journal, name, places):
                removed.append(name)
    for root in roots | {homes}:
        remove_if_empty(root)
    return removed


def _begun_in(home: str, uuid: str) -> str | None:
    """Returns the directory where a nameless write whose commit has begun stages; None for other writes."""
    name = os.path.basename(home)
    if not name.startswith(NAMELESS):
        return None
    try:
        place = os.fsdecode(read_small(os.path.join(home, BEGUN), PATH_BYTES_MAX))
    except (FileNotFoundError, JournalError):  # it may be a link, too
        return None
    # Another user of the journal may have written the file. It must not lead to files that are not the sink's.
    root = os.path.realpath(os.path.dirname(place))
    return os.path.join(root, name) if root == elsewhere(os.path.dirname(root), uuid) else home


def _remove_unless_held(journal: str, name: str, places: set[str]) -> bool:
    """Removes the directories, unless a commit of that query runs, which locks its directory in the journal. Says whether they
    are gone."""
    home = os.path.join(journal, DIRECTORY, name)
    with suppress(FileNotFoundError), Directory(journal, DIRECTORY, name) as held:
        try:
            portalocker.lock(held.fd, portalocker.LOCK_EX | portalocker.LOCK_NB)
        except portalocker.LockException:
            return False
        if not is_at(held.fd, home):
            return False  # another commit of that query has created it again
        _remove(places - {home})
        _remove({home})  # the last one, since it says where the others are
    _remove(places)
    return not any(os.path.exists(place) for place in places)


def _remove(places: set[str]) -> None:
    for place in places:
        shutil.rmtree(place, ignore_errors=True)
        remove_if_empty(os.path.dirname(place))


def is_at(fd: int, path: str) -> bool:
    """Says whether the path leads to the file that is open under `fd`."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def remove_if_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        return  # another query stages there


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return list(found)
    except FileNotFoundError:
        return []


def _newest(path: str) -> float:
    """Returns the time of the last change below the directory; 0 where there is nothing."""
    newest = 0.0
    for folder, _, names in os.walk(path):
        for name in ("", *names):
            try:
                newest = max(newest, os.stat(os.path.join(folder, name)).st_mtime)
            except FileNotFoundError:
                continue
    return newest
