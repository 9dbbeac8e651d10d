"""The manifest of an archived segment: a JSON file beside it, written last, that describes it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from itertools import pairwise
from typing import Any, ClassVar

from jlog._core.format.checksum import crc32c
from jlog._core.format.constants import NONE, NUMBER_MAX, SEGMENT_HEADER_BYTES
from jlog._core.segments.index import NO_TIME, SparseIndex, build_index
from jlog._core.segments.segment import Block, SegmentFile, segment_name
from jlog.errors import CorruptJournal, UnsupportedFormat
from jlog.storage.damage import open_segment
from jlog.storage.meta import Meta, check_uuid, parse_json, whole_number
from jlog.storage.segments import Segment, first_time_of, last_time_of
from jlog.system.clock import time_of

FORMAT = 2  # format 1 describes a segment of version 1
MANIFEST_BYTES_MAX = 64 << 10
PIECE_BYTES = 4 << 20


def manifest_name(first_sequence: int) -> str:
    return f"{first_sequence:020d}.json"


@dataclass(frozen=True)
class ArchivedSegment:
    """A segment in an archive. `path` is its URL."""

    path: str = field(repr=False, compare=False)
    uuid: str
    first_sequence: int
    end_sequence: int
    size_bytes: int
    crc32c: str  # of the whole file
    epoch: int | None  # None, as the next two, where the segment's header was damaged
    previous_segment: int | None  # first sequence of the segment before; None for the first of all too
    previous_end_sequence: int | None
    first_timestamp_us: int | None  # None, as the next two, for a segment without records
    last_timestamp_us: int | None
    max_timestamp_us: int | None  # no record has a later timestamp
    sound: bool  # whether it had no damage when it was archived
    earliest_timestamp_us: int | None = None  # no record has an earlier timestamp; None where that is not known
    sealed: ClassVar[bool] = True
    archived: ClassVar[bool] = True

    @property
    def records(self) -> int:
        return self.end_sequence - self.first_sequence

    @property
    def name(self) -> str:
        return segment_name(self.first_sequence)

    @property
    def first_timestamp(self) -> datetime | None:
        """Timestamp of its first record; None without one."""
        return time_of(self.first_timestamp_us)

    @property
    def last_timestamp(self) -> datetime | None:
        """Timestamp of its last record; None without one."""
        return time_of(self.last_timestamp_us)

    def follows(self, before: ArchivedSegment) -> bool:
        """Says whether no record is missing between the two segments; there may be a gap."""
        if self.previous_segment is None:
            return self.first_sequence == before.end_sequence
        return (self.previous_segment, self.previous_end_sequence) == (before.first_sequence, before.end_sequence)

    def to_json(self) -> bytes:
        content = {"format": FORMAT, **asdict(self)}
        del content["path"]
        return json.dumps(content, indent=1).encode() + b"\n"


def gaps_between(segments: Iterable[ArchivedSegment]) -> list[tuple[int, int]]:
    """Returns first sequence and next sequence of each gap between segments that follow each other."""
    return [
        (before.end_sequence, segment.first_sequence)
        for before, segment in pairwise(segments)
        if segment.follows(before) and before.end_sequence < segment.first_sequence
    ]


def from_json(content: bytes, name: str, segment_path: str) -> ArchivedSegment:
    """Parses a manifest; `name` is the file that errors name."""
    try:
        if len(content) > MANIFEST_BYTES_MAX:
            raise ValueError(f"it has more than {MANIFEST_BYTES_MAX} bytes")
        found = parse_json(content)
        number = whole_number(found, "format", 1, (1 << 31) - 1)
        if number > FORMAT:
            raise UnsupportedFormat(f"{name} has format version {number}, this jlog reads up to {FORMAT}: upgrade pyjlog")
        found.setdefault("earliest_timestamp_us", None)  # earlier versions do not state it
        _check_fields(found)
        wanted = [field.name for field in fields(ArchivedSegment) if field.name != "path"]
        return ArchivedSegment(path=segment_path, **{field: found[field] for field in wanted})
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptJournal(name, 0, f"it does not describe an archived segment: {error}") from None


def _check_fields(found: dict[str, Any]) -> None:
    """Raises ValueError for a manifest that no archive has written."""
    check_uuid(found["uuid"])
    if not isinstance(found["crc32c"], str) or not re.fullmatch("[0-9a-f]{8}", found["crc32c"]):
        raise ValueError("crc32c is not 8 lower-case hex digits")
    if not isinstance(found["sound"], bool):
        raise ValueError("sound is neither true nor false")
    first = whole_number(found, "first_sequence", 0, NUMBER_MAX)
    whole_number(found, "end_sequence", first, NUMBER_MAX)
    whole_number(found, "size_bytes", 0, NUMBER_MAX)
    limits = {"epoch": (0, NONE), "previous_segment": (0, first), "previous_end_sequence": (0, first)}
    names = "first_timestamp_us", "last_timestamp_us", "max_timestamp_us", "earliest_timestamp_us"
    times = dict.fromkeys(names, (-(1 << 63), (1 << 63) - 1))
    for name, (low, high) in {**limits, **times}.items():
        if found[name] is not None:
            whole_number(found, name, low, high)


def describe(segment: Segment, meta: Meta, path: str) -> tuple[ArchivedSegment, SparseIndex | None]:
    """Creates the description of a sealed segment, whose future URL is `path`, and its index; None in place of that where the
    segment is damaged. Raises FileNotFoundError where it has been removed."""
    directory, first = os.path.dirname(segment.path), segment.first_sequence
    file, damage = open_segment(directory, first, meta.uuid)
    with closing(file):
        size, crc = file_size_and_crc(file.fileno(), segment.size_bytes)
        end, sequence, blocks, latest_us = _walk(file)
        first_us, last_us = _times(file, blocks)
    sound = damage is None and (end, sequence, size) == (segment.size_bytes, segment.end_sequence, segment.size_bytes)
    index = build_index(directory, first, meta.uuid, size) if sound else None
    is_first = damage is not None or file.previous_segment == NONE
    described = ArchivedSegment(
        path=path,
        uuid=meta.uuid.hex(),
        first_sequence=first,
        end_sequence=segment.end_sequence,
        size_bytes=size,
        crc32c=f"{crc:08x}",
        epoch=None if damage is not None else file.epoch,
        previous_segment=None if is_first else file.previous_segment,
        previous_end_sequence=None if is_first else file.previous_end_sequence,
        first_timestamp_us=first_us,
        last_timestamp_us=last_us,
        max_timestamp_us=latest_us,
        sound=sound,
        earliest_timestamp_us=None if index is None else _earliest_us(index),
    )
    return described, index


def _earliest_us(index: SparseIndex) -> int | None:
    return None if index.earliest is None or index.earliest[0] == NO_TIME else index.earliest[0]


def file_size_and_crc(fd: int, end: int = 1 << 63) -> tuple[int, int]:
    size = crc = 0
    while size < end:
        piece = os.pread(fd, min(PIECE_BYTES, end - size), size)
        if not piece:
            break
        crc = crc32c(piece, crc)
        size += len(piece)
    return size, crc


def _walk(file: SegmentFile) -> tuple[int, int, list[Block], int | None]:
    """Reads the whole blocks. Returns offset and sequence of their end, the first and the last block with records, and a
    timestamp that no record exceeds."""
    offset, sequence, latest_us = SEGMENT_HEADER_BYTES, file.segment, None
    ends: list[Block] = []
    for block in file.blocks(with_body=True):
        if block.first_sequence != sequence:
            break
        offset, sequence = block.end, block.end_sequence
        if block.records:
            ends = [*ends[:1], block]
            latest_us = block.max_timestamp_us if latest_us is None else max(latest_us, block.max_timestamp_us)
    return offset, sequence, ends, latest_us


def _times(file: SegmentFile, blocks: list[Block]) -> tuple[int | None, int | None]:
    """Returns the timestamps of the first and of the last record."""
    if not blocks:
        return None, None
    try:
        return first_time_of(file, blocks[0]), last_time_of(file, blocks[-1])
    except CorruptJournal:
        return None, None


def is_whole(segment: ArchivedSegment, size: int, crc: int) -> bool:
    return (size, f"{crc:08x}") == (segment.size_bytes, segment.crc32c)
