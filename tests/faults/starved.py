"""Calls of which each allocation fails, one after the other: `PYTHONPATH=tests python -m faults.starved NAME`."""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import logging
import os
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow

import jlog
from faults import shim
from filesystems import fast_disk
from jlog._core.records.columns import Columns
from jlog._core.system.lock import OWNERS, RANGES, LockFile
from jlog.writer import SegmentBuilder
from patience import HUNG_SECONDS

ALLOCATIONS = 60  # more than an append makes that no roll follows
FAILING = (1, 10, 1000)  # one after the other
LOCK = "hhqqi4x"  # struct flock


def starved(call: Callable[[], Any], at: int, count: int) -> Any:
    """Returns the result of the call, or a MemoryError. Errors of CPython's own that say the same become a MemoryError too."""
    try:
        try:
            shim.arm_memory(at, count)
            return call()
        finally:
            shim.end_starving()
    except (MemoryError, RuntimeError, SystemError) as error:
        if not shim.is_pythons_own(error):
            raise
        return MemoryError(str(error))


def allocations(call: Callable[[], Any]) -> int:
    """Returns how many the call makes."""
    shim.arm_memory(sys.maxsize, 0)
    call()
    return shim.disarm_memory()


def faults(most: int = ALLOCATIONS) -> list[tuple[int, int]]:
    return [(at, count) for at in range(1, most) for count in FAILING]


def append(root: Path, sync: str) -> None:
    """A call that raises has appended nothing; a call that returns has."""
    with jlog.Writer(root / "j", sync=sync, lock_timeout=60) as writer, jlog.Reader(root / "j") as reader:
        for number, (at, count) in enumerate(faults()):
            value = b"%d" % number
            calls = [lambda: writer.append(value), lambda: writer.append(value, key=b"k"), lambda: writer.extend([value])]  # noqa: B023
            for call in calls:
                found = starved(call, at, count)
                readable = list(reader.values())
                assert readable == ([] if isinstance(found, MemoryError) else [value]), (at, count, found, readable)


def append_durable(root: Path) -> None:
    """The coroutine waits for the sync once its record is readable, and the next one is not kept waiting."""
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(loop)
    with jlog.Writer(root / "j") as writer, jlog.Reader(root / "j") as reader:
        for number, (at, count) in enumerate(faults()):
            coroutine = writer.append_durable(b"%d" % number)
            found: Any
            try:
                found = starved(lambda: coroutine.send(None), at, count)  # noqa: B023
            except jlog.JournalError as error:  # there is no memory for a thread
                found = error
            coroutine.close()
            refused = isinstance(found, Exception) and "this call appended" not in str(found)
            readable = list(reader.values())
            assert readable == ([] if refused else [b"%d" % number]), (at, count, found, readable)
        asyncio._set_running_loop(None)
        asyncio.run(asyncio.wait_for(writer.append_durable(b"last"), HUNG_SECONDS))
    loop.close()


def ingest(root: Path) -> None:
    with jlog.Writer(root / "j") as writer, jlog.Reader(root / "j") as reader:
        for number, (at, count) in enumerate(faults(300)[::7]):
            writer.append(b"before")
            list(reader.values())
            with SegmentBuilder(str(root / f"built-{number}")) as builder:
                builder.add(pyarrow.array([b"%d" % number], pyarrow.binary()))
            found = starved(lambda: jlog.writer.ingest(writer, builder.path, builder.pieces, {}), at, count)
            readable = list(reader.values())
            assert readable == ([b"%d" % number] if isinstance(found, int) else []), (at, count, found, readable)


def open_(root: Path) -> None:
    """The process lives on."""
    path = str(root / "j")  # without memory os.fspath() calls a Path a TypeError
    jlog.Journal.create(path)
    for at, count in faults():
        starved(lambda: jlog.Writer(path, precommit=4096, compression="lz4").close(), at, count)
    jlog.Writer(path, exclusive=True).close()


