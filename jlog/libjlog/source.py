"""A journal of libjlog as a source: its files, which are only read, while a writer may go on to write them."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from jlog._core.format.checksum import crc32c
from jlog.errors import CorruptJournal, JournalNotFound, UnsupportedFormat
from jlog.libjlog.format import (
    CHECKPOINT_BYTES,
    CHECKPOINT_PREFIX,
    METASTORE,
    METASTORE_BYTES,
    OLD_MAGIC,
    POINTER_BYTES,
    PRE_COMMIT,
    Layout,
    known_magic,
    layout_of,
    order,
    segment_name,
    segment_of,
    subscriber_of,
)
from jlog.system.files import naming, open_file, read_small, read_whole
from jlog.system.filesystem import journal_path

BUFFER_BYTES_MAX = 128 << 20  # a larger pre-commit buffer is not read, since it is held in memory
OPEN_AHEAD = 16  # segments that are kept open before they are read
LOOKS = 100  # at a buffer that is flushed again and again meanwhile


class SegmentFile:
    """An open segment. It can still be read when libjlog has removed it."""

    def __init__(self, directory: str, segment: int) -> None:
        self.segment = segment
        self.path: str = os.path.join(directory, segment_name(segment))
        self._file = open_file(self.path)

    def size(self) -> int:
        return os.fstat(self._file.fd).st_size

    def read(self, at: int, size: int) -> bytes:
        """Reads so many bytes, fewer only where the file ends."""
        with naming(self.path):
            return read_whole(self._file.fd, size, at)

    def crc(self, begin: int, end: int) -> int | None:
        """Returns the CRC32C of these bytes; None if the file does not have all of them."""
        return crc_of(self.read, begin, end)

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True)
class Buffer:
    """The messages in `pre_commit`, and the newest segment as it was at that moment."""

    content: bytes
    newest: int
    end: int  # of the newest segment
    overrun: int = 0  # bytes that are said to be in use, and that the file does not have


class Source:
    """The journal of libjlog at `path`. Raises JournalNotFound where nothing is there, UnsupportedFormat where it is something
    else."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = journal_path(path)
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            raise JournalNotFound(
                f"{self.path} does not exist; name the directory of a journal of libjlog", self.path
            ) from None
        if METASTORE not in names and not any(segment_of(name) is not None for name in names):
            raise UnsupportedFormat(f"{self.path} is not a journal of libjlog: it has neither a file {METASTORE} nor a segment")
        self.metastore_damage: str | None = None
        self.layout: Layout = self._find_layout()
        self._open: dict[int, SegmentFile] = {}

    def identity(self) -> dict[str, int | str]:
        """Names this directory, as far as a file system can."""
        found = os.stat(self.path)
        return {"path": os.path.realpath(self.path), "inode": found.st_ino}

    # --- Layout -----------------------------------------------------------------------------------------------------

    def _find_layout(self) -> Layout:
        path = os.path.join(self.path, METASTORE)
        content, what = b"", "it is missing"  # which costs no message
        with suppress(FileNotFoundError):
            content = read_small(path, 1 << 16)
            what = f"it has {len(content)} bytes and an unknown magic"
        layout = layout_of(content, self.path)
        if layout is not None:
            return layout
        first = [self._read_from(segment_name(segment), 16) for segment in self.segments()]
        begins = next((begin for begin in [*first, self._read_from(PRE_COMMIT, 16, POINTER_BYTES)] if len(begin) == 16), b"")
        if len(content) == METASTORE_BYTES[0] or content[12:] == bytes(4):
            return self._old_layout(content, begins)
        layout = layout_of(bytes(12) + begins[:4], self.path) if begins else None
        if layout is not None:
            self.metastore_damage = f"{what}; the messages' own magic is used"
            return layout
        raise UnsupportedFormat(f"{path}: {what}, and there is no message whose magic could tell the layout")

    def _read_from(self, name: str, size: int, at: int = 0) -> bytes:
        """Reads so many bytes of a file, fewer where it ends; nothing where it is missing."""
        path = os.path.join(self.path, name)
        with suppress(FileNotFoundError), naming(path), open_file(path) as file:
            return read_whole(file.fd, size, at)
        return b""

    def _old_layout(self, metastore: bytes, begins: bytes) -> Layout:
        """Returns the layout of a journal of version 1, which says nothing of its byte order: the one in which the newest
        segment, the safety and the first message make sense."""
        if begins and any(known_magic(struct.unpack(f"{o}I", begins[:4])[0]) for o in "<>"):
            found = layout_of(bytes(12) + begins[:4], self.path)
            if found is not None:
                return found
        newest = max(self.segments(), default=0)

        def sense(big_endian: bool) -> int:
            log, unit_limit, safety = struct.unpack(f"{order(big_endian)}3I", metastore[:12])
            points: int = 2 * (log == newest) + 2 * (safety <= 2) + (1 << 10 <= unit_limit <= 1 << 30)
            if len(begins) == 16:
                _, seconds, microseconds, _ = struct.unpack(f"{order(big_endian)}4I", begins)
                points += 2 * (microseconds < 1_000_000) + (1 << 29 <= seconds < 1 << 31)
            return points

        return Layout(OLD_MAGIC, sense(True) > sense(False))

    # --- Segments ---------------------------------------------------------------------------------------------------

    def segments(self) -> list[int]:
        """Lists the segments, oldest first.

        A file that is created while a directory is listed may be left out, although one that is created later is not. So the
        directory is listed twice: all segments before the newest of the first list were there when the second began."""
        newest = max(self._list_segments(), default=-1)
        return sorted(segment for segment in self._list_segments() if segment <= newest)

    def _list_segments(self) -> list[int]:
        found = (segment_of(name) for name in os.listdir(self.path))
        return [segment for segment in found if segment is not None]

    def look(self, position: int) -> list[int]:
        """Lists the segments from this one on, and opens the next few of them, so that they can be read even when libjlog
        removes them meanwhile."""
        self.close_before(position)
        there = {segment for segment in self.segments() if segment >= position}
        for segment in sorted(there)[:OPEN_AHEAD]:
            with suppress(FileNotFoundError):
                self.segment(segment)
        return sorted(there | set(self._open))

    def close_before(self, position: int) -> None:
        """Closes the segments before this one."""
        for segment in [segment for segment in self._open if segment < position]:
            self._open.pop(segment).close()

    def size_from(self, position: int, offset: int) -> int:
        """Returns the bytes of the segments from this place on."""
        size = -offset
        for segment in self.segments():
            if segment >= position:
                with suppress(FileNotFoundError):
                    size += os.stat(os.path.join(self.path, segment_name(segment))).st_size
        return max(0, size)

    def segment(self, segment: int) -> SegmentFile:
        if segment not in self._open:
            self._open[segment] = SegmentFile(self.path, segment)
        return self._open[segment]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def check(self) -> None:
        """Opens every file once. Raises OSError or JournalError if one cannot be read."""
        for segment in self.segments():
            with suppress(FileNotFoundError):  # libjlog may remove it meanwhile
                SegmentFile(self.path, segment).close()
        self.checkpoints()
        self.buffer()
        with suppress(FileNotFoundError):
            open_file(os.path.join(self.path, PRE_COMMIT)).close()

    # --- Subscribers ------------------------------------------------------------------------------------------------

    def checkpoints(self) -> tuple[dict[bytes, tuple[int, int]], list[str]]:
        """Returns the segment and the marker of the last message that each subscriber has consumed, and what is wrong with the
        others. A subscriber whose file has no position stands at the beginning."""
        found: dict[bytes, tuple[int, int]] = {}
        problems = []
        for file in sorted(os.listdir(self.path)):
            if not file.startswith(CHECKPOINT_PREFIX):
                continue
            path = os.path.join(self.path, file)
            name = subscriber_of(file)
            if name is None:
                problems.append(f"{path}: its name is not a subscriber's name in hexadecimal digits; it is left out")
                continue
            try:
                content = read_small(path, 1 << 16)
            except FileNotFoundError:
                continue  # removed meanwhile
            except CorruptJournal as error:
                problems.append(f"{error}; it is left out")
                continue
            if len(content) < CHECKPOINT_BYTES:
                problems.append(f"{path}: it has {len(content)} bytes and no position: the subscriber begins at the beginning")
                found[name] = (0, 0)
            else:
                segment, marker = self.layout.numbers(content[:CHECKPOINT_BYTES])
                found[name] = (segment, marker)
        return found, problems

    # --- The pre-commit buffer --------------------------------------------------------------------------------------

    def buffer(self) -> Buffer | None:
        """Returns the messages in the pre-commit buffer as they were at one moment. None if there is no segment, or if a writer
        flushed the buffer again and again meanwhile: then there is more to read in the segments."""
        path = os.path.join(self.path, PRE_COMMIT)
        for _ in range(LOOKS):
            newest = max(self.segments(), default=None)
            if newest is None:
                return None
            try:
                file = SegmentFile(self.path, newest)
            except FileNotFoundError:
                continue  # libjlog has removed it meanwhile
            try:
                end = file.size()
                content, overrun = self._stable_content(path)
                if content is not None and file.size() == end and max(self.segments(), default=None) == newest:
                    return Buffer(content, newest, end, overrun)
            finally:
                file.close()
        return None

    def buffer_mark(self) -> tuple[int, int, int] | None:
        """Returns the newest segment, its size, and the bytes in use. As long as these stay, the buffer's messages do."""
        segments = self.segments()
        if not segments:
            return None
        newest = segments[-1]
        with suppress(FileNotFoundError):
            size = os.stat(os.path.join(self.path, segment_name(newest))).st_size
            pointer = self.layout.numbers(self._read_from(PRE_COMMIT, POINTER_BYTES))
            return newest, size, pointer[0] if pointer else 0
        return None

    def unused(self, used: int) -> bytes:
        """Returns the bytes of the buffer after those in use, which are left from before the last flush."""
        return self._read_from(PRE_COMMIT, BUFFER_BYTES_MAX, POINTER_BYTES + used)

    def _stable_content(self, path: str) -> tuple[bytes | None, int]:
        """Returns the bytes in use, and by how many the pointer goes beyond the file. The first is None where they have changed
        while they were read.

        The writer copies a message into the buffer and then moves the pointer; after a flush it moves the pointer to 0. So the
        bytes before the pointer stay as they are until the next flush.
        """
        try:
            file = open_file(path)
        except FileNotFoundError:
            return b"", 0
        with file, naming(path):
            fd = file.fd
            size = os.fstat(fd).st_size
            if size <= POINTER_BYTES:
                return b"", 0
            used = self.layout.numbers(read_whole(fd, POINTER_BYTES, 0))[0]
            there = min(used, size - POINTER_BYTES)
            if there > BUFFER_BYTES_MAX:
                raise UnsupportedFormat(
                    f"{path}: {there} bytes are in use, and at most {BUFFER_BYTES_MAX} can be read: close the journal's "
                    "writer, which flushes them, then import it"
                )
            content = read_whole(fd, there, POINTER_BYTES)
            again = self.layout.numbers(read_whole(fd, POINTER_BYTES, 0))[0]
            if again < used or crc_of(lambda at, n: read_whole(fd, n, at), POINTER_BYTES, POINTER_BYTES + there) != crc32c(
                content
            ):
                return None, 0
            return content, used - there


def crc_of(read: Callable[[int, int], bytes], begin: int, end: int) -> int | None:
    """Returns the CRC32C of the bytes from `begin` to `end`; None if `read` does not have all of them."""
    crc, at = 0, begin
    while at < end:
        piece = read(at, min(1 << 20, end - at))
        if not piece:
            return None
        crc = crc32c(piece, crc)
        at += len(piece)
    return crc
