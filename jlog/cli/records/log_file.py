"""Reads a log file through its rotations, from a place that survives a restart."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from io import FileIO

PIECE_BYTES = 1 << 20
LINE_BYTES_MAX = 1 << 30
MARK_BYTES = 1024  # of the file's beginning, and of what lies before the place, that must be there again
_DATE = re.compile(r"[._-]\d{4}[._-]?\d\d")
QUIET_SECONDS = 1.0  # a rotated file has to stay unchanged so long: its writer opens the new one some time later


@dataclass(frozen=True)
class LinePlace:
    """Where the next line begins: in which file, since another one may have its name now, and how far into it.

    mark: a checksum of the file's beginning and of the bytes before `offset`. A file that was truncated and has grown again has
        other bytes there, and so has another file that was given the inode.
    time_us: the time of the last line that had one, for the lines after it.
    before: offset and mark of the end of the file that came before this one; empty where there was none, None in
        a place of an older jlog. Files that were rotated after that one have not been read, but for the file of this place.
    """

    device: int = 0
    inode: int = 0
    offset: int = 0
    mark: int = 0
    time_us: int | None = None
    before: list[int] | None = None

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> LinePlace:
        return cls(**json.loads(stored))


@dataclass(frozen=True)
class Lines:
    """Complete lines, without their newlines, and the place after them."""

    values: list[bytes]
    after: LinePlace


class LogFile:
    """The lines of the file at `path` from `place` on, through every rotation since. tell: takes a line for the user."""

    def __init__(self, path: str, place: LinePlace | None, tell: Callable[[str], None]) -> None:
        self.path = path
        self._tell = tell
        self._place = place or LinePlace(before=self._end_of_newest())
        self._file: FileIO | None = None
        self._quiet: tuple[int, float] | None = None  # size of the rotated file, and since when it has had it

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def next(self) -> Lines | None:
        """Returns the next lines, or None where there are none now. Lines without values say that another file begins."""
        if self._file is None and not self._find():
            return self._begin_unread()
        assert self._file is not None
        fd, offset = self._file.fileno(), self._place.offset
        begin = max(offset - MARK_BYTES, 0)
        at = offset - begin  # of the next line in `data`, whose bytes before that the mark is of
        wanted, data, newline = PIECE_BYTES, b"", -1
        while newline < 0 and wanted <= LINE_BYTES_MAX:
            data = os.pread(fd, at + wanted, begin)
            newline = data.rfind(b"\n", at)
            if len(data) < at + wanted:
                break
            wanted *= 2
        head = os.pread(fd, MARK_BYTES, 0) if begin else data
        if _mark(head, data[:at], offset) != self._place.mark:  # after reading: the data is of this file
            self.close()
            return None if self._find() else self._begin_unread()
        if newline >= 0:
            return self._taken(data[at:newline].split(b"\n"), head, data[: newline + 1])
        if len(data) - at > LINE_BYTES_MAX // 2:
            raise ValueError(f"{self.path}: the line at byte {offset} has more than {LINE_BYTES_MAX // 2} bytes")
        return self._at_its_end(fd, head, data, data[at:])

    def _taken(self, values: list[bytes], head: bytes, data: bytes) -> Lines:
        """Moves the place to the end of `data`. Its mark is of what was read: the file may have been truncated since."""
        offset = max(self._place.offset - MARK_BYTES, 0) + len(data)
        self._place = replace(self._place, offset=offset, mark=_mark(head, data, offset))
        self._quiet = None
        return Lines(values, self._place)

    def _begin(self, file: FileIO | None, before: list[int] | None) -> Lines | None:
        """Begins with a file. The place is stored before the first line: the file may be rotated away first."""
        if file is None:
            return None
        self.close()
        there = os.fstat(file.fileno())
        self._file, self._quiet = file, None
        self._place = LinePlace(there.st_dev, there.st_ino, before=before)
        return Lines([], self._place)

    def _begin_unread(self) -> Lines | None:
        """Begins with the oldest file that has not been read."""
        files = filter(None, map(_open, [*self._unread(), self.path]))
        return self._begin(next(files, None), self._place.before)

    def _unread(self) -> list[str]:
        """Returns the rotated files that came after the one before the place, oldest first. If that one is not there any more,
        all others are younger."""
        before = self._place.before
        found: list[str] = []
        for path in self._rotated() if before is not None else ():
            file = _open(path)
            if file is None:
                continue
            with file:
                if before and mark_of(file.fileno(), before[0]) == before[1]:
                    found = []
                elif not self._begins_as(file):
                    found.append(path)
        return found

    def _begins_as(self, file: FileIO) -> bool:
        """Says whether the file at the path begins with all bytes of this one: it was copied, and not truncated."""
        size, current = os.fstat(file.fileno()).st_size, _open(self.path)
        if current is None:
            return not size
        with current:
            fd = current.fileno()
            return os.fstat(fd).st_size >= size and mark_of(fd, size) == mark_of(file.fileno(), size)

    def _end_of_newest(self) -> list[int]:
        """Returns `before` for a place that begins with the file at the path."""
        for path, there in reversed(self._rotated().items()):
            file = _open(path) if there.st_size else None
            if file is not None:
                with file:
                    return [there.st_size, mark_of(file.fileno(), there.st_size)]
        return []

    def _find(self) -> bool:
        """Opens the file that the place is in, wherever it was moved to: the one that has its inode, else the copy that
        copytruncate has left, which has the same bytes."""
        place = self._place
        rotated = self._rotated()
        for by_inode in (True, False) if place.offset else (True,):
            # Its bytes prove that a file is the one, whatever its name is. Without any, its name has to be one of ours.
            anywhere = self._with_inode(place.inode) if by_inode and place.offset else []
            for path in [self.path, *reversed(rotated), *anywhere]:
                file = _open(path)
                if file is None:
                    continue
                there = os.fstat(file.fileno())
                is_same = (there.st_dev, there.st_ino) == (place.device, place.inode)
                if (is_same or not by_inode) and mark_of(file.fileno(), place.offset) == place.mark:
                    if path == self.path and not place.offset and self._unread():
                        file.close()  # its first lines may have been copied away
                        return False
                    self._file = file
                    self._place = replace(place, device=there.st_dev, inode=there.st_ino)
                    return True
                file.close()
        if _inodes(self._rotated()) != _inodes(rotated):
            return self._find()  # files got other names on the way
        if place.offset:
            self._tell(
                f"{self.path}: what was read, up to byte {place.offset}, is neither in this file nor in one that it was "
                "rotated to in its directory; lines after that, if there were any, are lost"
            )
            self._place = LinePlace(before=place.before)
        return False

    def _with_inode(self, inode: int) -> list[str]:
        directories = {os.path.dirname(path) for path in self._paths()}
        return [entry.path for each in directories for entry in os.scandir(each) if entry.inode() == inode and entry.is_file()]

    def _paths(self) -> set[str]:
        """Returns the path, and that of the file which a symbolic link there leads to."""
        return {self.path, os.path.realpath(self.path)}

    def _rotated(self) -> dict[str, os.stat_result]:
        """Returns the files that logrotate and its like have made of this one, oldest first."""
        inodes: dict[str, int] | None = None
        while True:  # until two looks agree: a file that gets another name during a look may be missing, or be there twice
            parts = {path: part for each in self._paths() for path, part in _rotated_names(each)}
            found = {path: there for path in parts if (there := _stat(path)) is not None and stat.S_ISREG(there.st_mode)}
            before, inodes = inodes, _inodes(found)
            if inodes == before:
                by_date = all(_DATE.match("".join(parts[path])) for path in found)
                ages = {path: _age(there, *parts[path], by_date=by_date) for path, there in found.items()}
                return {path: found[path] for path in sorted(found, key=ages.__getitem__)}

    def _at_its_end(self, fd: int, head: bytes, data: bytes, rest: bytes) -> Lines | None:
        """Goes on to the next file, if this one was rotated away. `rest` is what stands after its last newline."""
        ours, now = os.fstat(fd), _stat(self.path)
        if (now is not None and os.path.samestat(now, ours)) or ours.st_size > self._place.offset + len(rest):
            return None
        # Each end of a file looks for the later files anew: a rotation adds one, and gives all of them other names. If there is
        # another rotation between this look and the opening below, the opened file is not the one that was found.
        later = list(self._rotated().items())
        places = [at for at, (_, there) in enumerate(later) if os.path.samestat(there, ours)]
        if places:
            later = later[places[-1] + 1 :]
        else:  # it was deleted, perhaps after it was compressed
            later = [(path, there) for path, there in later if there.st_mtime_ns > ours.st_mtime_ns]
        if not later:
            if now is None or not now.st_size:  # its writer still has the old one open
                return None
            if self._quiet is None or self._quiet[0] != ours.st_size:
                self._quiet = ours.st_size, time.monotonic()
            if time.monotonic() - self._quiet[1] < QUIET_SECONDS:
                return None
            later = [(self.path, now)]
        if rest:
            return self._taken([rest], head, data)
        path, expected = later[0]
        file = _open(path)
        if file is None or os.path.samestat(os.fstat(file.fileno()), expected):
            place = self._place
            return self._begin(file, [place.offset, place.mark] if place.offset else place.before)
        file.close()
        return None


def _rotated_names(path: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields the paths beside this one that have a name as of a rotation, and their numbers after and within the name."""
    directory, name = os.path.split(path)
    stem, ending = (re.escape(part) for part in os.path.splitext(name))
    number = r"[._-]\d[\d.:_T-]*"
    ours = re.compile(rf"{stem}{ending}(?:({number})|[.](?:old|bak))|{stem}({number}){ending}")
    for match in filter(None, map(ours.fullmatch, os.listdir(directory))):
        yield os.path.join(directory, match[0]), (match[1] or "", match[2] or "")


