"""A producer: threads that append in all ways, and write down the acknowledgements.

A thread's lines: `+ unit parts sequence has_state digests…` was acknowledged; `~ …` is in the journal and perhaps not durable;
`- unit` has raised, and none of it may ever be read; `? unit` was interrupted, and is there as a whole or not at all;
`@ id` is about to be appended, and may be there already;
`= id sequence digest` was acknowledged; `! errno` is the error that was raised; `i` a call was interrupted,
`s` it had no memory.
"""

from __future__ import annotations

import errno
import gc
import os
import pickle
import re
import threading
import time
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import jlog
from torture.raising import Interrupted, Raising, Starved
from torture.records import EXPECTED, Content, contents_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torture.gate import Gate
    from torture.log import Log

NOT_DURABLE = re.compile(r"from sequence (\d+) on, and they can be")
AGAIN_SECONDS = 0.02
ALL_CLOSED_SECONDS = 1.0  # seconds that a writer stays closed after a failed sync, at most: at some time all are closed
IDS_A_SECOND, IDS_AT_ONCE = 20, 100
FORK_SECONDS = 30.0  # guards against a child that hangs


def retention_of(fields: dict[str, Any]) -> jlog.Retention:
    options = dict(fields)
    if "max_age" in options:
        options["max_age"] = timedelta(seconds=options["max_age"])
    return jlog.Retention(**options)


class Producer:
    """The producer of one process. Its threads share writers, or have their own."""

    def __init__(self, spec: dict[str, Any], gate: Gate) -> None:
        self._spec = spec
        self._gate = gate
        self._shared: list[jlog.Writer | None] = [None] * spec["objects"]
        self._opening = threading.Lock()  # so that no thread's writer is replaced unseen

    def run(self, name: str, log: Log) -> None:
        thread = Thread(self._spec, name, log, self._shared, self._opening)
        while self._gate.is_open():
            thread.step()
        thread.leave()


