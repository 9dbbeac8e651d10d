"""Finds where the messages of a segment go on after a damaged place.

libjlog's segments have no checksums, and nothing marks where a message begins but its magic, which a payload may contain too.
So a place is believed to begin a message only if something else says so, in this order:

1. The damaged header itself: its length may still lead to the next message.
2. The index, in which libjlog's readers have noted where messages begin.
3. A chain that leads exactly to the end of the segment.
4. A chain that ends at the next damaged place, if its times lie in order between the messages before and after.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from jlog._core.records.libjlog import Chain, Header, Messages
from jlog.errors import JournalError
from jlog.libjlog.format import Layout, order
from jlog.system.files import open_file, read_whole

WINDOW = 1 << 20
STEPS = 16  # damaged headers in a row whose lengths are followed
ENTRIES = 4096  # of the index that are tried
# Bytes that are searched and followed for one file, and how many times its size. A hostile file could call for its square.
WORK_BYTES = 64 << 20
WORK_FACTOR = 32
CANDIDATE_WORK = 16 << 10  # what a place costs at which a message may begin


@dataclass(frozen=True)
class Gap:
    """A damaged place. `begin` may lie after the message at which the damage was met: then that message is intact.

    is_torn: the last message of the segment is not complete.
    """

    begin: int
    end: int
    reason: str
    is_torn: bool = False


class DamageFinder:
    """Looks for the next intact message in one segment, or in the pre-commit buffer, of which `end` bytes are there.

    read: returns so many bytes from an offset. index_path: the file with the segment's index, which may be missing.
    """

    def __init__(self, layout: Layout, read: Callable[[int, int], bytes], end: int, index_path: str | None) -> None:
        self._read = read
        self._end = end
        self._messages: Messages = layout.messages()
        self._header_bytes = self._messages.header_bytes
        self._magic = layout.magic_bytes()
        self._order = order(layout.big_endian)
        self._index_path = index_path
        self._last: tuple[int, int | None] | None = None  # the result of _last_chain()
        self._work = WORK_BYTES + WORK_FACTOR * end

    def gap(self, at: int, last_us: int, *, may_grow: bool) -> Gap:
        """Returns the damaged place that begins at the message at `at`, or after it. last_us: the time of the message before.
        may_grow: a writer may be about to complete the last message."""
        header = self._header(at)
        if header is None:
            return Gap(at, self._end, "the header of a message is cut off", is_torn=True)
        if not header.is_message:
            return self._from(at, last_us)
        following = at + self._header_bytes + header.stored_bytes
        if following > self._end:
            if not may_grow and self._last_chain(at + self._header_bytes)[0] < self._end:
                found = self._next_chain(at + self._header_bytes, last_us)
                return Gap(at, found, f"a message states {header.stored_bytes} bytes, which the file does not have")
            return Gap(at, self._end, "a message is cut off", is_torn=True)
        there = self._header(following)
        if there is None:
            return Gap(following, self._end, "the header of a message is cut off", is_torn=True)
        if not there.is_message and self._follow_lengths(following) is None:
            inside = self._leading_out(at + self._header_bytes, following)
            if inside is not None:
                return Gap(at, inside, f"a message states {header.stored_bytes} bytes, and others begin inside of it")
        return self._from(following, header.time_us)

    def _from(self, at: int, last_us: int) -> Gap:
        for found in (self._follow_lengths(at), self._next_in_index(at)):
            if found is not None:
                return Gap(at, found, "no message begins here")
        return Gap(at, self._next_chain(at + 1, last_us), "no message begins here")

    # --- The header's own length ----------------------------------------------------------------------------------------

    def _follow_lengths(self, at: int) -> int | None:
        """Follows the lengths in damaged headers up to an intact header, or to the end of the segment."""
        for _ in range(STEPS):
            header = self._header(at)
            if header is None or header.microseconds >= 1_000_000:
                return None
            if header.is_message:
                return at
            at += self._header_bytes + header.stored_bytes
            if at == self._end:
                return at
        return None

    # --- The index ------------------------------------------------------------------------------------------------------

    def _next_in_index(self, at: int) -> int | None:
        """Returns the next place after `at` where the index has a message, and one begins. None if the index does not know a
        message at `at`: it may be an older one."""
        if self._index_path is None:
            return None
        with suppress(OSError, JournalError), open_file(self._index_path) as file:
            return self._search(file.fd, os.fstat(file.fd).st_size // 8, at)
        return None

    def _search(self, fd: int, count: int, at: int) -> int | None:
        def is_reached(number: int) -> bool:
            entry = self._entries(fd, number, 1)
            if number == 0:
                return at == 0
            return not (entry and 0 < entry[0] < at)  # a closed index ends with an entry of 0

        entries = self._entries(fd, bisect_left(range(count), True, key=is_reached), ENTRIES)
        if not entries or entries[0] != at:
            return None
        for offset in entries[1:]:
            header = self._header(offset) if at < offset < self._end else None
            if header is not None and header.is_message:
                return offset
        return None

    def _entries(self, fd: int, first: int, count: int) -> tuple[int, ...]:
        found = read_whole(fd, 8 * count, 8 * first)
        return struct.unpack(f"{self._order}{len(found) // 8}Q", found[: len(found) // 8 * 8])

    # --- Chains ---------------------------------------------------------------------------------------------------------

    def _next_chain(self, begin: int, last_us: int) -> int:
        """Returns where the next chain of messages begins that is believed; the end if there is none."""
        last, upper_us = self._last_chain(begin)
        for at, chain in self._chains(begin, last):
            is_in_order = chain.ordered and last_us <= chain.first_us
            if is_in_order and (upper_us is None or chain.last_us <= upper_us):
                return at
        return last

    def _last_chain(self, begin: int) -> tuple[int, int | None]:
        """Returns where the first chain begins that leads exactly to the end, and the time of its first message."""
        if self._last is None or self._last[0] < begin:
            found = ((at, chain.first_us) for at, chain in self._chains(begin, self._end) if chain.end == self._end)
            self._last = next(found, (self._end, None))
        return self._last

    def _chains(self, begin: int, end: int) -> Iterator[tuple[int, Chain]]:
        """Yields the chains that begin before `end`, and not inside one before."""
        for at in self._candidates(begin, end):
            if at < begin:
                continue
            chain = self._chain(at)
            if chain.messages:
                yield at, chain
                # One message may be a payload that looks like one; several are the messages up to the next damage.
                begin = chain.end if chain.messages > 1 else at + 1

    def _leading_out(self, begin: int, end: int) -> int | None:
        """Returns a place before `end` from which a chain of messages leads beyond it, and has none that begins there."""
        for at in self._candidates(begin, end):
            chain = self._chain(at)
            if chain.messages and chain.end > end and self._leads_on(chain) and not self._stops_at(at, end):
                return at
        return None

    def _leads_on(self, chain: Chain) -> bool:
        """Returns whether a chain has more messages than one, of which the last may be cut off."""
        header = self._header(chain.end)
        return chain.messages > 1 or header is None or header.is_message

    def _stops_at(self, at: int, place: int) -> bool:
        """Returns whether the chain from `at` has a message that begins at `place`."""
        while at < place:
            header = self._header(at)
            if header is None:
                return False  # the file was cut off meanwhile
            at += self._header_bytes + header.stored_bytes
        return at == place

    def _candidates(self, begin: int, end: int) -> Iterator[int]:
        """Yields the places where the bytes of the magic are, and a time that makes sense."""
        overlap = self._header_bytes - 1
        for start in range(begin, end, WINDOW):
            data = self._read(start, min(WINDOW, end - start) + overlap)
            self._work -= len(data)
            at = data.find(self._magic)
            while 0 <= at < min(WINDOW, end - start) and self._work > 0:
                header = self._messages.header(data, at)
                self._work -= CANDIDATE_WORK
                if header is not None and header.is_message and header.microseconds < 1_000_000:
                    yield start + at
                at = data.find(self._magic, at + 1)

    def _chain(self, at: int) -> Chain:
        """Follows the messages from `at` as far as they go."""
        count, first_us, last_us, ordered = 0, 0, 0, True
        window = 1 << 12
        while at < self._end and self._work > 0:
            data = self._read(at, min(window, self._end - at))
            chain = self._messages.chain(data, 0, 1 << 40)
            self._work -= len(data) if window < WINDOW else chain.end
            if chain.messages:
                ordered = ordered and chain.ordered and (count == 0 or last_us <= chain.first_us)
                first_us = first_us if count else chain.first_us
                last_us = chain.last_us
                count += chain.messages
                at += chain.end
                window = WINDOW
                continue
            header = self._header(at)
            if header is None or not header.is_message or self._header_bytes + header.stored_bytes > self._end - at:
                break
            # A message that is longer than the window.
            ordered = ordered and (count == 0 or last_us <= header.time_us)
            first_us = first_us if count else header.time_us
            last_us = header.time_us
            count += 1
            at += self._header_bytes + header.stored_bytes
        return Chain(at, count, first_us, last_us, ordered)

    def _header(self, at: int) -> Header | None:
        if self._end - at < self._header_bytes:
            return None
        return self._messages.header(self._read(at, self._header_bytes))
