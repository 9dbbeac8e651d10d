"""A handler for the standard library's `logging`, which appends log records to a journal."""

from __future__ import annotations

import copy
import errno
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from jlog import Writer
from jlog.errors import CorruptJournal, JournalClosed, JournalError, JournalLocked, JournalMoved, RecordTooLarge
from jlog.system.filesystem import journal_path

__all__ = ["DEFAULT_FIELDS", "FIELDS", "JournalHandler"]

RETRY_SECONDS = 1.0
WAITING_MAX = 100  # log records that wait for the one during which they were logged
WAITS_FOR_NOTHING = ("jlog", "py.warnings")  # loggers of messages that jlog itself logs, also in threads of its own
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# A failed sync ends only when every writer has closed. The directory was replaced, or the program has closed all descriptors.
ENDS_A_WRITER = (CorruptJournal, JournalClosed, JournalMoved, OSError)

# The fields that headers may have. A header is left out where the log record does not have its field.
FIELDS: Mapping[str, Callable[[logging.LogRecord], Any]] = {
    "level": lambda record: record.levelname,
    "logger": lambda record: record.name,
    "module": lambda record: record.module,
    "function": lambda record: record.funcName,
    "file": lambda record: record.pathname,
    "line": lambda record: record.lineno,
    "process": lambda record: record.process,
    "process_name": lambda record: record.processName,
    "thread": lambda record: record.threadName,
    "thread_id": lambda record: record.thread,
    "task": lambda record: getattr(record, "taskName", None),
    "exception": lambda record: record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else None,
}
DEFAULT_FIELDS = ("level", "logger", "module", "line", "process", "thread", "exception")
_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


