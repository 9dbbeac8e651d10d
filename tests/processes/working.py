"""A child process with Workers. It tells each record that it takes, before it works on it, and each that it has
finished, after that: ["taken", sequence, attempt], ["finished", sequence]."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jlog

workers: dict[str, jlog.Worker] = {}
tasks: dict[tuple[str, int], jlog.Task] = {}


def tell(kind: str, *content: Any) -> None:
    os.write(1, json.dumps([kind, *content]).encode() + b"\n")


def open_worker(name: str, path: str, options: dict[str, Any]) -> None:
    workers[name] = jlog.Worker(path, "billing", **options)


def take(name: str, max_records: int = 1, timeout: float = 0) -> list[tuple[int, int]]:
    found = workers[name].take(max_records, timeout)
    tasks.update({(name, task.sequence): task for task in found})
    return [(task.sequence, task.attempt) for task in found]


def finish(name: str, sequence: int) -> str:
    try:
        tasks.pop((name, sequence)).ack()
    except jlog.JournalError as error:
        return type(error).__name__
    return "finished"


def finish_durably(name: str, sequences: list[int]) -> None:
    workers[name].ack([tasks.pop((name, sequence)) for sequence in sequences], durable=True)


def delay(name: str, sequence: int, seconds: float) -> None:
    tasks.pop((name, sequence)).nack(delay=seconds)


def take_all(name: str, timeout: float, nack_every: int = 0) -> None:
    """Takes and finishes what comes, and fails at each so many of them once."""
    for task in workers[name].tasks(timeout):
        tell("taken", task.sequence, task.attempt)
        if nack_every and task.attempt == 1 and task.sequence % nack_every == 0:
            task.nack(delay=0.001)
            continue
        task.ack()
        tell("finished", task.sequence)


def finish_while_another_thread_takes(name: str, sequence: int) -> None:
    """Where the finish has to wait, the other thread comes to its take meanwhile."""
    called = False

    def take() -> None:
        while not called:
            time.sleep(0)
        ends = time.monotonic() + 0.02  # this thread keeps the interpreter until it waits itself
        while time.monotonic() < ends:
            pass
        workers[name].take(1, 0)

    sys.setswitchinterval(1000)
    other = threading.Thread(target=take)
    other.start()
    time.sleep(0.05)  # a take looks for dead workers only if the last look was a while ago
    called = True
    tasks.pop((name, sequence)).ack()
    other.join()


def reject(name: str, sequence: int) -> None:
    tasks.pop((name, sequence)).reject("for good")


def drop(name: str, sequence: int) -> None:
    del tasks[name, sequence]


def begin(name: str, sequence: int) -> None:
    tasks[name, sequence].begin()


def work_off(how: str, most: int, path: str, folder: str, options: dict[str, Any]) -> None:
    """Works until every record is finished: one after the other, or some at once. The value says what a record does."""
    worker = jlog.Worker(path, "billing", **options)
    end = jlog.Journal(path).next_sequence
    log = os.open(f"{folder}/log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    done = 0

    def wait_for(holds: Callable[[], object]) -> None:
        while not holds():
            time.sleep(0.001)

    def handle(task: jlog.Task) -> None:
        nonlocal done
        value = task.value or b""
        if value == b"long":
            Path(f"{folder}/long has begun {os.getpid()}").touch()
            wait_for(Path(f"{folder}/no more kills").exists)
        elif value == b"wait":
            Path(f"{folder}/waits {task.sequence}").touch()
            wait_for(Path(f"{folder}/go").exists)
        elif value == b"kill late":
            begun = done
            with jlog.Writer(path) as writer:
                writer.extend([b"short"] * 20)
            wait_for(lambda: done >= begun + 20)
        elif value.startswith(b"kill thrice"):
            if task.failures == 3:
                Path(f"{folder}/no more kills").touch()
            else:
                wait_for(Path(f"{folder}/long has begun {os.getpid()}").exists)
        if value.startswith(b"kill") and not (value.startswith(b"kill thrice") and task.failures == 3):
            os.kill(os.getpid(), signal.SIGKILL)
        os.write(log, f"{task.sequence} {task.failures}\n".encode())
        done += 1

    def watch() -> None:
        wait_for(lambda: worker.committed >= end)
        worker.stop()

    async def consume() -> None:
        async for task in worker.tasks_async():
            with task:
                if task.value == b"kill late":
                    await asyncio.to_thread(handle, task)
                else:
                    await asyncio.sleep(0.002)
                    handle(task)

    async def consume_all() -> None:
        await asyncio.gather(*(consume() for _ in range(most)))

    threading.Thread(target=watch, daemon=True).start()
    if how == "threads":
        worker.run(handle, threads=most)
    elif how == "coroutines":
        asyncio.run(consume_all())
    while how in ("with", "plain") and worker.committed < end:
        for task in worker.take(most, timeout=0.01):
            if how == "with":
                with task:
                    handle(task)
            else:
                handle(task)
                task.ack()
    worker.close()


def close_worker(name: str) -> None:
    workers.pop(name).close()


def what_a_forked_worker_finds(name: str, sequence: int | None = None) -> str:
    """Returns the error of a take, or of the ack of a record that the parent has taken, in a forked child, which ends then."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            workers[name].take(1, 0) if sequence is None else tasks[name, sequence].ack()
        except jlog.JournalError as error:
            os.write(write, type(error).__name__.encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as told:
        return told.read().decode()


def leave_a_child(name: str, executed: bool) -> int:
    """Leaves a child process behind, forked or also executed, that outlives this one, and returns its pid."""
    assert name in workers
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(1)
        os.write(told, b"1")
        if executed:
            os.execlp("sleep", "sleep", "600")
        os.close(0)
        while True:
            signal.pause()
    os.read(ready, 1)
    return child