def take(root: Path) -> None:
    """A take that had no memory for a part of its tasks hands out the others, and the next one raises nothing."""
    for at, count in faults():
        path = root / f"j{at}-{count}"
        with jlog.Writer(path) as writer:
            writer.extend([b"%d" % number for number in range(10)])
        with jlog.Worker(path, "work") as worker:
            found = starved(lambda: worker.take(10, timeout=0), at, count)
            tasks = [] if isinstance(found, MemoryError) else found
            while more := worker.take(10, timeout=0):
                tasks += more
            assert sorted(task.sequence for task in tasks) == list(range(10)), (at, count, tasks)


def take_what_is_lost(root: Path) -> None:
    """A loss is told once: by the next take where the first one had no memory to tell it. It is lost only in the frames above
    the handler, Worker.take() and starved(), which need two allocations each at most."""
    path, untold = str(root / "j"), []
    retention = jlog.Retention(keep_for_subscribers=False, max_bytes=4096)
    with jlog.Writer(path, segment_bytes=4096, retention=retention) as writer:
        for at, count in faults(25):
            jlog.Worker(path, "work").close()
            writer.extend([bytes(1000)] * 5)
            writer.extend([bytes(1000)] * 5)
            jlog.Journal(path).clean()
            with jlog.Worker(path, "work") as worker:
                told = 0
                for take in (partial(starved, partial(worker.take, 1, 0), at, count), partial(worker.take, 1, 0)):
                    try:
                        take()
                    except jlog.PositionLost:
                        told += 1
            assert told <= 1, (at, count)
            untold += [(at, count)] * (1 - told)
            jlog.Journal(path).remove_subscriber("work")
    assert len(untold) <= 4 * len(FAILING), untold


