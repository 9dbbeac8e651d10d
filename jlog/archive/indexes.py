"""The index that is archived beside a segment, and says where its blocks begin. Readers can do without it."""

from __future__ import annotations

import os

from jlog._core.segments.index import SparseIndex, build_index, index_bytes_max, index_content, parse_index
from jlog._core.segments.segment import index_name
from jlog.archive.manifest import ArchivedSegment
from jlog.archive.store import ArchiveFolder
from jlog.errors import UnsupportedFormat
from jlog.storage.segments import Segment


def index_of(segment: Segment, archived: ArchivedSegment) -> bytes | None:
    """Returns the content of the index of a journal's segment, made of its blocks; None where they are damaged. Raises
    FileNotFoundError where the segment has been removed."""
    if not archived.sound:
        return None
    uuid = bytes.fromhex(archived.uuid)
    index = build_index(os.path.dirname(segment.path), segment.first_sequence, uuid, archived.size_bytes)
    return index_content(index, segment.first_sequence, uuid)


def fetch_index(folder: ArchiveFolder, segment: ArchivedSegment) -> SparseIndex | None:
    """Returns the archived index; None where there is none, or where it is not that of this segment."""
    first = segment.first_sequence
    content = _content(folder, segment)
    try:
        index = None if content is None else parse_index(content, first, bytes.fromhex(segment.uuid))
    except UnsupportedFormat:
        return None
    if index is None or (index.entries[0][0], *index.end[:2]) != (first, segment.end_sequence, segment.size_bytes):
        return None
    return index


def index_is_damaged(folder: ArchiveFolder, segment: ArchivedSegment) -> bool:
    """Says whether there is an index, and it is not that of this segment. One of a later version may be anything."""
    content = _content(folder, segment)
    try:
        return content is not None and parse_index(content, segment.first_sequence, bytes.fromhex(segment.uuid)) is None
    except UnsupportedFormat:
        return False


def _content(folder: ArchiveFolder, segment: ArchivedSegment) -> bytes | None:
    return folder.read_if_there(index_name(segment.first_sequence), index_bytes_max(segment.size_bytes))
