"""A run of messages, which is a segment or the pre-commit buffer, as records in bodies of a bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jlog._core.format.constants import VALUE_BYTES_MAX
from jlog._core.records.encode import EncodedRecords
from jlog._core.records.libjlog import FULL, MORE, SPOILED, SUSPECT, TOO_LARGE, Messages
from jlog.libjlog.damage import DamageFinder, Gap
from jlog.libjlog.format import POINTER_BYTES, PRE_COMMIT, Layout, segment_name
from jlog.libjlog.source import SegmentFile

WINDOW_BYTES = 4 << 20  # read at once; more only for one message that is longer
BODY_BYTES = 2 << 20  # of records that are appended at once; more only for one message that is longer


@dataclass(frozen=True)
class Piece:
    """Records, and the offsets of their messages. gap: the damaged place that follows, and `end` lies after it."""

    body: EncodedRecords
    messages: int
    begin: int
    end: int
    gap: Gap | None = None


@dataclass(frozen=True)
class Stream:
    """Messages in a file.

    end: of the bytes that are there. first_offset: of the first of them in the file. index_path: libjlog's index, if there is
    one. may_grow: a writer may be about to complete the last message.
    """

    path: str
    read: Callable[[int, int], bytes]
    end: int
    first_offset: int = 0
    index_path: str | None = None
    may_grow: bool = False

    def pieces(self, layout: Layout, at: int) -> Iterator[Piece]:
        """Yields the messages from this offset on. Ends before a last message that is not complete, and then yields a gap that
        is torn."""
        messages = layout.messages()
        finder = DamageFinder(layout, self.read, self.end, self.index_path)
        last_us = 0
        base, data = at, b""
        while at < self.end:
            if not data:
                base, data = at, self.read(at, min(WINDOW_BYTES, self.end - at))
                if not data:
                    return  # was cut off meanwhile
            body, begin = EncodedRecords(), at
            is_end = base + len(data) == self.end
            added = messages.add(body, data, at - base, BODY_BYTES, is_end=is_end)
            last_us = added.last_us or last_us
            at = base + added.end
            if added.status in (MORE, FULL):
                if added.messages:
                    yield Piece(body, added.messages, begin, at)
                if added.status == FULL:
                    continue
                had = base + len(data)
                base, data = at, b""
                if added.messages:
                    continue
                header = messages.header(self.read(at, messages.header_bytes))
                if header is None or header.message_bytes <= VALUE_BYTES_MAX:
                    data = self._longer(messages, at)
                    if at + len(data) <= had:
                        return  # the file was cut off meanwhile
                    continue
                added = added._replace(status=TOO_LARGE)
            gap = self._gap(finder, messages, at, added.status, last_us)
            if gap.begin > at:  # the message before the damage is intact
                if added.messages:
                    yield Piece(body, added.messages, begin, at)
                begin, data = at, self.read(at, gap.begin - at)
                body = EncodedRecords()
                added = messages.add(body, data, 0, BODY_BYTES, is_end=True, trusted=len(data))
                if added.end < len(data):  # it cannot be decompressed either
                    gap = Gap(at, gap.end if not gap.is_torn else gap.begin, "a message cannot be decompressed")
            yield Piece(body, added.messages, begin, gap.begin if gap.is_torn else gap.end, gap)
            if gap.is_torn:
                return
            at, data = gap.end, b""

    def _longer(self, messages: Messages, at: int) -> bytes:
        """Reads a message that is longer than a window, and the next header."""
        data = self.read(at, min(WINDOW_BYTES, self.end - at))
        header = messages.header(data)
        if header is None:
            return data
        wanted = messages.header_bytes * 2 + header.stored_bytes
        return data if len(data) >= wanted else self.read(at, min(wanted, self.end - at))

    def _gap(self, finder: DamageFinder, messages: Messages, at: int, status: int, last_us: int) -> Gap:
        if status == SUSPECT:
            return finder.gap(at, last_us, may_grow=self.may_grow)
        header = messages.header(self.read(at, messages.header_bytes))
        if header is None:
            return Gap(at, self.end, "the file was cut off meanwhile", is_torn=True)
        end = at + messages.header_bytes + header.stored_bytes
        if status == TOO_LARGE:
            following = messages.header(self.read(end, messages.header_bytes))
            if end == self.end or (following is not None and following.is_message):
                return Gap(at, end, f"a message has {header.message_bytes} bytes, and a record at most 1 GiB")
            gap = finder.gap(at, last_us, may_grow=self.may_grow)  # its length is wrong
            return Gap(at, gap.end, gap.reason, gap.is_torn)
        assert status == SPOILED
        return Gap(at, end, f"a message cannot be decompressed to the {header.message_bytes} bytes that it states")


def segment_stream(directory: str, file: SegmentFile, end: int, *, may_grow: bool) -> Stream:
    index_path = os.path.join(directory, f"{segment_name(file.segment)}.idx")
    return Stream(file.path, file.read, end, index_path=index_path, may_grow=may_grow)


def buffer_stream(directory: str, content: bytes, *, may_grow: bool) -> Stream:
    def read(at: int, size: int) -> bytes:
        return content[at : at + size]

    path = os.path.join(directory, PRE_COMMIT)
    return Stream(path, read, len(content), first_offset=POINTER_BYTES, may_grow=may_grow)
