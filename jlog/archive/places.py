"""Finds archives: below a URL, in a directory, and the place for that of a journal."""

from __future__ import annotations

import os
import re

from jlog.archive.store import ArchiveFolder
from jlog.errors import JournalError, JournalNotFound

META = "archive.meta"  # a copy of the journal's journal.meta
MANIFEST = re.compile(r"(\d{20})\.json\Z", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{32}\Z")


def folder_of(url: str, journal: str, uuid: bytes) -> ArchiveFolder:
    """Returns the folder of this journal below `url`. Raises JournalError where that lies inside the journal."""
    folder = ArchiveFolder(url).below(uuid.hex())
    local = folder.local_path()
    if local is not None and os.path.realpath(local).startswith(os.path.realpath(journal) + os.sep):
        raise JournalError(f"{url} lies inside the journal {journal}; archive it somewhere else")
    return folder


def find(folder: ArchiveFolder) -> tuple[ArchiveFolder, dict[str, int | None]]:
    """Finds the folder of the one journal that is archived there. Returns it with the sizes of its files."""
    names = folder.sizes()
    if "bounds" in names:
        raise JournalError(f"{folder.url} is a journal, not an archive; open it by its path")
    if any(MANIFEST.match(name) for name in names):
        return folder, names
    uuids = sorted(name for name, size in names.items() if size is None and _UUID.match(name))
    if not uuids:
        raise JournalNotFound(
            f"{folder.url} contains no archived journal; give the URL that Retention(archive=) was given", folder.url
        )
    if len(uuids) > 1:
        choices = ", ".join(folder.url_of(uuid) for uuid in uuids)
        raise JournalError(f"{folder.url} contains the archives of several journals; give one of {choices}")
    found = folder.below(uuids[0])
    return found, found.sizes()


def archive_at(path: str) -> str | None:
    """Returns the URL of the archive in this directory; None where there is none."""
    from pathlib import Path

    try:
        names = os.listdir(path)
        found = META in names or any(os.path.exists(os.path.join(path, name, META)) for name in names if _UUID.match(name))
    except OSError:
        return None
    return Path(os.path.abspath(path)).as_uri() if found else None
