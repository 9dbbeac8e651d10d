"""The calls of workers, as faults/public.py has the others: a shared subscriber whose records are finished, given back and
rejected. None that was finished comes again, and each that was rejected has one dead letter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import jlog
from faults.worlds import CREW, OPTIONS, World


def jobs(world: World) -> None:
    world.open()
    world.fill()
    jlog.Journal.create(world.root / "dead", **OPTIONS)  # a small one, for small disks


def taken(world: World) -> None:
    """A worker that has taken all records."""
    jobs(world)
    world.worker = open_worker(world)
    world.tasks = world.worker.take(1000, timeout=0)
    assert len(world.tasks) == len(world.values)


def half_done(world: World) -> None:
    """A part of the records is finished, durably, and nobody works."""
    taken(world)
    assert world.worker is not None
    world.worker.ack(world.tasks[2::2], durable=True)
    world.worker.close()
    world.worker, world.tasks = None, []


def open_worker(world: World) -> jlog.Worker:
    return jlog.Worker(world.path, CREW, backoff=(0, 0), dead_letters=world.root / "dead")


def work(world: World) -> Callable[[], None]:
    end = max(world.values) + 1
    with open_worker(world) as worker:
        while worker.committed < end:
            for task in worker.take(3, timeout=30):
                work_on(world, worker, task)
    return lambda: check_letters(world)


def work_on(world: World, worker: jlog.Worker, task: jlog.Task) -> None:
    assert task.sequence not in world.finished
    assert task.value == world.values[task.sequence]
    match task.sequence % 4:
        case 1 if task.attempt == 1:
            task.nack(delay=0)
            return
        case 2:
            task.reject("unwanted")
        case 3:
            worker.ack([task], durable=True)
        case _:
            task.ack()
    world.finished.add(task.sequence)


def check_letters(world: World) -> None:
    with jlog.Reader(world.root / "dead") as reader:
        letters = Counter(int(dict(record.headers)["jlog.work.sequence"] or -1) for record in reader)
    assert letters == Counter(sequence for sequence in world.values if sequence % 4 == 2), letters


def finish(world: World) -> Callable[[], None]:
    assert world.worker is not None
    world.worker.ack(world.tasks, durable=True)
    return lambda: none_comes_again(world)


def none_comes_again(world: World) -> None:
    assert world.worker is not None
    assert world.worker.take(timeout=0) == []
    assert jlog.Journal(world.path).subscribers()[CREW].lag == 0


def reject(world: World) -> Callable[[], None]:
    for task in world.tasks:
        if task.sequence % 4 == 2:
            task.reject("unwanted")
    return lambda: check_letters(world)


def start_again(world: World) -> Callable[[], None]:
    """Everything is unfinished then."""
    jlog.Journal(world.path).set_subscriber(CREW, "begin")

    def look() -> None:
        with open_worker(world) as worker:
            assert [task.sequence for task in worker.take(1000, timeout=0)] == sorted(world.values)

    return look


WORK_CALLS = {
    "work": (jobs, work),
    "finish durably": (taken, finish),
    "reject": (taken, reject),
    "set a shared subscriber": (half_done, start_again),
}
