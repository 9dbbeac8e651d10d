"""What a child tells its supervisor, through a pipe: frames of a length and a pickled report."""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from jlog.errors import JournalError
from jlog.flow.ends import Lag
from jlog.flow.stats import FlowStats

LENGTH = struct.Struct("<I")
READ_BYTES = 1 << 16


@dataclass
class Report:
    """The state of a flow. `events` are the lines since the report before. A report with `ended` is the last one, and `failure`
    is the error that has ended the flow."""

    stats: FlowStats = field(default_factory=FlowStats)
    is_open: bool = False
    was_open: bool = False
    lag: Lag | None = None
    events: list[str] = field(default_factory=list)
    ended: bool = False
    failure: Exception | None = None


def send(fd: int, report: Report) -> None:
    """Writes the whole report, and waits while the pipe is full."""
    body = pickle.dumps(report)
    left = memoryview(LENGTH.pack(len(body)) + body)
    while left:
        left = left[os.write(fd, left) :]


class Reports:
    """Reads the reports of a child that have come so far. Never waits for the child."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._bytes = bytearray()
        self.at_end = False  # whether no process can write to the pipe any more

    def new(self) -> Iterator[Report]:
        while not self.at_end:
            try:
                got = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                break
            self._bytes += got
            self.at_end = not got
        while len(self._bytes) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(self._bytes)[0]
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[LENGTH.size : end])
            del self._bytes[:end]
            report: Report = pickle.loads(body)
            yield report


def portable(error: Exception) -> Exception:
    """Returns the error as another process can have it: one of a type that it does not know becomes a JournalError."""
    if type(error).__module__.partition(".")[0] in ("builtins", "jlog"):
        try:
            found: Exception = pickle.loads(pickle.dumps(error))
        except Exception:  # noqa: BLE001 - whatever its arguments are, its text is told
            return JournalError(str(error) or repr(error))
        found.__cause__ = None
        return found
    return JournalError(f"{type(error).__name__}: {error}")
