"""The state that writers keep in a journal, beside its records."""

from __future__ import annotations

from contextlib import closing

from jlog._core.read.cursor import Cursor
from jlog._core.segments.segment import SegmentFile
from jlog.errors import CorruptJournal
from jlog.storage.meta import read_meta


def read_state(path: str, uuid: bytes, cursor: Cursor) -> dict[bytes, bytes]:
    """Returns the newest value of every key that Writer.extend(state=) has stored."""
    while True:
        place = segment, offset, _ = cursor.end_place
        try:
            with closing(SegmentFile(path, segment, uuid)) as file:
                return dict(file.state_before(offset))
        except (CorruptJournal, FileNotFoundError):
            if cursor.end_place == place:
                raise  # else another file has the segment's name by now, or retention has removed it


def state_of(path: str) -> dict[bytes, bytes]:
    """Returns the same of the journal at the absolute `path`, which it opens for that."""
    uuid = read_meta(path).uuid
    with closing(Cursor(path, uuid)) as cursor:
        return read_state(path, uuid, cursor)
