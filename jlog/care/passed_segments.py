"""Looks for segments to remove when a subscriber has passed them."""

from __future__ import annotations

import time
from bisect import bisect_right

from jlog._core.read.cursor import Cursor
from jlog._core.segments.segment import list_segments
from jlog.care.cleaning import clean_if_free
from jlog.errors import CorruptJournal
from jlog.positions import position_files
from jlog.positions.position_files import PositionFile
from jlog.storage.meta import Meta

RETRY_SECONDS = 1.0  # between two tries to remove segments, after both of the last two have failed
LOOK_SECONDS = 60.0  # after so long a commit looks again: a subscriber may have expired, or the retention was changed


class PassedSegments:
    """The segments that one subscriber has passed.

    clean_at: the next segment, as far as it is known: a commit before it frees nothing.
    """

    def __init__(self, path: str, meta: Meta, cursor: Cursor) -> None:
        self._path, self._meta, self._cursor = path, meta, cursor
        self.clean_at = 0
        self._looked_in: int | None = None  # the open segment, after a commit in it has looked
        self._looked_at = 0.0  # when a commit has looked last, as time.monotonic() tells it
        self._failures = 0  # how many looks in a row, up to the last one, could not remove what may go
        self._holder: PositionFile | None = None  # the lowest position then
        self._held_until = 0  # end of the segment in which that lay

    def clean(self, sequence: int) -> None:
        """Looks for segments to remove, once for each segment that the subscriber passes: the commit of the slowest subscriber
        removes it. In the open segment there is nothing to look for until it is sealed, or until the position that holds the
        earlier segments back has passed one of them. Time frees segments too, so that no look holds for longer than
        LOOK_SECONDS."""
        now = time.monotonic()
        if self._failures > 1 and now - self._looked_at < RETRY_SECONDS:
            return  # a backup may copy the journal for hours
        open_segment = self._cursor.open_segment  # read before the listing, which is at least as new
        if now - self._looked_at < LOOK_SECONDS and (sequence < self.clean_at or self._has_looked_in(open_segment)):
            return
        self.forget()
        self._looked_at = now
        segments = list_segments(self._path)
        following = bisect_right(segments, sequence)
        if following > 1 and not clean_if_free(self._path):
            self._failures += 1
            return
        self._failures = 0
        if following < len(segments):
            self.clean_at = segments[following]
            return
        self.clean_at, self._looked_in = sequence + 1, open_segment
        if following > 1:
            self._note_holder(segments)

    def _has_looked_in(self, open_segment: int | None) -> bool:
        return open_segment is not None and open_segment == self._looked_in and self._is_held_back()

    def _note_holder(self, segments: list[int]) -> None:
        """Notes the position that holds the earlier segments back, if one does."""
        found = position_files.lowest(self._path, self._meta)
        if found is None:
            self._looked_in = None
            return
        self._holder, at = found
        following = bisect_right(segments, at)
        self._held_until = segments[following] if following < len(segments) else 0

    def _is_held_back(self) -> bool:
        if self._holder is None or not self._held_until:
            return True  # what is left there stays for another reason than a position
        try:
            return self._holder.is_current and self._holder.read() < self._held_until
        except (CorruptJournal, OSError):
            return False

    def forget(self) -> None:
        self.clean_at, self._looked_in = 0, None
        if self._holder is not None:
            self._holder.close()
            self._holder = None
