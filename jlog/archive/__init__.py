"""The archive: segments that retention has moved out of a journal.

`Retention(archive=)` names the place, `Journal.clean()` copies segments there, `jlog.Reader(url)` reads them, and
`jlog.Reader(path, archive=True)` reads the archive and goes on in the journal.
"""

from __future__ import annotations

import os

from jlog.archive.archive import Archive
from jlog.archive.manifest import ArchivedSegment
from jlog.archive.places import archive_at
from jlog.archive.restore import restore
from jlog.errors import JournalNotFound
from jlog.options import retention_of
from jlog.storage.meta import read_meta
from jlog.storage.segments import Segment, segments_now
from jlog.system.filesystem import journal_path

__all__ = ["Archive", "ArchivedSegment", "archive_at", "archive_of", "restore", "segments"]


def archive_of(path: str, archive: bool | str = True) -> Archive | None:
    """Returns the archive of the journal at `path`: with True the one that its retention names, or None where it names none;
    else the one at this URL."""
    url = retention_of(read_meta(path).options).archive if archive is True else archive
    return Archive(url, journal=path) if url else None


def segments(path: str | os.PathLike[str], archive: bool | str = True) -> list[Segment | ArchivedSegment]:
    """Lists all segments of the journal at `path`, oldest first: the archived ones, and after them those that are still in the
    journal, with the open one. `path` and `archived` of each say where it is. A segment in both places is listed as still in
    the journal.

    archive: True for the archive that the journal's retention names, or a URL.

    A segment that is listed as still in the journal may have been archived and removed when you open it: then list them again.
    No segment is left out or listed twice meanwhile.
    """
    path = journal_path(path)
    live = segments_now(path, read_meta(path))  # comes first: a segment that is removed after this has been archived before
    found = archive_of(path, archive)
    try:
        archived = found.segments() if found is not None else []
    except JournalNotFound:
        archived = []
    first = live[0].first_sequence
    return [*(segment for segment in archived if segment.first_sequence < first), *live]
