"""The segments of a journal as their users see them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property

from jlog._core.index import locate, segment_end
from jlog._core.segment import SEGMENT_HEADER_BYTES, SegmentFile, first_time, segment_name, walk_body
from jlog.meta import Meta

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Segment:
    """One file of the journal. The open one's records include those in the pre-commit buffer, its size does not."""

    path: str
    first_sequence: int
    records: int
    size_bytes: int
    sealed: bool
    end_sequence: int
    next_segment: int  # first sequence of the next one: above end_sequence where numbers were never given out
    _meta: Meta = field(repr=False, compare=False)

    @cached_property
    def first_timestamp(self) -> datetime | None:
        """Of its first record; None without one in the file."""
        file = self._file()
        try:
            for block in file.blocks():
                if block.records and block.offset < self.size_bytes:
                    return _time(first_time(file.raw_body(block.offset), block.base_time_us))
            return None
        finally:
            file.close()

    @cached_property
    def last_timestamp(self) -> datetime | None:
        """Of its last record; None without one in the file."""
        file = self._file()
        try:
            directory, uuid = os.path.dirname(self.path), self._meta.uuid
            _, offset = locate(directory, self.first_sequence, uuid, self.size_bytes, self.end_sequence)
            last = None
            for block in file.blocks(offset):
                if block.offset >= self.size_bytes:
                    break
                last = block if block.records else last
            if last is None:
                return None
            return _time(walk_body(file.raw_body(last.offset), last.base_time_us)[3])
        finally:
            file.close()

    def _file(self) -> SegmentFile:
        return SegmentFile(
            os.path.dirname(self.path), self.first_sequence, self._meta.uuid, check_header=False
        )


def _time(timestamp_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=timestamp_us)


def segments_of(
    path: str,
    meta: Meta,
    names: Sequence[int],
    open_place: tuple[int, int, int],
    next_sequence: int | None = None,
) -> list[Segment]:
    """From the first sequences that name the files up to the open one; each but that ends where the next says."""
    found = []
    for name, following in zip(names, [*names[1:], None], strict=True):
        if following is None:
            end_offset, end_sequence = (
                open_place[1],
                open_place[2] if next_sequence is None else next_sequence,
            )
        else:
            end_offset, end_sequence, _ = segment_end(path, name, following, meta.uuid)
        found.append(
            Segment(
                path=os.path.join(path, segment_name(name)),
                first_sequence=name,
                records=end_sequence - name,
                size_bytes=max(end_offset, SEGMENT_HEADER_BYTES),
                sealed=following is not None,
                end_sequence=end_sequence,
                next_segment=end_sequence if following is None else following,
                _meta=meta,
            )
        )
    return found
