"""The world in which system calls fail: a journal with its writer and reader, and the records that must be in it."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jlog
import oracle

SYNC_ERROR_AT = 192
OPTIONS: dict[str, Any] = {"precommit": 4 << 10, "segment_bytes": 8 << 10}
SUBSCRIBER = "billing"
CREW = "crew"  # the subscriber that workers share


class World:
    """A journal at root/j. `values` is what must be in it, by sequence; `cleaned` are the numbers that may be gone."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = str(root / "j")
        self.writer: jlog.Writer | None = None
        self.direct: jlog.Writer | None = None
        self.reader: jlog.Reader | None = None
        self.worker: jlog.Worker | None = None
        self.tasks: list[jlog.Task] = []  # that it has taken
        self.finished: set[int] = set()  # records that a worker has finished, and was told so
        self.values: dict[int, bytes] = {}
        self.state: dict[bytes, bytes] = {}
        self.ids: dict[bytes, int] = {}  # of records whose value is their id
        self.number = 0
        self.doubtful = False  # records may be there that nobody was told of
        self.damaged = False  # on purpose: what can be read is read around it
        self.archive: str | None = None  # where what retention has removed can be read
        self.error = 0  # what the fault is, while it is armed

    # --- What is done to it ----------------------------------------------------------------------------------

    def open(self, **options: Any) -> None:
        self.writer = jlog.Writer(self.path, **{**OPTIONS, **options})

    def value(self, size: int = 40) -> bytes:
        self.number += 1
        return b"value %d " % self.number + b"." * size

    def append(self, size: int = 40, writer: jlog.Writer | None = None) -> None:
        value = self.value(size)
        writer = writer or self.writer
        assert writer is not None
        self.values[writer.append(value)] = value

    def append_once(self) -> None:
        """Appends an id that is new, and then one that another Writer has appended."""
        assert self.writer is not None
        with jlog.Writer(self.path) as other:
            for writer in (other, self.writer):
                value = self.value()
                sequence = self.ids[value] = writer.append(value, id=value)
                self.values[sequence] = value
        self.find_ids(self.writer)

    def find_ids(self, writer: jlog.Writer) -> None:
        for value, sequence in self.ids.items():
            assert writer.append(b"again", id=value) == sequence

    def extend(self, count: int, size: int = 40, state: dict[bytes, bytes] | None = None) -> None:
        assert self.writer is not None
        values = [self.value(size) for _ in range(count)]
        first = self.writer.extend(values, state=state)
        self.values.update({first + i: value for i, value in enumerate(values)})
        self.state.update(state or {})

    def fill(self, segments: int = 3) -> None:
        assert self.writer is not None
        for turn in range(segments):
            for _ in range(4):
                self.append()
            self.extend(3, 60, {b"turn": b"%d" % turn})
            self.writer.roll()
        self.append()

    # --- Is all there? -----------------------------------------------------------------------------------------

    def sync_error(self) -> int:
        try:
            with open(os.path.join(self.path, "precommit"), "rb") as file:
                image = file.read(SYNC_ERROR_AT + 4)
        except FileNotFoundError:
            return 0
        return struct.unpack_from("<I", image, SYNC_ERROR_AT)[0] if len(image) == SYNC_ERROR_AT + 4 else 0

    def there(self) -> dict[int, bytes | None]:
        found: dict[int, bytes | None] = {}
        with jlog.Reader(self.path, archive=self.archive is not None) as reader:
            while True:
                try:
                    found.update((record.sequence, record.value) for record in reader)
                    return found
                except jlog.CorruptJournal:
                    if not self.damaged:
                        raise
                    reader.skip_damage()

    def check(self) -> None:
        """Every record that was acknowledged is readable, and no other."""
        if not os.path.exists(os.path.join(self.path, "journal.meta")):
            assert not self.values
            return
        found = self.there()
        first = 0 if self.archive is not None else jlog.Journal(self.path).first_sequence
        wanted = {sequence: value for sequence, value in self.values.items() if sequence >= first}
        if self.doubtful:
            wanted = {**found, **wanted}
        assert found == wanted, f"there is {found}, and should be {wanted}"
        if self.damaged:
            return
        assert self.doubtful or jlog.Journal(self.path).state() == self.state
        report = jlog.Journal(self.path).verify()
        assert report.ok, report

    def goes_on(self) -> None:
        """The same objects, and then another process."""
        if self.writer is None:
            self.open()
        self.append()
        self.extend(2, 3000)
        if self.reader is not None:
            list(self.reader)
            self.reader.commit(durable=True)
        in_child(lambda: jlog.Writer(self.path).append(b"from another process"))
        assert self.writer is not None
        sequence = self.writer.next_sequence - 1
        self.values[sequence] = b"from another process"
        self.writer.sync()
        self.check()

    def reopen(self) -> None:
        """After a failed fdatasync: nobody appends until all have closed."""
        self.close()
        self.open()

    def close(self) -> None:
        for thing in (self.worker, self.reader, self.direct, self.writer):
            if thing is not None:
                thing.close()
        self.worker = self.reader = self.direct = self.writer = None
        self.tasks = []

    def check_closed(self) -> None:
        self.check()
        if not self.damaged:
            oracle.check_journal(self.path)


def in_child(call: Callable[[], Any], failpoint: str = "") -> None:
    """Does it in a process of its own, which ends without closing anything."""
    child = os.fork()
    if child == 0:
        try:
            if failpoint:
                os.environ["JLOG_FAILPOINTS"] = failpoint
            call()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001
            os.write(2, f"in the child: {error!r}\n".encode())
            os._exit(1)
    _, status = os.waitpid(child, 0)
    wanted = -signal.SIGKILL if failpoint else 0
    assert os.waitstatus_to_exitcode(status) == wanted, f"the child ended with {status}"
