"""Looks for segments to remove when a subscriber has passed them."""

from __future__ import annotations

import time
from bisect import bisect_right

from jlog._core.read.cursor import Cursor
from jlog._core.segments.segment import list_segments
from jlog.care.cleaning import clean_soon
from jlog.errors import CorruptJournal
from jlog.positions import position_files
from jlog.positions.position_files import SUBSCRIBER, PositionFile
from jlog.storage.meta import Meta
from jlog.system.clock import now_us

RETRY_SECONDS = 1.0  # between two tries to remove segments, after both of the last two have failed
TICK_US = 50_000  # longer than a tick of the kernel's clock, which tells when a file was changed
LOOK_SECONDS = 60.0  # after so long a commit looks again: a subscriber may have expired, or the retention was changed


class PassedSegments:
    """The segments that one subscriber has passed.

    clean_at: the next segment, as far as it is known: a commit before it frees nothing.
    """

    def __init__(self, path: str, meta: Meta, cursor: Cursor, name: str) -> None:
        self._path, self._meta, self._cursor, self._name = path, meta, cursor, name
        self.clean_at: int = 0
        self._looked_in: int | None = None  # the open segment, after a commit in it has looked
        self._looked_at = 0.0  # when a commit has looked last, as time.monotonic() tells it
        self._failures = 0  # how many looks in a row, up to the last one, could not remove what may go
        self._holder: PositionFile | None = None  # the lowest position then, if it is not this subscriber's own
        self._held_until = 0  # end of the segment in which that lay
        self._holder_changed_us = 0  # when the holder was written last, if that is known for certain
        self._segments: list[int] = []  # as they were listed last

    def clean(self, sequence: int) -> None:
        """Looks for segments to remove, once for each segment that the subscriber passes: the commit of the slowest subscriber
        removes it. As long as the lowest position is another one and stays in its segment, nothing can be removed. In the open
        segment there is nothing to look for until it is sealed. Time frees segments too, so that no look holds for longer than
        LOOK_SECONDS. So nearly every commit ends here, whatever the number of segments and of subscribers."""
        now = time.monotonic()
        frees_nothing = sequence < self.clean_at if self._holder is None else self._is_held_back(self._holder)
        if frees_nothing and now - self._looked_at < LOOK_SECONDS:
            return
        if self._failures > 1 and now - self._looked_at < RETRY_SECONDS:
            return  # a backup may copy the journal for hours
        open_segment = self._cursor.open_segment  # read before the listing, which is at least as new
        in_same = open_segment is not None and open_segment == self._looked_in
        if now - self._looked_at < LOOK_SECONDS and in_same and self._holder is None:
            return
        self.forget()
        self._looked_at = now
        following = self._segments_up_to(sequence)
        if following > 1 and not clean_soon(self._path):
            self._failures += 1
            return
        self._failures = 0
        if following < len(self._segments):
            self.clean_at = self._segments[following]
        else:
            self.clean_at, self._looked_in = sequence + 1, open_segment
        if following > 1 and not position_files.are_many(self._path):
            self._note_holder()

    def _segments_up_to(self, sequence: int) -> int:
        """Returns how many of the segments begin at or before this sequence. Lists them only if they may be others by now."""
        if not self._segments or sequence >= self._segments[-1]:
            self._segments = list_segments(self._path)
        return bisect_right(self._segments, sequence)

    def _note_holder(self) -> None:
        """Notes the position that holds the earlier segments back, if another one than this subscriber's does."""
        found = position_files.lowest(self._path, self._meta)
        if found is None:
            self._looked_in = None  # one of them cannot be read
            return
        holder, at = found
        following = bisect_right(self._segments, at)
        if (holder.kind, holder.name) == (SUBSCRIBER, self._name) or following == len(self._segments):
            holder.close()
            return
        self._holder, self._held_until = holder, self._segments[following]
        self._note_change(holder)

    def _note_change(self, holder: PositionFile) -> None:
        """Notes when the holder was written. A write in the same tick of the kernel's clock would look the same."""
        changed_us = holder.changed_us
        self._holder_changed_us = changed_us if changed_us < now_us() - TICK_US else 0

    def _is_held_back(self, holder: PositionFile) -> bool:
        try:
            changed_us = holder.changed_us
            if changed_us == self._holder_changed_us:
                return True
            self._note_change(holder)
            return changed_us >= 0 and holder.read() < self._held_until
        except (CorruptJournal, OSError):
            return False

    def close(self) -> None:
        """Frees what it holds open. No call may use it afterwards."""
        self.forget()
        self._path = str(self._path)  # without the directory's descriptor, which the path of an open journal holds

    def forget(self) -> None:
        self.clean_at, self._looked_in = 0, None
        if self._holder is not None:
            self._holder.close()
            self._holder = None
