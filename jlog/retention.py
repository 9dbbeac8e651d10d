"""Which segments may go, and their removal."""

from __future__ import annotations

import os

from jlog import positions
from jlog._core.attachment import Attachment, attach, detach
from jlog._core.recovery import sync_directory, sync_segments
from jlog._core.segment import SegmentFile, first_block_offset, index_name, list_segments, segment_name
from jlog.copying import nobody_copies
from jlog.errors import JournalLocked
from jlog.meta import read_meta
from jlog.segments import Segment, segments_of


def removable(path: str, attachment: Attachment) -> list[Segment]:
    """The sealed segments that every subscriber and every checkpoint has passed, oldest first. Under the table's lock."""
    if not read_meta(path).options["retention"]["delete_read"]:  # another process may have changed it
        return []
    names = list_segments(path)
    open_segment = attachment.open_place[0]
    if not names or names[0] >= open_segment:
        return []
    floor = positions.lowest(path, attachment.meta)
    if floor is None:
        return []
    found = []
    for segment in segments_of(
        path, attachment.meta, [name for name in names if name <= open_segment], attachment.open_place
    ):
        if not segment.sealed or segment.end_sequence > floor:
            break
        found.append(segment)
    return found


def clean(path: str, *, dry_run: bool = False, timeout: float | None = None) -> list[Segment]:
    """Removes what may go, and returns it. What allows it is durable first: the positions, and the new first sequence, so
    that a segment which a power loss brings back is known to be gone."""
    attachment = attach(path)
    try:
        with positions.table_locked(path, timeout):
            found = removable(path, attachment)
            if found and not dry_run:
                remove(path, attachment, found)
            return found
    finally:
        detach(attachment)


def remove(path: str, attachment: Attachment, segments: list[Segment]) -> None:
    """JournalLocked, and nothing is removed, while a backup copies the journal."""
    with nobody_copies(path):
        _remove(path, attachment, segments)


def _remove(path: str, attachment: Attachment, segments: list[Segment]) -> None:
    # The state stands at the beginning of each segment: that of the first one kept must not be lost with the others.
    sync_segments(path, segments[-1].next_segment, segments[-1].next_segment)
    sync_directory(path)
    first = segments[-1].next_segment
    file = SegmentFile(path, first, attachment.uuid)
    offset = first_block_offset(file)
    file.close()
    attachment.bounds_file.update(first_sequence=first, mark=(first, offset, first), durable=True)
    for segment in segments:
        for name in (index_name(segment.first_sequence), segment_name(segment.first_sequence)):
            try:
                os.unlink(os.path.join(path, name))
            except FileNotFoundError:
                continue


def clean_if_free(path: str) -> None:
    """What a commit and a roll do: leaves it to the next one where another process is at it."""
    try:
        clean(path, timeout=0)
    except JournalLocked:
        return
