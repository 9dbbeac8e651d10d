"""A process of a recorded run: does what it is told on its standard input, and notes in the log what it was promised.

A note stands among the events where the call had returned, or, of what is about to be done, where it had not begun.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import count
from typing import Any

import jlog
from faults import shim
from processes.units import values_of

SUBSCRIBER = "billing"
KEY = {"key": b"key", "headers": [("name", b"value")]}


class Actor:
    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.writer: jlog.Writer | None = None
        self.reader: jlog.Reader | None = None
        self.units = count()
        self.syncs_each = False

    # --- Writing -----------------------------------------------------------------------------------------------

    def open(self, options: dict[str, Any]) -> None:
        self.writer = jlog.Writer(self.path, **options)
        self.syncs_each = jlog.Journal(self.path).options.sync == "append"
        shim.note("made")

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.writer = None

    def append(self, size: int = 60) -> None:
        unit = next(self.units)
        (value,) = values_of(self.name, unit, size=size)
        self._put(unit, [value], lambda writer: writer.append(value, **(KEY if unit % 2 else {})))

    def extend(self, parts: int, size: int, has_state: bool) -> None:
        unit = next(self.units)
        values = values_of(self.name, unit, parts, size, has_state=has_state)
        state = {self.name.encode(): b"%d" % unit} if has_state else None
        self._put(unit, values, lambda writer: writer.extend(values, state=state))

    def _put(self, unit: int, values: list[bytes], call: Any) -> None:
        assert self.writer is not None
        texts = [value.decode() for value in values]
        shim.note("appending", writer=self.name, unit=unit, values=texts)
        first = call(self.writer)
        shim.note("appended", writer=self.name, unit=unit, sequence=first, values=texts, durable=self.syncs_each)

    def store(self, size: int) -> None:
        """State alone: a block without a record."""
        assert self.writer is not None
        self.writer.extend([], state={b"alone/" + self.name.encode(): bytes(size)})

    def flush(self) -> None:
        assert self.writer is not None
        self.writer.flush()

    def sync(self) -> None:
        assert self.writer is not None
        end = self.writer.next_sequence
        self.writer.sync()
        shim.note("durable", end=end)

    def roll(self) -> None:
        assert self.writer is not None
        self.writer.roll()

    def ingest(self, parts: int) -> None:
        """A file of records becomes a segment."""
        import pyarrow

        from jlog.writer import SegmentBuilder

        assert self.writer is not None
        unit = next(self.units)
        values = values_of(self.name, unit, parts, 200, has_state=True)
        with SegmentBuilder(f"{self.path}.{self.name}") as file:
            file.add(pyarrow.array(values, pyarrow.binary()))
        state = {self.name.encode(): b"%d" % unit}

        def ingest(writer: jlog.Writer) -> int:
            first = jlog.writer.ingest(writer, file.path, file.pieces, state)
            return writer.extend(values, state=state) if first is None else first  # others were too quick for it

        self._put(unit, values, ingest)
        os.unlink(file.path)

    # --- Reading -----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Every record that was handed out has been published."""
        with jlog.Reader(self.path) as reader:
            found = [(record.sequence, record.value.decode()) for record in reader]
        shim.note("handed", records=found[-200:])

    def commit(self, durable: bool, records: int) -> None:
        if self.reader is None:
            self.reader = jlog.Reader(self.path, SUBSCRIBER)
            shim.note("subscribed")
        for _ in zip(self.reader, range(records), strict=False):
            pass
        position = self.reader.position
        shim.note("committing", position=position)
        self.reader.commit(position, durable=durable)
        shim.note("committed", position=position, durable=durable)

    def checkpoint(self) -> None:
        if self.reader is not None:
            shim.note("checkpointing", position=self.reader.position)
            self.reader.checkpoint("point")
            shim.note("checkpointed", position=self.reader.position)

    def leave(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader = None

    def clean(self) -> None:
        jlog.Journal(self.path).clean()

    def arm(self, failpoints: str) -> None:
        os.environ["JLOG_FAILPOINTS"] = failpoints


def main() -> None:
    actor = Actor(*sys.argv[1:])
    shim.dry_sync(True)
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        try:
            getattr(actor, verb)(*arguments)
        except (jlog.JournalError, OSError) as error:
            sys.stdout.write(json.dumps(f"{verb}: {error!r}") + "\n")
        else:
            sys.stdout.write("null\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
