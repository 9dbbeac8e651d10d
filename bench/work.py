"""Measures how fast workers take and finish records, beside other queues that need no program of ours.

    python bench/work.py [--records N] [--rounds N] [--redis redis-server]

Those of persist-queue, huey and honker that are installed take part, and Redis if its server is named. Every queue holds values
of 100 bytes. What another queue syncs, and when, is left as it comes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jlog

VALUE = b"x" * 100
SLOW = 50  # the other queues get so many times fewer records


def fill_journal(path: Path, records: int) -> None:
    with jlog.Writer(path) as writer:
        for start in range(0, records, 10_000):
            writer.extend([VALUE] * min(10_000, records - start))


def one_by_one(path: Path) -> int:
    count = 0
    with jlog.Worker(path, "bench") as worker:
        for task in worker.tasks(timeout=0):
            task.ack()
            count += 1
    return count


def in_hundreds(path: Path) -> int:
    count = 0
    with jlog.Worker(path, "bench") as worker:
        while tasks := worker.take(100, timeout=0):
            worker.ack(tasks)
            count += len(tasks)
    return count


def timed(work: Callable[[], int]) -> float:
    """Returns the records per second."""
    began = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - began)


def of_jlog(directory: Path, records: int, work: Callable[[Path], int]) -> float:
    fill_journal(directory / "j", records)
    return timed(lambda: work(directory / "j"))


def _part(path: Path, work: Callable[[Path], int], ready: Any, go: Any, counts: Any) -> None:
    ready.put(1)
    go.wait()
    counts.put(work(path))


def of_processes(directory: Path, records: int, work: Callable[[Path], int], processes: int) -> float:
    fill_journal(directory / "j", records)
    context = multiprocessing.get_context("spawn")
    ready, go, counts = context.Queue(), context.Event(), context.Queue()
    crew = [context.Process(target=_part, args=(directory / "j", work, ready, go, counts)) for _ in range(processes)]
    for process in crew:
        process.start()
    for _ in crew:
        ready.get()

    def run() -> int:
        go.set()
        return sum(counts.get() for _ in crew)

    speed = timed(run)
    for process in crew:
        process.join()
    return speed


def of_persist_queue(directory: Path, records: int) -> float:
    from persistqueue import SQLiteAckQueue

    queue = SQLiteAckQueue(str(directory / "q"), auto_commit=True)
    for _ in range(records):
        queue.put(VALUE)

    def run() -> int:
        for _ in range(records):
            queue.ack(queue.get(block=False))
        return records

    return timed(run)


def of_huey(directory: Path, records: int) -> float:
    from huey import SqliteHuey

    storage = SqliteHuey("bench", filename=str(directory / "q.db")).storage
    for _ in range(records):
        storage.enqueue(VALUE)

    def run() -> int:
        count = 0
        while storage.dequeue() is not None:
            count += 1
        return count

    return timed(run)


def of_honker(directory: Path, records: int, batch: int) -> float:
    import honker

    database = honker.open(str(directory / "q.db"))
    queue = database.queue("bench")
    with database.transaction() as transaction:
        for _ in range(records):
            queue.enqueue(VALUE.decode(), tx=transaction)

    def run() -> int:
        count = 0
        while jobs := queue.claim_batch("me", batch):
            queue.ack_batch([job.id for job in jobs], "me")
            count += len(jobs)
        return count

    return timed(run)


@contextmanager
def redis_server(program: str, directory: Path) -> Any:
    directory = directory.resolve()  # the server changes to it
    socket = directory / "redis.sock"
    process = subprocess.Popen(
        [program, "--port", "0", "--unixsocket", str(socket), "--appendonly", "yes", "--dir", str(directory)],
        stdout=subprocess.DEVNULL,
    )
    try:
        import redis

        client = redis.Redis(unix_socket_path=str(socket))
        for _ in range(100):
            with suppress(redis.ConnectionError):
                client.ping()
                break
            time.sleep(0.05)
        yield client
    finally:
        process.terminate()
        process.wait()


def of_redis(program: str, directory: Path, records: int, batch: int) -> float:
    with redis_server(program, directory) as client:
        client.xgroup_create("s", "g", id="0", mkstream=True)
        pipeline = client.pipeline()
        for _ in range(records):
            pipeline.xadd("s", {"v": VALUE})
        pipeline.execute()

        def run() -> int:
            count = 0
            while found := client.xreadgroup("g", "me", {"s": ">"}, count=batch):
                ids = [identity for identity, _ in found[0][1]]
                client.xack("s", "g", *ids)
                count += len(ids)
            return count

        return timed(run)


def ways(records: int, redis: str | None) -> dict[str, Callable[[Path], float]]:
    few = max(records // SLOW, 100)
    found: dict[str, Callable[[Path], float]] = {
        "jlog, one by one": lambda at: of_jlog(at, records, one_by_one),
        "jlog, one by one, 4 processes": lambda at: of_processes(at, records, one_by_one, 4),
        "jlog, 100 at a time": lambda at: of_jlog(at, records, in_hundreds),
        "jlog, 100 at a time, 4 processes": lambda at: of_processes(at, records, in_hundreds, 4),
    }
    if find_spec("persistqueue"):
        found["persist-queue on SQLite, one by one"] = lambda at: of_persist_queue(at, few)
    if find_spec("huey"):
        found["huey on SQLite, one by one"] = lambda at: of_huey(at, few)
    if find_spec("honker"):
        found["honker, one by one"] = lambda at: of_honker(at, few, 1)
        found["honker, 100 at a time"] = lambda at: of_honker(at, few, 100)
    if redis:
        found["Redis Streams, one by one"] = lambda at: of_redis(redis, at, few, 1)
        found["Redis Streams, 100 at a time"] = lambda at: of_redis(redis, at, records // 4, 100)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--redis", metavar="PROGRAM")
    arguments = parser.parse_args()
    for name, way in ways(arguments.records, arguments.redis).items():
        speeds = []
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory(prefix="jlog-bench-", dir=".") as directory:
                speeds.append(way(Path(directory)))
        median = statistics.median(speeds)
        print(f"{name:40} {median:12,.0f} a second ({min(speeds):,.0f} to {max(speeds):,.0f})", flush=True)


if __name__ == "__main__":
    main()