def _age(there: os.stat_result, after: str, within: str, *, by_date: bool) -> tuple[int, list[int]]:
    """Returns a key that sorts rotated files, oldest first: by the dates in their names if all have one, else by the times of
    their last change. Where two times are equal, the numbers decide: app.log.1 is newer than app.log.2, and app-1.log is older
    than app-2.log."""
    if by_date:
        return 0, _numbers(after + within)
    return there.st_mtime_ns, [-number for number in _numbers(after)] or _numbers(within)


def _numbers(text: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", text)]


def _inodes(files: dict[str, os.stat_result]) -> dict[str, int]:
    return {path: there.st_ino for path, there in files.items()}


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _open(path: str) -> FileIO | None:
    there = _stat(path)
    if there is not None and not stat.S_ISREG(there.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    try:
        return open(path, "rb", buffering=0)
    except FileNotFoundError:
        return None


def mark_of(fd: int, offset: int) -> int:
    """Returns the checksum that a LinePlace has."""
    begin = max(offset - MARK_BYTES, 0)
    return _mark(os.pread(fd, MARK_BYTES, 0), os.pread(fd, offset - begin, begin), offset)


def _mark(head: bytes, before: bytes, offset: int) -> int:
    return zlib.crc32(before[-MARK_BYTES:], zlib.crc32(head[: min(MARK_BYTES, offset)]))
