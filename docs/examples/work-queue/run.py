"""Fills a queue, kills its workers at the worst moments, rewinds it, and proves that each job is done or a dead letter.

`python run.py` works in a temporary directory, `python run.py DIRECTORY` in a new directory that it leaves there.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from functools import partial
from multiprocessing import Process
from pathlib import Path

import jlog
from jobs import FATAL, FREE, write_invoice
from worker import ATTEMPTS, SUBSCRIBER, work

YESTERDAY, ALL, WORKERS = 20, 200, 3
CHECKPOINT = "release-1"
KILLS = {5, 70, 110}  # the worker is killed once when it has done this job, before it is acknowledged


def do(queue: Path, release: int, task: jlog.Task) -> None:
    write_invoice(queue / "invoices", release, task)
    killed = queue / f"killed-{task.sequence}"
    if task.sequence in KILLS and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def start(queue: Path, release: int) -> Process:
    process = Process(target=work, args=(queue, partial(do, queue, release)), daemon=True)
    process.start()
    return process


def serve(queue: Path, release: int) -> int:
    """Runs the workers until all is done, and starts a new one for each that dies. Returns how many have died."""
    died = 0
    workers = [start(queue, release) for _ in range(WORKERS)]
    while jlog.Journal(queue / "jobs").subscribers()[SUBSCRIBER].lag:
        for i, process in enumerate(workers):
            if not process.is_alive():
                check(process.exitcode == -signal.SIGKILL, f"a worker ended with {process.exitcode}")
                died += 1
                workers[i] = start(queue, release)
        time.sleep(0.01)
    for process in workers:
        process.terminate()
        process.join()
        died += process.exitcode == -signal.SIGKILL
    return died


def put_jobs(queue: Path, numbers: range) -> None:
    with jlog.Writer(queue / "jobs") as writer:
        for number in numbers:
            writer.append(b"%d" % number)


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"FAILED: {otherwise}")


def prove(queue: Path, died: int, releases: dict[int, int], dead: list[int]) -> None:
    """Compares the invoices, each with its release, and the dead letters with what must be there."""
    invoices = {int(path.name): int(path.read_text().split()[-1]) for path in (queue / "invoices").glob("[0-9]*")}
    with jlog.Reader(queue / "dead") as reader:
        letters = sorted(int(record.value or b"") for record in reader)
    print(f"{died} workers died; {len(invoices)} invoices, dead letters {letters}")
    check(invoices == releases, "an invoice is missing, too many, or by the wrong release")
    check(letters == dead, f"the dead letters are not {dead}")


def main(queue: Path) -> None:
    (queue / "invoices").mkdir()
    jlog.Journal.create(queue / "dead")
    jobs = jlog.Journal.create(queue / "jobs")
    jobs.add_subscriber(SUBSCRIBER)
    put_jobs(queue, range(YESTERDAY))
    died = serve(queue, release=1)
    jobs.set_checkpoint(CHECKPOINT, "end")
    print(f"the checkpoint {CHECKPOINT!r} is after job {YESTERDAY - 1}")
    put_jobs(queue, range(YESTERDAY, ALL))
    died += serve(queue, release=1)
    done = set(range(ALL)) - FREE - FATAL
    prove(queue, died, dict.fromkeys(done, 1), sorted([*FREE, *FATAL]))
    check(died == len(KILLS) + ATTEMPTS * len(FATAL), "other workers died than those that were killed")

    jobs.rewind(SUBSCRIBER, CHECKPOINT)
    print("release 2 can write the invoices that release 1 could not: back to the checkpoint")
    died = serve(queue, release=2)
    prove(queue, died, {number: 1 if number < YESTERDAY else 2 for number in done | FREE}, sorted([*FREE, *FATAL, *FATAL]))
    print("each job is done, or a dead letter")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.mkdir(sys.argv[1])
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
