"""The names of libjlog's Python binding, on journals of this library: `from jlog.compat import JLogReader, JLogWriter`.

docs/libjlog.md says where they differ.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from jlog.errors import JournalError
from jlog.journal import Journal
from jlog.reading.reader import Reader
from jlog.writer import Writer

__all__ = [
    "JLOG_BEGIN",
    "JLOG_END",
    "JLogError",
    "JLogReader",
    "JLogWriter",
    "jlog_add_subscriber",
    "jlog_remove_subscriber",
]

JLOG_BEGIN = 0
JLOG_END = 1
_STARTS = {JLOG_BEGIN: "begin", JLOG_END: "end"}
_REFUSED = (JournalError, OSError, LookupError, ValueError)


class JLogError(Exception):
    """What the binding raises for everything that goes wrong. The error of this library is its __cause__."""


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except _REFUSED as error:
        raise JLogError(f"{what}: {error}") from error


def jlog_add_subscriber(path: str | os.PathLike[str], subscriber: str, position: int = JLOG_BEGIN) -> bool:
    """Makes a subscriber. Returns False where that is not possible, for example because there is one of this name."""
    try:
        Journal(path).add_subscriber(subscriber, _STARTS[position])
    except _REFUSED:
        return False
    return True


def jlog_remove_subscriber(path: str | os.PathLike[str], subscriber: str) -> bool:
    """Removes a subscriber. Returns False where that is not possible, for example because there is none of this name."""
    try:
        Journal(path).remove_subscriber(subscriber)
    except _REFUSED:
        return False
    return True


class _Subscribers:
    path: str | os.PathLike[str]

    def add_subscriber(self, subscriber: str, position: int = JLOG_BEGIN) -> bool:
        return jlog_add_subscriber(self.path, subscriber, position)

    def remove_subscriber(self, subscriber: str) -> bool:
        return jlog_remove_subscriber(self.path, subscriber)


class JLogReader(_Subscribers):
    """Reads as a subscriber, which must exist, and commits each record when it hands it out. Iterating ends at the end of the
    journal; iterating again goes on there. len() is the number of records that are left."""

    def __init__(self, path: str | os.PathLike[str], subscriber: str) -> None:
        self.path, self.subscriber = path, subscriber
        with _told(f"jlog reader failed to open subscriber {subscriber}@{os.fspath(path)}"):
            self._reader = Reader(path, subscriber, create=False)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        with _told("jlog read error"):
            for record in self._reader.read(1):
                self._reader.commit()
                return record.value or b""
        raise StopIteration

    def __len__(self) -> int:
        with _told("jlog error"):
            return self._reader.lag

    def truncate(self, size: int | None = None) -> bool:
        """Moves the subscriber so that `size` records are left, fewer where there is a gap, or none. Returns False if no more
        are left anyway."""
        with _told("jlog error"):
            left = self._reader.lag
            if size is not None and left <= size:
                return False
            self._reader.seek(max(self._reader.position, Journal(self.path).next_sequence - (size or 0)))
            self._reader.commit()
            return True

    def close(self) -> None:
        """Frees the subscriber's name, which this reader has alone. The binding frees it with the object."""
        self._reader.close()


class JLogWriter(_Subscribers):
    """Appends to the journal, which is made if there is none."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        with _told(f"jlog writer failed to open {os.fspath(path)}"):
            self._writer = Writer(path)

    def write(self, msg_py: bytes) -> None:
        with _told("jlog write error"):
            self._writer.append(msg_py)

    def close(self) -> None:
        self._writer.close()
