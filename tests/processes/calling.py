"""Every public call in turn, each of which tells what came of it, beside a process that is stopped or holds a lock."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from units import Unit, values_of

import jlog

Tell = Callable[..., None]
numbers = count()


def append_unit(tell: Tell, append: Callable[[bytes], int]) -> None:
    unit, name = next(numbers), f"calls{os.getpid()}"
    (value,) = values_of(name, unit)
    tell("unit", *Unit(name, unit, 1, append(value)))


def extend_with_state(tell: Tell, writer: jlog.Writer) -> None:
    unit, name = next(numbers), f"calls{os.getpid()}"
    values = values_of(name, unit, has_state=True)
    sequence = writer.extend(values, state={name.encode(): b"%d" % unit})
    tell("unit", *Unit(name, unit, 1, sequence))


class Calls:
    """The calls of one process. `before`: its objects are opened before the other process stops."""

    def __init__(self, path: str, target: str, lock_timeout: float) -> None:
        self.path, self.target, self.options = path, target, {"lock_timeout": lock_timeout}
        self.writer: Any = None
        self.reader: Any = None

    def before(self) -> None:
        self.writer = jlog.Writer(self.path, **self.options)
        self.writer.append(values_of("before", 0)[0])
        self.reader = jlog.Reader(self.path, "calls", **self.options)
        self.reader.read(1)
        self.reader.commit()
        jlog.Journal(self.path).set_checkpoint("first", "begin")

    def of_objects_from_before(self, tell: Tell) -> Iterator[tuple[str, Callable[[], object]]]:
        writer, reader = self.writer, self.reader
        yield "append", lambda: append_unit(tell, writer.append)
        yield "append with a key", lambda: append_unit(tell, lambda value: writer.append(value, key=b"k"))
        yield "extend", lambda: append_unit(tell, lambda value: writer.extend([value]))
        yield "extend with state", lambda: extend_with_state(tell, writer)
        yield "flush", writer.flush
        yield "sync", writer.sync
        yield "sync again", writer.sync
        yield "roll", writer.roll
        yield "read", lambda: reader.read(1)
        yield "commit", reader.commit
        yield "commit durable", lambda: reader.commit(durable=True)
        yield "checkpoint", lambda: reader.checkpoint("here")
        yield "rewind", lambda: reader.rewind("first")
        yield "commit backward", lambda: reader.commit(0)
        yield from self.of_new_objects(tell)
        yield (
            "remove a checkpoint",
            lambda: jlog.Journal(self.path, **self.options).remove_checkpoint("first"),
        )
        yield "seek", lambda: reader.seek("end")
        yield "commit and clean", reader.commit
        yield "clean what was read", jlog.Journal(self.path, **self.options).clean
        yield "close the reader", reader.close
        yield "close", writer.close
        yield "close again", writer.close

    def of_new_objects(self, tell: Tell) -> Iterator[tuple[str, Callable[[], object]]]:
        journal = jlog.Journal(self.path, **self.options)
        yield "open a writer", lambda: self.come_and_go(tell)
        yield "change options", lambda: jlog.Writer(self.path, sync_interval=2.0, **self.options).close()
        yield "open a reader", lambda: jlog.Reader(self.path, **self.options).read(1)
        yield (
            "subscribe",
            lambda: jlog.Reader(self.path, f"new{os.getpid()}", start="end", **self.options).close(),
        )
        yield "stats", journal.stats
        yield "segments", journal.segments
        yield "verify", journal.verify
        yield "info", journal.info
        yield "clean", journal.clean
        yield "set a subscriber", lambda: self.set_subscriber(journal)
        yield "set a checkpoint", lambda: journal.set_checkpoint("there", "end")
        yield "backup", lambda: self.back_up(journal)
        yield "repair", lambda: self.repair(journal)
        yield "drop a writer", lambda: (jlog.Writer(self.path, **self.options), None)[1]

    def come_and_go(self, tell: Tell) -> None:
        with jlog.Writer(self.path, **self.options) as writer:
            append_unit(tell, writer.append)

    def set_subscriber(self, journal: jlog.Journal) -> None:
        name = f"set{os.getpid()}"
        journal.add_subscriber(name, "end")
        journal.set_subscriber(name, "end")
        journal.remove_subscriber(name)

    def back_up(self, journal: jlog.Journal) -> None:
        try:
            journal.backup(self.target)
        finally:
            shutil.rmtree(self.target, ignore_errors=True)

    def repair(self, journal: jlog.Journal) -> None:
        """There is always a process that writes or subscribes: the call says so, and waits for nobody."""
        try:
            journal.repair(dry_run=True)
        except jlog.SubscriberBusy as error:
            raise jlog.JournalLocked(str(error)) from None


def make(tell: Tell, calls: Iterator[tuple[str, Callable[[], object]]]) -> None:
    for name, call in calls:
        tell("calling", name)
        try:
            call()
            outcome = "done"
        except jlog.JournalLocked as error:
            outcome = f"JournalLocked: {error}"
        except Exception as error:  # noqa: BLE001
            outcome = f"{type(error).__name__}: {error}"
        tell("called", name, outcome)