class JournalHandler(logging.Handler):
    """Appends each log record to a journal. The formatted message is the value, with an exception's traceback below it; the
    logger's name is the key; `record.created` is the timestamp. Readers see the record at once, and it survives the death of
    the process.

    journal: a journal's path, created if there is none; or an open Writer, which the caller closes.
    fields: those of FIELDS that become headers, under these names.
    extra: turns the application's `extra=` into headers too: True for all of it, or the names of some.
    key: one of FIELDS, the name of an extra, a function of the log record, or None for no key.
    lock_timeout: seconds that logging may wait for another process's append.
    options: other options of a Writer. Like lock_timeout they are for a journal that the handler itself opens.

    The handler never raises into the application, nor blocks it for long. A log record that cannot be appended (on a full disk,
    or while another process has locked the journal) is dropped. Handler.handleError is told once, and appending is tried again
    a second later. The first record that is appended after that is a warning that says how many were dropped and why. Any
    number of processes may log to one journal; after a fork the child opens it for itself. A path that cannot be a journal
    raises here.
    """

    def __init__(
        self,
        journal: str | os.PathLike[str] | Writer,
        level: int | str = logging.NOTSET,
        *,
        fields: Collection[str] = DEFAULT_FIELDS,
        extra: bool | Collection[str] = True,
        key: str | Callable[[logging.LogRecord], Any] | None = "logger",
        lock_timeout: float | None = 0.1,
        **options: Any,
    ) -> None:
        super().__init__(level)
        unknown = sorted(set(fields) - set(FIELDS))
        if unknown:
            raise ValueError(f"a log record has no field {', '.join(unknown)}; it has {', '.join(FIELDS)}")
        self.dropped: int = 0  # log records that were dropped since the handler was created
        self._fields = tuple(fields)
        self._extra = extra
        self._key = key
        self._unreported = 0
        self._reason = ""
        self._retry_at = 0.0
        self._closed = False
        self._within = 0  # the thread that appends
        self._waiting: deque[logging.LogRecord] = deque(maxlen=WAITING_MAX)
        self._process = os.getpid()
        self._writer: Writer | None = None
        if isinstance(journal, (str, os.PathLike)):
            self.path: str = journal_path(journal)
            self._open: Callable[[], Writer] = lambda: Writer(self.path, lock_timeout=lock_timeout, **options)
            self._ours = True
            self._try_to_open()
        else:
            if options:
                raise TypeError(f"the writer is already open; give {', '.join(options)} to jlog.Writer instead")
            self.path = journal.path
            self._open = lambda: copy.copy(journal)  # copies as pickling does, by path and options
            self._ours = False
            self._writer = journal

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.path} ({logging.getLevelName(self.level)})>"

    def _try_to_open(self) -> None:
        """Tries to open the writer. An error that may pass is left for the first log record."""
        try:
            self._writer = self._open()
        except (JournalLocked, OSError) as error:
            if isinstance(error, OSError) and error.errno not in DISK_FULL:
                raise

    # --- One log record ---------------------------------------------------------------------------------------------

    def handle(self, record: logging.LogRecord) -> bool:
        """Handles a log record. For records of jlog itself it waits for no lock: the thread that holds the lock may be closing
        the writer, which waits for jlog's threads."""
        if record.name not in WAITS_FOR_NOTHING:
            return bool(super().handle(record))
        passed: Any = self.filter(record)  # since Python 3.12 this may be another record
        if not passed:
            return False
        self._forget_parent()
        self._waiting.append(passed if isinstance(passed, logging.LogRecord) else record)
        assert self.lock is not None
        if not self.lock.acquire(blocking=False):
            return True
        try:
            self._with_guard(None)
        finally:
            self.lock.release()
        return True

    def emit(self, record: logging.LogRecord) -> None:
        self._with_guard(record)

    def _with_guard(self, record: logging.LogRecord | None) -> None:
        """Appends the record, and then those that wait. Records that are logged while this thread appends wait too: they come
        after the one that caused them, and cause no others."""
        self._forget_parent()
        if self._within == threading.get_ident():
            if record is not None:
                self._waiting.append(record)
            return
        self._within = threading.get_ident()
        try:
            if record is not None:
                self._append_or_drop(record)
            for _ in range(len(self._waiting)):
                self._append_or_drop(self._waiting.popleft())
        finally:
            self._within = 0

    def _append_or_drop(self, record: logging.LogRecord) -> None:
        if self._closed:
            self.dropped += 1
            return
        try:
            value, key, headers = self._value(record), self._key_of(record), self._headers(record)
            if time.monotonic() < self._retry_at:
                self._drop(self._reason)
                return
            if self._writer is None:
                self._writer = self._open()
            if self._unreported:
                self._report(self._writer)
            self._writer.append(value, key=key, headers=headers, timestamp_us=round(record.created * 1e6))
        except RecursionError:
            raise  # as the handlers of logging do
        except Exception as error:  # noqa: BLE001  # nothing that can go wrong here may reach the application
            self._drop(str(error) or type(error).__name__)
            if isinstance(error, (JournalError, OSError)) and not isinstance(error, RecordTooLarge):
                self._retry_at = time.monotonic() + RETRY_SECONDS  # each attempt may wait for lock_timeout
            if self._ours and isinstance(error, ENDS_A_WRITER) and record.name not in WAITS_FOR_NOTHING:
                self._close_writer()
            self.handleError(record)

    def _drop(self, reason: str) -> None:
        self.dropped += 1
        self._unreported += 1
        self._reason = reason

    def _report(self, writer: Writer) -> None:
        text = f"{self._unreported} log records were dropped: {self._reason}"
        headers = [("level", b"WARNING"), ("logger", b"jlog.logging"), ("dropped", b"%d" % self._unreported)]
        writer.append(_to_bytes(text), key=b"jlog.logging", headers=headers)
        self._unreported = 0

    # --- Result -----------------------------------------------------------------------------------------------------

    def _value(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode(errors="backslashreplace")

    def _key_of(self, record: logging.LogRecord) -> bytes | None:
        if self._key is None:
            return None
        if callable(self._key):
            return _to_bytes(self._key(record))
        if self._key in FIELDS:
            return _to_bytes(FIELDS[self._key](record))
        return _to_bytes(getattr(record, self._key, None))

    def _headers(self, record: logging.LogRecord) -> list[tuple[str, bytes | None]]:
        """Puts the extras first: in a dict of the headers a field then counts."""
        found = [(str(name), _to_bytes(vars(record)[name])) for name in self._extras(record)]
        for name in self._fields:
            value = FIELDS[name](record)
            if value is not None:
                found.append((name, _to_bytes(value)))
        return found

    def _extras(self, record: logging.LogRecord) -> list[str]:
        if self._extra is True:
            return [name for name in vars(record) if name not in _STANDARD]
        return [name for name in self._extra or () if name in vars(record)]

    # --- Closing ----------------------------------------------------------------------------------------------------

    def _forget_parent(self) -> None:
        """Forgets the parent's writer, in the child of a fork. The thread that was appending does not exist here."""
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        self._writer, self._ours = None, True
        self._within = 0
        self._waiting.clear()
        self._retry_at, self._unreported = 0.0, 0

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            writer.close()
        except (JournalError, OSError):
            return  # the records are in the journal all the same

    def close(self) -> None:
        """Closes the writer, if the handler has opened it. Later log records are dropped."""
        self.acquire()
        try:
            self._with_guard(None)
            self._closed = True
            if self._ours and self._process == os.getpid():
                self._close_writer()
            self._writer = None
        finally:
            self.release()
        super().close()


def _to_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    return str(value).encode(errors="backslashreplace")