class Thread:
    def __init__(
        self,
        spec: dict[str, Any],
        name: str,
        log: Log,
        shared: list[jlog.Writer | None],
        opening: threading.Lock,
    ) -> None:
        self._spec, self._name, self._log, self._shared, self._opening = spec, name, log, shared, opening
        self._chance = Random(f"{spec['seed']} {name}")
        self._mine = self._chance.randrange(len(shared))
        self._unit = 0
        self._raising = Raising(self._chance if spec["raising"] else None, log, spec["without"])
        self._actions = {name: found for name, found in self._all_actions().items() if name not in spec["without"]}

    def _all_actions(self) -> dict[str, tuple[int, Callable[[jlog.Writer], None]]]:
        """Returns all kinds of calls, and how often each is made."""
        return {
            "append": (40, self._append),
            "once": (10, self._append_once),
            "extend": (30, self._extend),
            "arrow": (6, self._extend_arrow),
            "ingest": (2, self._ingest),
            "flush": (4, lambda writer: self._raising.call(writer.flush)),
            "sync": (3, lambda writer: self._raising.call(writer.sync)),
            "roll": (2, lambda writer: self._raising.call(writer.roll)),
            "close": (2, self._close),
            "drop": (1, lambda _: self._drop()),
            "pickle": (1, self._pickle),
            "fork": (1, self._fork),
        }

    def step(self) -> None:
        actions = list(self._actions.values())
        ((_, action),) = self._chance.choices(actions, [weight for weight, _ in actions])
        try:
            action(self._writer())
        except Interrupted:
            gc.collect()  # what was interrupted may hold a lock as long as its frames are there
        except jlog.JournalClosed:
            self._shared[self._mine] = None  # another thread has closed it
        except (jlog.JournalFull, jlog.JournalLocked):
            time.sleep(AGAIN_SECONDS)
        except OSError as error:
            self._failed(error)
        if self._chance.random() < 0.5:
            time.sleep(self._chance.random() * self._spec["pause_seconds"])

    def leave(self) -> None:
        writer = self._shared[self._mine]
        if writer is not None:
            self._shared[self._mine] = None
            try:
                writer.close()
            except (OSError, jlog.JournalLocked) as error:
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        number = getattr(error, "errno", None)
        if isinstance(error, OSError):
            if number not in EXPECTED:
                raise error
            self._log("!", number)
        if number == errno.EIO:
            # Until all have closed and one opens anew, every writer raises.
            writer, self._shared[self._mine] = self._shared[self._mine], None
            if writer is not None:
                try:
                    writer.close()
                except (OSError, jlog.JournalLocked):
                    self._log("! 0")
            time.sleep(self._chance.random() * ALL_CLOSED_SECONDS)
        time.sleep(AGAIN_SECONDS)

    # --- Writers -------------------------------------------------------------------------------------------------

    def _writer(self) -> jlog.Writer:
        with self._opening:
            writer = self._shared[self._mine]
            if writer is None:
                options = self._options()
                writer = self._raising.call(lambda: jlog.Writer(self._spec["path"], **options))
                self._shared[self._mine] = writer
            return writer

    def _options(self) -> dict[str, Any]:
        chance = self._chance
        options: dict[str, Any] = {
            "precommit": chance.choice((0, 4 << 10, 4 << 10, 16 << 10, 128 << 10)),
            "compression": chance.choice((None, None, "none", "lz4")),
            "segment_bytes": chance.choice((None, 4 << 10, 16 << 10, 64 << 10, 256 << 10)),
            "roll": chance.choice((None, None, "never", "minutely")),
            "sync": chance.choice((None, None, "none", "interval", "append")),
            "sync_interval": chance.choice((None, 0.01, 0.2)),
            "lock_timeout": chance.choice((None, 0.3, 2.0)),
        }
        if chance.random() < 0.3:
            options["retention"] = retention_of(chance.choice(self._spec["retentions"]))
        return options

    def _close(self, writer: jlog.Writer) -> None:
        self._shared[self._mine] = None
        self._raising.call(writer.close)

    def _drop(self) -> None:
        """Opens a writer that no other thread closes."""
        self._shared[self._mine] = None

    def _pickle(self, writer: jlog.Writer) -> None:
        pickled = pickle.dumps(writer)
        self._close(writer)
        with self._opening:
            if self._shared[self._mine] is None:
                self._shared[self._mine] = pickle.loads(pickled)

    def _fork(self, writer: jlog.Writer) -> None:
        """Has a child of this process open the journal anew, and die without closing its writer."""
        lives_seconds = self._chance.choice((0, 0, 0.3))
        child = os.fork()
        if child == 0:
            try:
                os.environ["JLOG_FAILPOINTS"] = ""  # nobody would wake it
                writer.flush()  # makes no record, whose number would have to be told
                time.sleep(lives_seconds)
                os._exit(0)
            except (jlog.JournalError, OSError):
                os._exit(0)  # another thread has closed the writer, a disk is full, …
            finally:
                os._exit(1)
        guard = time.monotonic() + FORK_SECONDS
        while True:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                break
            if time.monotonic() > guard:
                raise RuntimeError(f"the forked child {child} hangs")
            time.sleep(0.005)
        if status:
            raise RuntimeError(f"the forked child has ended with status {status}")

    # --- Appending -----------------------------------------------------------------------------------------------

    def _contents(self, parts: int, *, has_state: bool = False, plain: bool = False) -> list[Content]:
        size = self._chance.choice((0, 60, 100, 100, 300, 300, 300, 1000, 1000, 9000))
        times_us = None if plain else tuple(self._spec["times_us"])
        return contents_of(self._chance, self._name, self._unit, parts, size=size, has_state=has_state, times_us=times_us)

    def _acknowledged(
        self, contents: list[Content], has_state: bool, call: Callable[[], int | None], *, starves: bool = True
    ) -> None:
        """Makes one call, and writes a line about its result."""
        unit, told = self._unit, [int(has_state), *(f"{content.digest:08x}" for content in contents)]
        self._unit += 1
        try:
            sequence = self._raising.call(call, starves=starves)
        except Interrupted as error:
            self._log("-" if isinstance(error, Starved) else "?", unit)
            raise
        except (jlog.JournalError, OSError) as error:
            found = NOT_DURABLE.search(str(error))
            if found:
                self._log("~", unit, len(contents), found[1], *told)
            else:
                self._log("-", unit)
            raise
        if sequence is None:
            self._log("-", unit)
        else:
            self._log("+", unit, len(contents), sequence, *told)

    def _append(self, writer: jlog.Writer) -> None:
        (content,) = contents = self._contents(1, plain=self._chance.random() < 0.5)
        more: dict[str, Any] = {}
        if (content.key, content.headers, content.timestamp_us) != (None, None, None):
            more = {
                "key": content.key,
                "headers": content.headers,
                "timestamp_us": content.timestamp_us,
            }
        self._acknowledged(contents, False, lambda: writer.append(content.value, **more))

    def _append_once(self, writer: jlog.Writer) -> None:
        """Appends with an id of this moment, as others do too. What it appends follows from the id."""
        identity = f"id-{int(time.monotonic() * IDS_A_SECOND) - self._chance.randrange(IDS_AT_ONCE)}"
        chance = Random(f"{self._spec['seed']} {identity}")
        times_us = tuple(self._spec["times_us"])
        (content,) = contents_of(
            chance, identity, 0, 1, size=100, has_state=False, times_us=times_us, identity=identity.encode()
        )
        more = {"key": content.key, "headers": content.headers, "timestamp_us": content.timestamp_us}
        self._log("@", identity)
        sequence = self._raising.call(lambda: writer.append(content.value, id=identity.encode(), **more))
        self._log("=", identity, sequence, f"{content.digest:08x}")

    def _extend(self, writer: jlog.Writer) -> None:
        has_state = self._chance.random() < 0.3
        plain = self._chance.random() < 0.5
        contents = self._contents(self._chance.choice((1, 2, 2, 5, 5, 30)), has_state=has_state, plain=plain)
        more: dict[str, Any] = {}
        if has_state:
            more["state"] = self._state()
        if not plain:
            more["keys"] = [content.key for content in contents]
            more["headers"] = [content.headers for content in contents]
            more["timestamps_us"] = [content.timestamp_us for content in contents]
        values = [content.value for content in contents]
        self._acknowledged(contents, has_state, lambda: writer.extend(values, **more))

    def _state(self) -> dict[bytes, bytes]:
        """Returns a key for each place in the crew, so that the live state has room for all of them."""
        return {self._name.partition(".")[0].encode(): f"{self._name} {self._unit}".encode()}

    def _extend_arrow(self, writer: jlog.Writer) -> None:
        import pyarrow

        contents = self._contents(self._chance.choice((1, 3, 40)), plain=True)
        array = pyarrow.array([content.value for content in contents], pyarrow.binary())
        # Without memory pyarrow's own export crashes.
        self._acknowledged(contents, False, lambda: writer.extend_arrow(array), starves=False)

    def _ingest(self, writer: jlog.Writer) -> None:
        """Turns a file of records into a segment."""
        import pyarrow

        from jlog.writer import SegmentBuilder, ingest

        contents = self._contents(40, has_state=True, plain=True)
        values = [content.value for content in contents]
        path = f"{self._spec['scratch']}/{self._name}.{self._unit}"
        try:
            with SegmentBuilder(path) as builder:
                builder.add(pyarrow.array(values[:20], pyarrow.binary()))
                builder.add(pyarrow.array(values[20:], pyarrow.binary()))
            state = self._state()
            self._acknowledged(contents, True, lambda: ingest(writer, builder.path, builder.pieces, state))
        finally:
            if os.path.exists(path):
                os.unlink(path)
