"""The files beside a log file, as a look at its directories shows them."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from io import FileIO

from jlog.cli.records.growing_file import GrowingFile, mark_of
from jlog.cli.records.rotated_names import NameKind, Parts, has_date, names_beside, numbers_of, paths_of
from jlog.positions.log_place import FilePlace

_LOOKS_MAX = 20
_CLOCK_TICK_NS = 1_000_000_000  # a birth may be later than a change by less than this, by the grain of a file system's clock
_AT_FDCWD, _STATX_BTIME = -100, 0x800
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


class Renamed(Exception):
    """A file got another name during a look."""


@dataclass(frozen=True)
class Candidate:
    """A regular file in the log's directories."""

    path: str
    kind: NameKind
    parts: Parts
    device: int
    inode: int
    birth_ns: int
    size: int
    changed_ns: int

    def is_file_of(self, place: FilePlace) -> bool:
        """Says whether it has the identity of that file. A device may get another number when the machine starts anew."""
        if self.inode != place.inode:
            return False
        return self.birth_ns == place.birth_ns if self.birth_ns and place.birth_ns else self.device == place.device

    def place(self) -> FilePlace:
        return FilePlace(self.device, self.inode, self.birth_ns, changed_ns=self.changed_ns)


def candidates(path: str, target: str, inodes: Collection[int], tell: Callable[[str], None]) -> list[Candidate]:
    """Returns the file at the path, and those beside it, and beside the file that a link there leads to or has led to
    (`target`), whose name or inode may be of the log."""
    before = None
    # Until two looks agree: a file that gets another name during a look may be missing, or be double.
    for _ in range(_LOOKS_MAX):
        look = _look(path, target, inodes, tell)
        inodes_of_names = {candidate.path: candidate.inode for candidate in look}
        if inodes_of_names == before:
            break
        before = inodes_of_names
    files: dict[tuple[int, int], Candidate] = {}
    for candidate in sorted(look, key=lambda each: each.kind):
        files.setdefault((candidate.device, candidate.inode), candidate)
    return list(files.values())


def in_order(files: Iterable[Candidate]) -> list[Candidate]:
    """Returns the files, oldest first. Births mislead where files were copied, times of change where an old file was written to
    late, and numbers in names where a program counts the other way. So it is the order that two of them agree on."""
    files = list(files)
    is_dated = all(has_date(file.parts) for file in files)
    by_name = sorted(files, key=lambda file: numbers_of(file.parts, is_date=is_dated))
    by_change = sorted(by_name, key=lambda file: file.changed_ns)
    orders = [by_name, by_change] if is_dated else [by_change, by_name]
    if all(0 < file.birth_ns <= file.changed_ns + _CLOCK_TICK_NS for file in files):  # else they were restored from a backup
        orders.insert(0, sorted(by_name, key=lambda file: file.birth_ns))
    return next((order for number, order in enumerate(orders) if order in orders[number + 1 :]), orders[0])


def _look(path: str, target: str, inodes: Collection[int], tell: Callable[[str], None]) -> list[Candidate]:
    look = []
    try:
        candidate = _candidate(path, NameKind.PATH, ("", ""))
    except OSError as error:
        tell(f"{path} cannot be looked at: {error.strerror}")
        candidate = None
    if candidate is not None:
        look.append(candidate)
    paths = paths_of(path)
    for base in dict.fromkeys([*paths, *([target] if target else [])]):
        kind_of = names_beside(base, is_target=base != path)
        directory = os.path.dirname(base)
        try:
            entries = [entry for entry in os.scandir(directory) if os.path.join(directory, entry.name) != path]
        except FileNotFoundError:
            continue
        except OSError as error:
            tell(f"{directory} cannot be looked through for rotated files of {path}: {error.strerror}")
            continue
        for entry in entries:
            kind, parts = kind_of(entry.name)
            if kind != NameKind.OTHER or entry.inode() in inodes:
                candidate = _candidate(os.path.join(directory, entry.name), kind, parts)
                look += [] if candidate is None else [candidate]
    return look


def _candidate(path: str, kind: NameKind, parts: Parts) -> Candidate | None:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError:
        if kind == NameKind.PATH:
            raise
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    birth_ns = _birth_ns(path, status.st_ino)
    return Candidate(path, kind, parts, status.st_dev, status.st_ino, birth_ns, status.st_size, status.st_mtime_ns)


def _birth_ns(path: str, inode: int) -> int:
    """Returns when the file was made, in nanoseconds since 1970; 0 where the system does not know it."""
    if _statx is None:
        return 0
    status = ctypes.create_string_buffer(256)
    if _statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME | 0x7FF, status) != 0:
        return 0
    mask, seconds, nanoseconds = (*struct.unpack_from("=I", status, 0), *struct.unpack_from("=qI", status, 80))
    (its_inode,) = struct.unpack_from("=Q", status, 32)
    return int(seconds * 1_000_000_000 + nanoseconds) if mask & _STATX_BTIME and its_inode == inode else 0


def begins_with(file: Candidate, place: FilePlace) -> bool:
    """Says whether the file has the bytes that were read of the place's file."""
    return file.size >= place.offset and checksum(file, place.offset) == place.mark


def open_regular(path: str) -> FileIO:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return open(path, "rb", buffering=0)


def is_beginning(file: Candidate, original: Candidate | GrowingFile) -> bool:
    """Says whether the original begins with all bytes of the file."""
    mark = checksum(file, file.size)
    if isinstance(original, GrowingFile):
        return original.stat().st_size >= file.size and mark_of(original.file.fileno(), file.size) == mark
    return original.size >= file.size and mark is not None and checksum(original, file.size) == mark


def checksum(candidate: Candidate, offset: int) -> int | None:
    """Returns the checksum; None where the file cannot be read. Raises Renamed where another file has its name now."""
    try:
        with open_regular(candidate.path) as file:
            if os.fstat(file.fileno()).st_ino != candidate.inode:
                raise Renamed
            return mark_of(file.fileno(), offset)
    except FileNotFoundError:
        raise Renamed from None
    except OSError:
        return None
