"""Segments that retention has moved out of a journal: where they are, and what can be done with them there.

`Retention(archive=)` says where they go, `Journal.clean()` brings them there, `jlog.Reader(url)` reads them, and
`jlog.Reader(path, archive=True)` reads on through both.
"""

from __future__ import annotations

import os

from jlog.archive.archive import Archive, archive_at
from jlog.archive.manifest import ArchivedSegment
from jlog.archive.restore import restore
from jlog.errors import JournalNotFound
from jlog.options import retention_of
from jlog.storage.meta import read_meta
from jlog.storage.segments import Segment, segments_now
from jlog.system.filesystem import journal_path

__all__ = ["Archive", "ArchivedSegment", "archive_at", "archive_of", "restore", "segments"]


def archive_of(path: str, archive: bool | str = True) -> Archive | None:
    """Where the journal at `path` archives, or has archived: True for what its retention says, which may be nothing."""
    url = retention_of(read_meta(path).options).archive if archive is True else archive
    return Archive.of_journal(url, path) if url else None


def segments(path: str | os.PathLike[str], archive: bool | str = True) -> list[Segment | ArchivedSegment]:
    """All that there is of the journal at `path`: what is archived, and behind it what is still there, oldest first and
    the open one too. `path` of each, and `archived`, say where it is; one that is at both places is still there.

    archive: True, what the journal's retention says, or a URL.

    A segment that is listed as still there may have been archived and removed when it is opened: list them again then.
    Nothing is skipped or listed twice meanwhile.
    """
    path = journal_path(path)
    live = segments_now(path, read_meta(path))  # first: what goes after this is archived before it goes
    found = archive_of(path, archive)
    try:
        archived = found.segments() if found is not None else []
    except JournalNotFound:
        archived = []
    first = live[0].first_sequence
    return [*(segment for segment in archived if segment.first_sequence < first), *live]