class Told(logging.Handler):
    """Keeps the lines that the library has logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def reopen(root: Path, *, without_window: bool = False) -> None:
    """Whatever becomes of the opening of a worker, each record that is not finished comes again, and no other one: from the
    window, or from the durable copy."""
    found: Any
    path, told = str(root / "j"), Told()
    logging.getLogger("jlog").addHandler(told)
    with jlog.Writer(path) as writer:
        writer.extend([b"%d" % number for number in range(10)])
    with jlog.Worker(path, "work") as worker:
        worker.ack([task for task in worker.take(10, timeout=0) if task.sequence % 3], durable=True)
    most = allocations(lambda: jlog.Worker(path, "work").close())
    for at, count in [(at, count) for at in range(1, most) for count in (1, 1000)]:
        if without_window:
            (root / "j" / "work" / "work.window").unlink()
        found = starved(lambda: jlog.Worker(path, "work"), at, count)
        if isinstance(found, jlog.Worker):
            found.close()
        found = None
        with jlog.Worker(path, "work") as worker:
            taken = [task.sequence for task in worker.take(10, timeout=0)]
        assert taken == [0, 3, 6, 9], (at, count, taken)
        assert without_window or not told.lines, (at, count, told.lines)


def subscribe(root: Path) -> None:
    """A subscriber that is opened without memory can be opened again, at its position. No worker has left a window, so a Python
    function raises FileNotFoundError, which compiled code catches."""
    path = str(root / "j")
    with jlog.Writer(path) as writer, jlog.Reader(path, "work") as reader:
        writer.extend([b"%d" % number for number in range(3)])
        reader.read(1)
        reader.commit()
    most = allocations(lambda: jlog.Reader(path, "work").close())
    for at, count in faults(most):
        found = starved(lambda: jlog.Reader(path, "work"), at, count)
        if isinstance(found, jlog.Reader):
            found.close()
        found = None
        with jlog.Reader(path, "work") as reader:
            assert reader.position == 1, (at, count)


def close(root: Path) -> None:
    """A close that had no memory lets go of the journal, and the next one waits for nobody."""
    for at, count in faults():
        writer = jlog.Writer(root / "j", sync="interval")
        starved(writer.close, at, count)
        writer.close()


def drop(root: Path) -> None:
    """A writer that is collected without memory lets go of the journal, also where that is put off until a lock is free."""
    path = str(root / "j")
    jlog.Writer(path).close()
    lock, asked, bounds = LockFile(path + "/lock"), LockFile(path + "/lock"), RANGES["bounds"]
    for at, count in faults():
        for put_off in (False, True):
            held, objects = lock.held(bounds), [jlog.Writer(path)]
            if put_off:
                held.__enter__()
                starved(objects.clear, at, count)
                objects.clear()  # where there was no memory for the call itself
                assert lock.is_held(*OWNERS)
                starved(lambda: held.__exit__(None, None, None), at, count)  # noqa: B023
                if asked.is_held(bounds):
                    held.__exit__(None, None, None)
            else:
                starved(objects.clear, at, count)
                objects.clear()
            assert not lock.is_held(*OWNERS), (at, count, put_off)


def give_back(root: Path) -> None:
    """A lock that was given back without memory is not that of this thread when another process has it."""
    path, start = str(root / "lock"), 1 << 40  # CPython keeps small numbers
    other = os.open(path, os.O_CREAT | os.O_RDWR)
    for close in (False, True):
        for at, count in faults(20):
            lock = LockFile(path)
            lock.acquire(start)
            gives = lock.close if close else lambda: lock.release(start)  # noqa: B023
            starved(gives, at, count)
            if LockFile(path).is_held(start):
                gives()  # there was no memory for the call itself
            fcntl.fcntl(other, fcntl.F_OFD_SETLK, struct.pack(LOCK, fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0))
            assert not LockFile(path).acquire(start, timeout=0.001), (close, at, count)
            fcntl.fcntl(other, fcntl.F_OFD_SETLK, struct.pack(LOCK, fcntl.F_UNLCK, os.SEEK_SET, start, 1, 0))
    os.close(other)


def comprehension(root: Path) -> None:
    """An item that a compiled comprehension has no room for is freed once."""
    names = [f"name {number}" for number in range(20)]
    fields = tuple(SimpleNamespace(name=name) for name in names)
    before = [sys.getrefcount(name) for name in names]
    for at, count in faults():
        starved(lambda: Columns(fields), at, count)
        assert [sys.getrefcount(name) for name in names] == before, (at, count)


def reject(root: Path) -> None:
    """A record that could not be rejected is rejected later, also by another worker: nobody keeps the lock of the letters."""
    path = root / "j"
    with jlog.Writer(path) as writer, jlog.Worker(path, "work", dead_letters=root / "dead") as worker:
        writer.append(b"the first opens the journal of the letters")
        worker.take(1, timeout=0)[0].reject("why")
        for at in range(1, 1000):
            writer.append(b"value")
            (task,) = worker.take(1, timeout=0)
            with suppress(OSError):  # ENOMEM
                starved(lambda: task.reject("why"), at, 1)  # noqa: B023
            task.reject("why")


CALLS: dict[str, Callable[[Path], None]] = {
    "append": lambda root: append(root, "none"),
    "append_durable": append_durable,
    "close": close,
    "comprehension": comprehension,
    "drop": drop,
    "durable append": lambda root: append(root, "append"),
    "give back": give_back,
    "ingest": ingest,
    "open": open_,
    "reject": reject,
    "reopen a worker": reopen,
    "reopen a worker without its window": lambda root: reopen(root, without_window=True),
    "subscribe": subscribe,
    "take": take,
    "take what is lost": take_what_is_lost,
}


def main(name: str) -> None:
    faulthandler.dump_traceback_later(HUNG_SECONDS, exit=True)
    with tempfile.TemporaryDirectory(prefix="jlog-starved-", dir=fast_disk()) as temporary:
        CALLS[name](Path(temporary))


if __name__ == "__main__":
    main(sys.argv[1])
