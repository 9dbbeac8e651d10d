"""Finds out whether the messages in the pre-commit buffer are in the segment already.

The writer flushes the buffer by writing it to the end of the newest segment, and then sets the buffer's pointer to 0. If it is
killed in between, the messages are in both. If it is killed while it writes, a part of them is.
"""

from __future__ import annotations

from collections.abc import Callable

from jlog.libjlog.source import SegmentFile

NEEDLE_BYTES = 64
HEADER_BYTES = 16  # the least that a message has, its time included
TRIES = 4096


def flush_begin(file: SegmentFile, content: bytes, unused: Callable[[], bytes], magic: bytes, intact_end: int, end: int) -> int:
    """Returns the offset in the segment at which the buffer was flushed: from there to `end` they have the same bytes. Returns
    `end` if the buffer was not flushed.

    unused: returns the bytes of the buffer after those in use. intact_end: where the segment's last whole message ends.
    """
    low = max(0, end - len(content))
    tail = memoryview(file.read(low, end - low))
    if len(tail) < end - low or not content:
        return end
    found = _long_match(tail, content, intact_end - low)
    if found is None:
        found = _short_match(tail, content, intact_end - low)
    if found is None or _was_refilled(file, len(content), unused(), magic, end):
        return end
    return low + found


def _was_refilled(file: SegmentFile, used: int, unused: bytes, magic: bytes, end: int) -> bool:
    """Returns whether the bytes after those in use are the last ones of the segment, from the last flush. Then the buffer was
    emptied, and filled again with messages that only look like the last ones in the segment: they are alike, and have one time.
    """
    low = max(0, end - used - len(unused))
    tail, view = file.read(low, end - low), memoryview(unused)
    begin = tail.rfind(magic, 0, max(0, len(tail) - used))
    for _ in range(TRIES):
        if begin < 0:
            break
        left = memoryview(tail)[begin + used :]  # of a flush that began there
        if left == view[: len(left)] and bytes(left).find(magic) >= 0:
            return True
        begin = tail.rfind(magic, 0, begin + len(magic) - 1)
    return False


def _long_match(tail: memoryview, content: bytes, latest: int) -> int | None:
    needle, searched, view = content[:NEEDLE_BYTES], bytes(tail), memoryview(content)
    at = searched.find(needle)
    for _ in range(TRIES):
        if not 0 <= at <= latest:
            break
        if tail[at:] == view[: len(tail) - at]:
            return at
        at = searched.find(needle, at + 1)
    return None


def _short_match(tail: memoryview, content: bytes, latest: int) -> int | None:
    """Looks for fewer bytes than a needle has: a short message at the end, or a part of one after the last whole message."""
    ends = range(max(0, len(tail) - NEEDLE_BYTES + 1), min(latest, len(tail) - HEADER_BYTES) + 1)
    for at in (*ends, latest):
        if 0 <= at < len(tail) and tail[at:] == content[: len(tail) - at]:
            return int(at)
    return None
