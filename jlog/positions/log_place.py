"""The place of a followed log file in a journal's state: what was read of which file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

PLACE = b"jlog.follow:"  # before the file's path: the key of its place in the state


class FileState(IntEnum):
    FOLLOWED = 0  # it is read, or will be, or it may grow
    LEFT = 1  # it was read, and did not change for long
    SKIPPED = 2  # it is not read: it was there before, or it is not a file of this log


@dataclass(frozen=True)
class FilePlace:
    """How far one file was read, and what tells it from every other file, whatever its name is.

    birth_ns: 0 where the file system does not know it.
    mark: a checksum of the file's beginning and of the bytes before `offset`. A file that was truncated and has grown again has
        other bytes there, and so has another file that was given the inode.
    changed_ns: its time of change when it was last looked at.
    in_long_line: the offset is within a line that was cut or left out.
    """

    device: int
    inode: int
    birth_ns: int = 0
    offset: int = 0
    mark: int = 0
    changed_ns: int = 0
    state: FileState = FileState.FOLLOWED
    in_long_line: bool = False

    def numbers(self) -> list[int]:
        return [int(number) for number in vars(self).values()]

    @classmethod
    def of(cls, numbers: Iterable[int]) -> FilePlace:
        device, inode, birth_ns, offset, mark, changed_ns, state, in_long_line = numbers
        return cls(device, inode, birth_ns, offset, mark, changed_ns, FileState(state), bool(in_long_line))


@dataclass(frozen=True)
class LogPlace:
    """The files of a log, in the order in which their lines are read.

    since_ns: the time of change of the file at the path when lines were last read from it. A file that nobody has seen yet and
        that was rotated afterwards has changed later.
    forgotten_ns: the newest time of change of the files that are not in `files` any more.
    target: the file that the path led to through a symbolic link.
    time_us: the time of the last line that had one, for the lines after it.
    files_left_out, lines_cut: how many, since the log is followed.
    before: only in a place that an older jlog has stored: offset and mark of the end of the file before; None: not stored.
    """

    files: tuple[FilePlace, ...] = ()
    since_ns: int = 0
    forgotten_ns: int = 0
    target: str = ""
    time_us: int | None = None
    files_left_out: int = 0
    lines_cut: int = 0
    before: tuple[int, ...] | None = None
    is_old: bool = False

    def to_bytes(self) -> bytes:
        fields = {**asdict(self), "files": [file.numbers() for file in self.files]}
        del fields["before"], fields["is_old"]
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> LogPlace:
        fields: dict[str, Any] = json.loads(stored)
        if "files" in fields:
            return cls(**{**fields, "files": tuple(map(FilePlace.of, fields["files"]))})
        before = fields.get("before")
        file = FilePlace(fields["device"], fields["inode"], offset=fields["offset"], mark=fields["mark"])
        return cls((file,), time_us=fields["time_us"], before=None if before is None else tuple(before), is_old=True)
