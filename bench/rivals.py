"""Measures jlog beside the queues and stores that a Python program would otherwise use: rivals.py FILE writes docs/rivals.json.

    pip install persist-queue diskcache huey honker lmdb
    python bench/rivals.py docs/rivals.json [--rounds N] [--seconds S] [--rates N …] [--dir DIR]

Three parts: records that one process puts and takes one at a time; the latency from one process to another one at a steady
rate; appends that survive a power loss, by 1 to 64 threads or coroutines. All ways of a part are measured in turns, and those
that are not installed are left out. Only in the third part is it set what another one syncs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import threading
from array import array
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any

from crew import process

import jlog
from jlog.bench import Spread, empty_directory, has_failpoints, machine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

VALUE = bytes(100)
MOST_RECORDS = 2_000_000
RATES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)
WRITERS = (1, 2, 4, 8, 16, 32, 64)

Figures = dict[str, dict[str, Any]]
Queue = tuple["Callable[[bytes], object]", "Callable[[], object]"]  # put a value; take and finish one, or return None


# --- Records that are put and taken one at a time -----------------------------------------------------------------------


@contextmanager
def jlog_worker(directory: Path) -> Iterator[Queue]:
    with jlog.Writer(directory / "journal") as writer, jlog.Worker(directory / "journal", "bench") as worker:

        def take() -> object:
            for task in worker.take(1, timeout=0):
                task.ack()
                return task
            return None

        yield writer.append, take


@contextmanager
def jlog_subscriber(directory: Path) -> Iterator[Queue]:
    """Commits each record before it takes the next one."""
    with jlog.Writer(directory / "journal") as writer, jlog.Reader(directory / "journal", "bench") as reader:
        records = iter(reader)

        def take() -> object:
            nonlocal records
            record = next(records, None)
            if record is None:  # an iteration ends where the journal ended
                records = iter(reader)
                record = next(records, None)
            if record is not None:
                reader.commit(record.sequence + 1)
            return record

        yield writer.append, take


@contextmanager
def persist_queue(directory: Path) -> Iterator[Queue]:
    from persistqueue import SQLiteAckQueue
    from persistqueue.exceptions import Empty

    queue = SQLiteAckQueue(str(directory), auto_commit=True)

    def take() -> object:
        try:
            found = queue.get(block=False)
        except Empty:
            return None
        queue.ack(found)
        return found

    yield queue.put, take
    queue.close()


@contextmanager
def diskcache_deque(directory: Path) -> Iterator[Queue]:
    from diskcache import Deque

    queue = Deque(directory=str(directory))
    yield queue.append, lambda: queue.popleft() if len(queue) else None
    queue.cache.close()


@contextmanager
def huey_storage(directory: Path) -> Iterator[Queue]:
    from huey import SqliteHuey

    storage = SqliteHuey("bench", filename=str(directory / "queue.db")).storage
    yield storage.enqueue, storage.dequeue


@contextmanager
def honker_queue(directory: Path) -> Iterator[Queue]:
    import honker

    queue = honker.open(str(directory / "queue.db")).queue("bench")
    text = VALUE.decode()

    def take() -> object:
        for job in queue.claim_batch("bench", 1):
            queue.ack_batch([job.id], "bench")
            return job
        return None

    yield lambda _: queue.enqueue(text), take


@contextmanager
def memory_queue(_directory: Path) -> Iterator[Queue]:
    queue = get_context("spawn").Queue()
    yield queue.put, queue.get
    queue.cancel_join_thread()


QUEUES: dict[str, tuple[str, Callable[[Path], Any]]] = {  # the module that is needed, and the way
    "jlog, a subscriber": ("jlog", jlog_subscriber),
    "jlog.Worker": ("jlog", jlog_worker),
    "multiprocessing.Queue": ("multiprocessing", memory_queue),
    "diskcache.Deque": ("diskcache", diskcache_deque),
    "honker": ("honker", honker_queue),
    "huey on SQLite": ("huey", huey_storage),
    "persist-queue on SQLite": ("persistqueue", persist_queue),
}


def put_and_take(directory: Path, way: Callable[[Path], Any], seconds: float) -> tuple[float, float]:
    """Returns the records per second that were put, and those that were taken, each in so many seconds at most."""
    with way(directory) as (put, take):
        begin, done = perf_counter(), 0
        while (now := perf_counter()) < begin + seconds and done < MOST_RECORDS:
            put(VALUE)
            done += 1
        put_rate = done / (now - begin)
        begin, left = perf_counter(), done
        while (now := perf_counter()) < begin + seconds and left:
            assert take() is not None
            left -= 1
        return put_rate, (done - left) / (now - begin)


def queues(arguments: argparse.Namespace) -> Figures:
    found = {name: {"put": Spread(), "take": Spread()} for name, (module, _) in QUEUES.items() if find_spec(module)}
    for _ in range(arguments.rounds):
        for name, spreads in found.items():
            with empty_directory(arguments.dir) as directory:
                put, take = put_and_take(directory, QUEUES[name][1], arguments.seconds)
            spreads["put"].rounds.append(put)
            spreads["take"].rounds.append(take)
    return {name: {part: spread.as_json() for part, spread in spreads.items()} for name, spreads in found.items()}


# --- Latency at a steady rate -------------------------------------------------------------------------------------------


def late_ns(value: bytes | None) -> int:
    assert value is not None
    return perf_counter_ns() - int.from_bytes(value[:8], "little")  # one clock for all processes


def follow_journal(line: Connection, path: str, records: int) -> None:
    with jlog.Reader(path) as reader:
        line.send("ready")
        times = array("q")
        for record in reader.follow():
            times.append(late_ns(record.value))
            if len(times) == records:
                break
        line.send_bytes(times.tobytes())


def get_all(line: Connection, queue: Any, records: int) -> None:
    line.send("ready")
    line.send_bytes(array("q", [late_ns(queue.get()) for _ in range(records)]).tobytes())


def send_steadily(send: Callable[[bytes], object], rate: int, records: int) -> None:
    """Sends each record at its time, or at once where that has passed. A record carries the time at which it was due, not the
    one at which it was sent: so the records that a stall delays count as late too (coordinated omission)."""
    padding, begin, gap_ns = bytes(92), perf_counter_ns() + 10_000_000, 1e9 / rate
    for number in range(records):
        due = begin + int(number * gap_ns)
        while perf_counter_ns() < due:
            pass
        send(due.to_bytes(8, "little") + padding)


def steady_journal(directory: Path, rate: int, records: int) -> bytes:
    path = directory / "journal"
    with jlog.Writer(path) as writer, process(follow_journal, str(path), records) as (line, _):
        line.recv()
        send_steadily(writer.append, rate, records)
        return line.recv_bytes()


def steady_queue(_directory: Path, rate: int, records: int) -> bytes:
    # Not a Queue: its thread, which writes into the pipe, waits for the GIL of a producer that is busy.
    queue = get_context("spawn").SimpleQueue()
    with process(get_all, queue, records) as (line, _):
        line.recv()
        send_steadily(queue.put, rate, records)
        return line.recv_bytes()


STEADY = {"jlog, append to follow()": steady_journal, "multiprocessing.SimpleQueue": steady_queue}


def latencies(arguments: argparse.Namespace) -> Figures:
    """Returns microseconds, by way and rate."""
    percentiles = {"p50": 0.5, "p99": 0.99}
    found: dict[str, Any] = {
        name: {str(rate): {p: Spread() for p in percentiles} for rate in arguments.rates} for name in STEADY
    }
    for _ in range(arguments.rounds):
        for rate in arguments.rates:
            for name, way in STEADY.items():
                with empty_directory(arguments.dir) as directory:
                    times = sorted(array("q", way(directory, rate, max(int(rate * arguments.seconds), 100))))
                for percentile, part in percentiles.items():
                    found[name][str(rate)][percentile].rounds.append(times[int(len(times) * part)] / 1000)
    return {
        name: {rate: {p: spread.as_json() for p, spread in at.items()} for rate, at in rates.items()}
        for name, rates in found.items()
    }


# --- Appends that survive a power loss ----------------------------------------------------------------------------------


def in_threads(count: int, seconds: float, appender: Callable[[], Callable[[], object]]) -> float:
    """Returns the records per second of so many threads. appender: returns the function that appends, in its thread."""
    done, ready = [0] * count, threading.Barrier(count + 1)
    end = 0.0

    def run(number: int) -> None:
        append = appender()
        ready.wait()
        ready.wait()
        while perf_counter() < end:
            append()
            done[number] += 1

    crew = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in crew:
        thread.start()
    ready.wait()
    begin = perf_counter()
    end = begin + seconds
    ready.wait()
    for thread in crew:
        thread.join()
    return sum(done) / (perf_counter() - begin)


def jlog_threads(directory: Path, count: int, seconds: float) -> float:
    with jlog.Writer(directory / "journal", sync="append") as writer:
        return in_threads(count, seconds, lambda: lambda: writer.append(VALUE))


def jlog_coroutines(directory: Path, count: int, seconds: float) -> float:
    async def run() -> float:
        done, begin = 0, perf_counter()

        async def append() -> None:
            nonlocal done
            while perf_counter() < begin + seconds:
                await writer.append_durable(VALUE)
                done += 1

        await asyncio.gather(*[append() for _ in range(count)])
        return done / (perf_counter() - begin)

    with jlog.Writer(directory / "journal") as writer:
        return asyncio.run(run())


def sqlite_threads(directory: Path, count: int, seconds: float) -> float:
    """A transaction for each record, in WAL mode with synchronous=FULL, and a connection for each thread."""

    def connected() -> sqlite3.Connection:
        found = sqlite3.connect(directory / "queue.db", isolation_level=None, timeout=600, check_same_thread=False)
        found.execute("PRAGMA journal_mode=WAL")
        found.execute("PRAGMA synchronous=FULL")
        return found

    with ExitStack() as stack:

        def appender() -> Callable[[], object]:
            connection = connected()
            stack.callback(connection.close)
            return lambda: connection.execute("INSERT INTO log (value) VALUES (?)", (VALUE,))

        first = connected()
        first.execute("CREATE TABLE log (id INTEGER PRIMARY KEY, value BLOB)")
        first.close()
        return in_threads(count, seconds, appender)


DURABLE = {"jlog, threads": jlog_threads, "jlog, coroutines": jlog_coroutines, "SQLite, threads": sqlite_threads}


def durable(arguments: argparse.Namespace) -> Figures:
    """Returns records a second, by way and number of threads or coroutines."""
    found = {name: {str(count): Spread() for count in WRITERS} for name in DURABLE}
    for _ in range(arguments.rounds):
        for count in WRITERS:
            for name, way in DURABLE.items():
                with empty_directory(arguments.dir) as directory:
                    found[name][str(count)].rounds.append(way(directory, count, arguments.seconds))
    return {name: {count: spread.as_json() for count, spread in counts.items()} for name, counts in found.items()}


# ------------------------------------------------------------------------------------------------------------------------

PARTS = {"queues": queues, "latency": latencies, "durable": durable}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--rates", type=int, nargs="+", default=RATES, help="of the latency, in records a second")
    parser.add_argument("--dir", type=Path, default=Path())
    parser.add_argument("--only", choices=PARTS, action="append", help="the others stay in the file as they are")
    arguments = parser.parse_args()
    found = json.loads(arguments.file.read_text()) if arguments.only and arguments.file.exists() else {}
    if has_failpoints():
        print("This build has fail points, and is slower. `make bench` has one without.")
    for name in arguments.only or PARTS:
        found[name] = {"machine": machine(arguments.dir), "rounds": arguments.rounds, "figures": PARTS[name](arguments)}
        print(json.dumps(found[name], indent=1), flush=True)
    arguments.file.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
