"""The position of an import in its source, which goes into the journal's state together with the records before it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

STATE_KEY = b"jlog.libjlog"
SEGMENTS_MAX = 512  # whose first sequences are kept: the state has 64 KiB
PLACES_BYTES = 16 << 10  # of subscribers, likewise
STANDING_MAX = 256
CHECK_BYTES = 4096  # bytes before the position that have to be the same when an import goes on


SubscriberPlace = tuple[int, int, int]  # of a subscriber: its segment, its marker, and its sequence here
HELD = -1  # segment and marker of a subscriber that holds what is imported, and is not at its place yet
OTHERS = -1  # sequence of a subscriber that somebody else has moved or removed: the import leaves it alone


@dataclass(frozen=True)
class ImportPosition:
    """The part of the source that is imported: everything before `offset` in `segment`, and `ahead` bytes of messages more.

    These came from the pre-commit buffer. They will be, or are, in the source at this offset, or at the beginning of the next
    segment. ahead_crc: their CRC32C.
    """

    segment: int
    offset: int
    ahead: int = 0
    ahead_crc: int = 0
    ahead_sequence: int = 0  # of the first of these messages, here
    identity: dict[str, int | str] = field(default_factory=dict)
    magic: int = 0
    big_endian: bool = False
    # Segment, offset and CRC32C of the last bytes that were imported from a segment.
    check: tuple[int, int, int] | None = None
    # The first sequence of each imported segment, and how many messages it has before its first damage (None: no damage).
    segments: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    # Where each subscriber was put, by its name in hexadecimal digits.
    subscribers: dict[str, SubscriberPlace] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps(vars(self), separators=(",", ":")).encode()

    def moved(self, **changes: Any) -> ImportPosition:
        return replace(self, **changes)

    def with_segment(self, segment: int, sequence: int, sound: int | None, standing: set[int]) -> ImportPosition:
        """Adds a segment. Leaves out others where there are too many, but none of those in which subscribers are `standing`: a
        subscriber that goes to one that is left out may read again from the one before."""
        segments = {**self.segments, segment: (sequence, sound)}
        if len(segments) > SEGMENTS_MAX:
            for number in sorted(segments)[1 : SEGMENTS_MAX // 2 : 2]:
                if number not in standing and number != segment:
                    del segments[number]
        return self.moved(segments=segments)


def kept_places(places: dict[str, SubscriberPlace]) -> dict[str, SubscriberPlace]:
    """Returns as many places as the state has room for. The other subscribers are never moved again."""
    kept, used = {}, 0
    for name, place in sorted(places.items()):
        used += len(name) + 40
        if used > PLACES_BYTES:
            break
        kept[name] = place
    return kept


def decode(value: bytes) -> ImportPosition:
    found = json.loads(value)
    found["check"] = None if found["check"] is None else tuple(found["check"])
    found["segments"] = {int(segment): tuple(at) for segment, at in found["segments"].items()}
    found["subscribers"] = {name: tuple(at) for name, at in found["subscribers"].items()}
    return ImportPosition(**found)
