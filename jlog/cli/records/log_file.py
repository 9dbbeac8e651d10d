"""Reads a log file through its rotations, from a place that survives a restart."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from jlog.cli.records.growing_file import GrowingFile, LongLines, Truncated
from jlog.cli.records.series import Series, SeriesFile
from jlog.positions.log_place import FileState, LogPlace

ROTATED_SECONDS = 3600.0
BUSY_SECONDS = 5.0  # the new file waits no longer for a rotated one that is still written to
QUIET_SECONDS = 1.0  # a rotated file has to stay unchanged so long: its writer opens the new one some time later
ROTATED_MAX = 16  # rotated files that are followed at a time


@dataclass(frozen=True)
class Lines:
    """Complete lines, without their newlines, and the place after them."""

    values: list[bytes]
    after: LogPlace


class _Wait(NamedTuple):
    """The wait of a new file for the rotated one before it. The times are those of time.monotonic()."""

    file: SeriesFile
    size: int
    changed_at: float  # when the size was first seen
    began_at: float


class LogFile:
    """The lines of the file at `path` from `place` on, through every rotation since.

    tell: takes a line for the user.
    rotated_seconds: how long a rotated file is followed after it has changed or got its name.
    """

    def __init__(
        self,
        path: str,
        place: LogPlace | None,
        tell: Callable[[str], None],
        *,
        rotated_seconds: float = ROTATED_SECONDS,
        long_lines: LongLines | None = None,
    ) -> None:
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError(errno.EINVAL, "it is not a regular file", path)
        self._series = Series(path, place, long_lines or LongLines(), tell)
        self._rotated_seconds = rotated_seconds
        self._wait: _Wait | None = None

    def close(self) -> None:
        self._series.close()

    def next(self) -> Lines | None:
        """Returns the next lines, or None where there are none now. Lines without values say that only the place is another."""
        if self._series.look_if_due():
            return self._taken([])  # stored before the first line: the file may be rotated away first
        earlier: SeriesFile | None = None  # was read to its end
        for member in list(self._series.members):
            reader = member.reader
            if reader is None or member.state != FileState.FOLLOWED:
                continue
            try:
                if earlier is not None and not member.place().offset:
                    rest = self._before(member, reader, earlier)
                    if rest is None:
                        return None
                    if rest:
                        return self._taken(rest)
                values = reader.read()
                if values is None and self._is_left(member, reader):
                    values = reader.finish()
                    member.close()
                    member.state = FileState.LEFT
            except Truncated:
                self._series.look()
                return self._taken([])
            except OSError as error:
                self._series.tell(f"{member.path} cannot be read: {error.strerror}. It is tried again; the others go on")
                member.close()
                continue
            if values is not None:
                return self._taken(values)
            earlier = member
        return None

    def _taken(self, values: list[bytes]) -> Lines:
        return Lines(values, self._series.place())

    def _before(self, member: SeriesFile, reader: GrowingFile, earlier: SeriesFile) -> list[bytes] | None:
        """Returns what is left of the earlier file, an unfinished line or nothing, as soon as the next one may be begun. None:
        not yet, since the earlier file's writer may still have it open."""
        assert earlier.reader is not None
        if member is self._series.members[-1]:
            if not reader.stat().st_size:
                return None
            size = earlier.reader.stat().st_size
            now = time.monotonic()
            if self._wait is None or self._wait.file is not earlier:
                self._wait = _Wait(earlier, size, now, now)
            elif self._wait.size != size:
                self._wait = self._wait._replace(size=size, changed_at=now)
            if now - self._wait.began_at > BUSY_SECONDS:
                return []  # its writer goes on, and may finish its line
            if now - self._wait.changed_at < QUIET_SECONDS:
                return None
        return earlier.reader.finish()

    def _is_left(self, member: SeriesFile, reader: GrowingFile) -> bool:
        """Says whether a file that was read to its end is not followed any more: it was removed, or has not changed long."""
        members = [other for other in self._series.members if other.state == FileState.FOLLOWED]
        later = members[members.index(member) + 1 :]
        status = reader.stat()
        if not later or (status.st_size and not any(other.place().offset for other in later)):
            return False  # one without a byte does not wait for a later line
        age = time.time() - max(status.st_mtime, status.st_ctime)
        return not status.st_nlink or age > self._rotated_seconds or len(later) > ROTATED_MAX
