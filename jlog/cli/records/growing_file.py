"""Reads the lines of one open file that grows, from an offset whose bytes are proved at each read."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO

PIECE_BYTES = 1 << 20
MARK_BYTES = 1024  # of the file's beginning, and of what lies before the offset, that must be there again


class Truncated(Exception):
    """The file has other bytes before the offset now."""


@dataclass(frozen=True)
class LongLines:
    """What becomes of a line of more than `bytes_max` bytes: it is cut, or left out."""

    bytes_max: int = 16 << 20
    are_cut: bool = True


class GrowingFile:
    """The lines of `file` after `offset`. tell: takes a line for the user, and how many lines were cut or left out."""

    def __init__(
        self,
        file: FileIO,
        offset: int,
        mark: int,
        in_long_line: bool,
        long_lines: LongLines,
        tell: Callable[[str, int], None],
    ) -> None:
        self.file = file
        self.offset = offset
        self.mark = mark
        self.in_long_line = in_long_line
        self.changed_ns = 0  # time of change, before the last read
        self.unfinished = bytearray()  # what was read after the last newline
        self._long_lines = long_lines
        self._tell = tell
        self._end: tuple[int, int] | None = None  # size and time of change, when there was nothing more to read

    def stat(self) -> os.stat_result:
        return os.fstat(self.file.fileno())

    def close(self) -> None:
        self.file.close()

    def read(self) -> list[bytes] | None:
        """Returns complete lines, and moves the offset to their end; None where there are none now. A list without lines says
        that the offset has moved over NUL bytes or a part of a long line. Raises Truncated."""
        status = self.stat()
        end = status.st_size, status.st_mtime_ns
        if end == self._end:
            return None
        self.changed_ns = status.st_mtime_ns
        fd = self.file.fileno()
        while True:
            begin = self.offset + len(self.unfinished)
            data = os.pread(fd, PIECE_BYTES, begin)
            head, before = self._proved()  # after reading: the data is of this file
            ending = bytes(self.unfinished[-MARK_BYTES:])
            if os.pread(fd, len(ending), begin - len(ending)) != ending:
                self.unfinished.clear()  # another line is being written there
                return None
            if data[:1] == b"\0" and not self.unfinished:
                size = _nul_bytes(fd, begin, data)
                if size is None:
                    self._end = end
                    return None
                if size:
                    return self._stepped_over(fd, head, before, size)
            if b"\n" in data:
                return self._taken(head, before, data)
            self.unfinished += data
            if len(self.unfinished) > self._long_lines.bytes_max:
                return self._taken(head, before, b"")
            if len(data) < PIECE_BYTES:
                self._end = end
                return None

    def finish(self) -> list[bytes]:
        """Returns the last line, which has no newline."""
        return self._taken(*self._proved(), b"") if self.unfinished else []

    def prove(self) -> None:
        """Raises Truncated where the bytes before the offset are others."""
        self._proved()

    def _proved(self) -> tuple[bytes, bytes]:
        fd, begin = self.file.fileno(), max(self.offset - MARK_BYTES, 0)
        before = os.pread(fd, self.offset - begin, begin)
        head = os.pread(fd, MARK_BYTES, 0) if begin else before
        if len(before) < self.offset - begin or _mark(head, before, self.offset) != self.mark:
            raise Truncated
        return head, before

    def _stepped_over(self, fd: int, head: bytes, before: bytes, size: int) -> list[bytes]:
        if not before.endswith(b"\0"):
            self._tell(f"{self.file.name}: NUL bytes from byte {self.offset:,} on, as in a hole, are stepped over", 0)
        self.offset += size
        ending = os.pread(fd, min(size, MARK_BYTES), self.offset - min(size, MARK_BYTES))
        head = head if len(head) == MARK_BYTES else os.pread(fd, MARK_BYTES, 0)
        self.mark = _mark(head, before + ending, self.offset)
        return []

    def _taken(self, head: bytes, before: bytes, data: bytes) -> list[bytes]:
        """Moves the offset to the last newline's end, or to the end of all where there is none. The mark is of what was read:
        the file may have been truncated since."""
        text = data[: data.rfind(b"\n") + 1]
        if self.unfinished:
            text = bytes(self.unfinished) + text
        self.unfinished.clear()
        values = text.split(b"\n")
        is_whole = not values[-1]
        if is_whole:
            values.pop()
        if not before or before.endswith(b"\0"):  # the rest of a hole, up to the end of its block
            values[0] = values[0].lstrip(b"\0")
        if self.in_long_line:
            del values[0]
        self.in_long_line = not is_whole and (self.in_long_line or len(text) > self._long_lines.bytes_max)
        head = head if self.offset >= MARK_BYTES else before + text[:MARK_BYTES]
        begin = self.offset
        self.offset += len(text)
        self.mark = _mark(head, before + text[-MARK_BYTES:], self.offset)
        return values if len(text) <= self._long_lines.bytes_max else self._limited(values, begin)

    def _limited(self, values: list[bytes], offset: int) -> list[bytes]:
        bytes_max = self._long_lines.bytes_max
        if all(len(value) <= bytes_max for value in values):
            return values
        kept = []
        for value in values:
            begin, offset = offset, offset + len(value) + 1
            if len(value) <= bytes_max:
                kept.append(value)
                continue
            verb = "cut" if self._long_lines.are_cut else "left out"
            text = (
                f"{self.file.name}: a line after byte {begin:,} has more than {bytes_max:,} bytes (--max-line), and is {verb}"
            )
            self._tell(text, 1)
            if self._long_lines.are_cut:
                kept.append(value[:bytes_max])
        return kept


def _nul_bytes(fd: int, begin: int, data: bytes) -> int | None:
    """Returns how many bytes from `begin` on are a hole, or a whole piece of NUL bytes, as a copy of a hole has. None: nothing
    but NUL bytes follows."""
    try:
        end = os.lseek(fd, begin, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        end = begin  # a file system that does not know holes
    if end > begin:
        return end - begin
    if data.strip(b"\0"):
        return 0
    return len(data) if len(data) == PIECE_BYTES else None


def mark_of(fd: int, offset: int) -> int:
    """Returns the checksum that a FilePlace has."""
    begin = max(offset - MARK_BYTES, 0)
    return _mark(os.pread(fd, MARK_BYTES, 0), os.pread(fd, offset - begin, begin), offset)


def _mark(head: bytes, before: bytes, offset: int) -> int:
    return zlib.crc32(before[-MARK_BYTES:], zlib.crc32(head[: min(MARK_BYTES, offset)]))
