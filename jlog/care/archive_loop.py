"""Archives each segment of a journal soon after it was sealed, for as long as it is told to."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from jlog.care.background import MOST_DELAY_SECONDS
from jlog.care.cleaning import archive_of, archive_sealed, clean, roll_if_due
from jlog.errors import JournalError, JournalLocked, JournalNotFound
from jlog.options import retention_of
from jlog.storage.meta import read_meta
from jlog.storage.segments import Segment, segments_now

LOOK_SECONDS = 1.0  # between two looks for a sealed segment


def keep_archived(
    path: str,
    *,
    every: float | None,
    seal: Callable[[], object],
    on_segment: Callable[[Segment], object],
    on_error: Callable[[Exception], object],
) -> NoReturn:
    """Goes on for ever. It may be ended at any point, as by a kill: the next run goes on from there.

    every: `seal` is called after so many seconds each. It seals the open segment, if it has records.
    on_segment: is called with each segment that was archived.
    on_error: is called with the first of several errors, after which it is tried again with growing delays.

    Raises JournalNotFound where the journal is gone, JournalError where it has no archive.
    """
    meta = read_meta(path)
    archive, url = archive_of(path, meta), retention_of(meta.options).archive
    sealed_at, seen, delay = time.monotonic(), None, LOOK_SECONDS
    while True:
        try:
            meta = read_meta(path)
            if url != retention_of(meta.options).archive:  # it was changed
                archive, url, seen = archive_of(path, meta), retention_of(meta.options).archive, None
            if every is not None and time.monotonic() - sealed_at >= every:
                seal()
                sealed_at = time.monotonic()
            else:
                roll_if_due(path)
            newest = segments_now(path, meta)[-1].first_sequence  # all before it are sealed
            if newest != seen:
                for segment in archive_sealed(path, meta, archive):
                    on_segment(segment)
                seen = newest
            with suppress(JournalLocked):  # a backup copies the journal
                clean(path)
            delay = LOOK_SECONDS
        except JournalNotFound:
            raise
        except (JournalError, OSError) as error:
            if delay == LOOK_SECONDS:
                on_error(error)
            delay = min(2 * delay, MOST_DELAY_SECONDS)
        time.sleep(delay)
