"""A subscriber, or a reader without a name: reads in all ways, checks each record, and writes down what it saw.

Its lines: `o position` was opened there; `r first digests…` records one after the other; `C n` is about to commit, `c n` has
committed; `k n` and `K n` the same for its checkpoint; `w` is about to rewind, `W n` has rewound, to there; `l n` the position
was lost, and it goes on at n; `! errno` is the error that was raised; `i` a call was interrupted, `s` it had no memory.
"""

from __future__ import annotations

import asyncio
import gc
import time
from random import Random
from typing import TYPE_CHECKING, Any

import jlog
from torture.raising import Interrupted, Raising
from torture.records import EXPECTED, check_record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torture.gate import Gate
    from torture.log import Log

WAIT_SECONDS = 0.05
BUSY_SECONDS = 20.0  # guards against a name that its dead owner keeps


def saw(log: Log, records: Iterable[jlog.Record]) -> None:
    """Checks records, and writes down each run without a jump in the numbers."""
    first, end, digests = 0, -1, list[str]()
    try:
        for record in records:
            digest = f"{check_record(record):08x}"
            if record.sequence != end:
                if digests:
                    log("r", first, *digests)
                first, digests = record.sequence, []
            digests.append(digest)
            end = record.sequence + 1
    finally:
        if digests:
            log("r", first, *digests)


def subscribe(spec: dict[str, Any], gate: Gate, log: Log) -> None:
    chance = Random(f"{spec['seed']} {spec['name']}")
    raising = Raising(chance if spec["raising"] else None, log, spec["without"])
    guard = time.monotonic() + BUSY_SECONDS
    while gate.is_open():
        try:
            reader = raising.call(lambda: _open(spec, chance))
        except Interrupted:
            gc.collect()  # an object that was about to come back has the name
            continue
        except jlog.SubscriberBusy:
            if time.monotonic() > guard:
                raise
            time.sleep(WAIT_SECONDS)
            continue
        except (OSError, jlog.JournalLocked) as error:
            expected(error, log)
            continue
        with reader:
            _read(reader, spec, gate, log, chance, raising)
        guard = time.monotonic() + BUSY_SECONDS


def _open(spec: dict[str, Any], chance: Random) -> jlog.Reader:
    if spec["subscriber"]:
        return jlog.Reader(spec["path"], spec["subscriber"], durable_only=spec["kind"] == "durable")
    if spec["kind"] == "archive":
        return jlog.Reader(spec["path"], archive=True)
    start = chance.choice(("begin", "end"))
    return jlog.Reader(spec["path"], start=start, durable_only=spec["kind"] == "durable")


def expected(error: Exception, log: Log) -> None:
    if isinstance(error, jlog.JournalError) and not isinstance(error, jlog.JournalLocked):
        raise error
    if isinstance(error, OSError):
        if error.errno not in EXPECTED:
            raise error
        log("!", error.errno)
    time.sleep(WAIT_SECONDS)


def _read(reader: jlog.Reader, spec: dict[str, Any], gate: Gate, log: Log, chance: Random, raising: Raising) -> None:
    """Reads with one Reader, until it is time for another: also after a commit, or a rewind, that was interrupted."""
    log("o", reader.position)
    turns = chance.randrange(20, 400)
    while gate.is_open() and turns:
        turns -= 1
        try:
            if spec["raising"]:
                _interrupted_step(reader, log, chance, raising)
            else:
                _step(reader, log, chance)
            if spec["subscriber"]:
                _commit(reader, spec["subscriber"], log, chance, raising)
        except Interrupted:
            return
        except jlog.PositionLost:
            if not spec["may_lose"]:
                raise
            _go_on(reader, log)
        except (OSError, jlog.JournalLocked) as error:
            expected(error, log)


def _go_on(reader: jlog.Reader, log: Log) -> None:
    while True:
        try:
            reader.seek("begin")
        except jlog.PositionLost:
            continue
        log("l", reader.position)
        return


def _step(reader: jlog.Reader, log: Log, chance: Random) -> None:
    way = chance.randrange(5)
    if way == 0:
        saw(log, reader)
    elif way == 1:
        saw(log, reader.follow(timeout=WAIT_SECONDS))
    elif way == 2:
        asyncio.run(_follow(reader, log))
    else:
        saw(log, reader.read(chance.choice((1, 10, 500)), timeout=WAIT_SECONDS))


def _interrupted_step(reader: jlog.Reader, log: Log, chance: Random, raising: Raising) -> None:
    """Reads in one way, of which each call may be interrupted."""
    way = chance.randrange(3)
    if way == 0:
        batch = raising.next_of(reader, lambda: reader.read(chance.choice((1, 10, 500)), timeout=WAIT_SECONDS))
        saw(log, batch or ())
        return
    records = iter(reader) if way == 1 else reader.follow(timeout=WAIT_SECONDS)
    found: list[jlog.Record] = []
    try:
        for _ in range(100):
            record = raising.next_of(reader, lambda: next(records, None))
            if record is None:
                break
            found.append(record)
    finally:
        saw(log, found)


async def _follow(reader: jlog.Reader, log: Log) -> None:
    found: list[jlog.Record] = []
    try:
        async for record in reader.follow_async(timeout=WAIT_SECONDS):
            found.append(record)
            if len(found) == 100:
                break
    finally:
        saw(log, found)


def _commit(reader: jlog.Reader, name: str, log: Log, chance: Random, raising: Raising) -> None:
    do = chance.random()
    if do < 0.6:
        to = reader.position
        log("C", to)
        raising.call(lambda: reader.commit(durable=do < 0.1))
        log("c", to)
    elif do < 0.7:
        log("k", reader.position)
        raising.call(lambda: reader.checkpoint(name))
        log("K", reader.position)
    elif do < 0.73:
        log("w")
        try:
            raising.call(lambda: reader.rewind(name))
        except jlog.CheckpointNotFound:
            return
        log("W", reader.position)
