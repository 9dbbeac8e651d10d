"""The index that is archived beside a segment, and says where its blocks begin. Readers can do without it."""

from __future__ import annotations

from jlog._core.segments.index import SparseIndex, index_bytes_max, parse_index
from jlog._core.segments.segment import index_name
from jlog.archive.manifest import ArchivedSegment
from jlog.archive.store import ArchiveFolder
from jlog.errors import UnsupportedFormat
from jlog.positions.start import Range, joined


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


def time_ranges(folder: ArchiveFolder, segments: list[ArchivedSegment], times_us: tuple[int, int]) -> list[Range]:
    """Returns ranges of sequences as positions.start.time_ranges() does. Segments outside of the times are not fetched."""
    since_us, until_us = times_us
    found: list[Range] = []
    for segment in segments:
        latest_us, earliest_us = segment.max_timestamp_us, segment.earliest_timestamp_us
        is_later = earliest_us is not None and earliest_us > until_us
        if segment.sound and (latest_us is None or latest_us < since_us or is_later):
            continue
        begin, end = segment.first_sequence, segment.end_sequence
        index = fetch_index(folder, segment)
        if index is not None:
            entry = index.locate_time(since_us)
            begin, end = end if entry is None else entry[0], index.locate_after(until_us)[0]
        if begin < end:
            found.append((begin, end))
    return joined(found)


def index_is_damaged(folder: ArchiveFolder, segment: ArchivedSegment) -> bool:
    """Says whether there is an index, and it is not that of this segment. One of a later version may be anything."""
    content = _content(folder, segment)
    try:
        return content is not None and parse_index(content, segment.first_sequence, bytes.fromhex(segment.uuid)) is None
    except UnsupportedFormat:
        return False


def _content(folder: ArchiveFolder, segment: ArchivedSegment) -> bytes | None:
    return folder.read_if_there(index_name(segment.first_sequence), index_bytes_max(segment.size_bytes))
