"""The errors of jlog itself. Errors of the operating system pass through as OSError.

Each message says what happened, where, and what to do next.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

__all__ = [
    "CheckpointNotFound",
    "CorruptJournal",
    "DecodeError",
    "JournalClosed",
    "JournalError",
    "JournalExists",
    "JournalFull",
    "JournalLocked",
    "JournalMoved",
    "JournalNotFound",
    "LeaseLost",
    "PositionLost",
    "RecordTooLarge",
    "SchemaConflict",
    "SubscriberBusy",
    "SubscriberExists",
    "SubscriberNotFound",
    "UnsupportedFormat",
]


def text_of(error: BaseException) -> str:
    """Returns str(error), also where a function of the user's makes it, and raises."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001
        return "(its __str__ raises)"


class JournalError(Exception):
    """The root of jlog's own errors."""


class _AtPath(JournalError, OSError):
    """Has errno and filename as the operating system's own errors do, and a message that says more than theirs."""

    _errno = 0

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(self._errno, message, None if path is None else str(path))  # no descriptor stays open for it

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.strerror, self.filename)


class JournalNotFound(_AtPath, FileNotFoundError):
    """There is no journal at this path, `filename`."""

    _errno = errno.ENOENT


class JournalExists(_AtPath, FileExistsError):
    """There is a journal, or something else, at this path already, `filename`."""

    _errno = errno.EEXIST


class JournalClosed(JournalError, ValueError):
    """The object is closed, or belongs to the process that this one was forked from."""


class JournalLocked(JournalError):
    """Another process holds what this call needs, and held it for the whole timeout."""


class JournalMoved(JournalError):
    """The path does not lead to the journal any more that was opened there: the journal was renamed, removed or replaced, or a
    link was changed. Close every object that has it open, and open it again."""


class JournalFull(JournalError):
    """The journal has reached its retention's limit_bytes, and no segment could be removed."""


class CorruptJournal(JournalError):
    """Bytes differ from those that were written: none of them are returned.

    `path` is the file, `offset` the byte at which the damage begins, and `reason` says what is wrong.
    """

    def __init__(self, path: str, offset: int, reason: str) -> None:
        self.path: str
        self.path = path = str(path)  # a str that holds a directory open would hold it as long as the error
        super().__init__(path, offset, reason)
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.path}: damaged at byte {self.offset}: {self.reason}; `jlogtool verify` lists all damage, `jlogtool repair` "
            "keeps what can still be read"
        )


class DecodeError(JournalError, ValueError):
    """The codec cannot decode a record's value, which is intact. `path` is the journal, `sequence` the record's, and `reason`
    says what the codec raised, which is the `__cause__` too."""

    def __init__(self, path: str, sequence: int, reason: str) -> None:
        self.path: str
        self.path = path = str(path)
        super().__init__(path, sequence, reason)
        self.sequence = sequence
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"{self.path}: record {self.sequence} cannot be decoded: {self.reason}; the reader goes on after it, and its bytes "
            "are in record.value"
        )


class UnsupportedFormat(JournalError):
    """A file was written by a newer version of jlog."""


class RecordTooLarge(JournalError, ValueError):
    """A value, an extend or a state is larger than the format allows; nothing of it was written."""


class SchemaConflict(JournalError, ValueError):
    """The journal has had records of a type that was different: readers of the one cannot decode records of the other. Nothing
    was written."""


class SubscriberNotFound(JournalError, LookupError):
    """The journal has no subscriber of this name."""


class SubscriberExists(JournalError):
    """The journal has a subscriber of this name already."""


class SubscriberBusy(JournalError):
    """This subscriber's name is taken: it belongs to one Reader at a time, or to any number of Workers."""


class LeaseLost(JournalError):
    """The records of these `tasks` were handed out again, or finished, since this worker took them: nothing was changed. In
    another process, `tasks` is empty."""

    def __init__(self, message: str, tasks: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.tasks: list[Any] = list(tasks)

    def __copy__(self) -> LeaseLost:
        return type(self)(str(self), self.tasks)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args  # a task stays in the process whose worker has taken it


class CheckpointNotFound(JournalError, LookupError):
    """The journal has no checkpoint of this name."""


class PositionLost(JournalError, LookupError):
    """Retention has removed the next record. `first_sequence` is that of the oldest retained record."""

    def __init__(self, message: str, first_sequence: int) -> None:
        super().__init__(message, first_sequence)
        self.first_sequence = first_sequence

    def __str__(self) -> str:
        return str(self.args[0])
