"""Fills a queue, kills its workers at the worst moments, rewinds it, and proves that each job is done or a dead letter.

`python run.py` works in a temporary directory, `python run.py DIRECTORY` in a new directory that it leaves there.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from multiprocessing import Process
from pathlib import Path

import jlog
from jobs import FATAL, FREE, write_invoice
from worker import ATTEMPTS, SUBSCRIBER, Worker, attempts

YESTERDAY, ALL = 20, 200
CHECKPOINT = "today"
# Before the commit of this record of this journal. Job 30 has been passed on then, job 70 and the first retry are done.
KILLS = {("jobs", 30), ("jobs", 70), ("retries", 0)}


class DoomedWorker(Worker):
    """Is killed once at each of KILLS."""

    def commit(self) -> None:
        place = (self.source, self.reader.position - 1)
        killed = self.queue / "killed-{}-{}".format(*place)
        if place in KILLS and not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit()


def work(queue: Path, source: str, release: int) -> None:
    DoomedWorker(queue, source, partial(write_invoice, queue / "invoices", release)).run()


def start(queue: Path, source: str, release: int) -> Process:
    process = Process(target=work, args=(queue, source, release), daemon=True)
    process.start()
    return process


def serve(queue: Path, release: int) -> int:
    """Runs both workers until all is done, and starts each one again that dies. Returns how many have died."""
    died = 0
    workers = {source: start(queue, source, release) for source in ("jobs", "retries")}
    while lag(queue, "jobs") or lag(queue, "retries"):  # in this order: a job that fails becomes a retry
        for source, process in workers.items():
            if not process.is_alive():
                check(process.exitcode == -signal.SIGKILL, f"the worker of {source} ended with {process.exitcode}")
                died += 1
                workers[source] = start(queue, source, release)
        time.sleep(0.01)
    for process in workers.values():
        process.kill()
        process.join()
    return died


def lag(queue: Path, source: str) -> int:
    return jlog.Journal(queue / source).subscribers()[SUBSCRIBER].lag


def put_jobs(queue: Path, numbers: range) -> None:
    with jlog.Writer(queue / "jobs") as writer:
        for number in numbers:
            writer.append(b"%d" % number)


def dead_letters(queue: Path) -> list[int]:
    with jlog.Reader(queue / "dead") as reader:
        return [int(record.value or b"") for record in reader]


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"FAILED: {otherwise}")


def prove(queue: Path, rounds: int, died: int, releases: dict[int, int], dead: list[int]) -> None:
    """Compares the invoices, each with its release, and the dead letters with what must be there."""
    invoices = {int(path.name): int(path.read_text().split()[-1]) for path in (queue / "invoices").glob("[0-9]*")}
    print(f"{died} workers died; {len(invoices)} invoices, dead letters {dead_letters(queue)}")
    check(invoices == releases, "an invoice is missing, too many, or by the wrong release")
    check(sorted(dead_letters(queue)) == sorted(dead), f"the dead letters are not {dead}")
    with jlog.Reader(queue / "retries") as reader:
        retries = Counter((record.value, attempts(record)) for record in reader)
    check(max(retries.values()) <= rounds, "a job was passed on twice")


def main(queue: Path) -> None:
    (queue / "invoices").mkdir()
    for name in ("jobs", "retries"):
        jlog.Journal.create(queue / name)
        jlog.Journal(queue / name).add_subscriber(SUBSCRIBER)
    put_jobs(queue, range(YESTERDAY))
    died = serve(queue, release=1)
    jlog.Journal(queue / "jobs").set_checkpoint(CHECKPOINT, "end")
    print(f"the checkpoint {CHECKPOINT!r} is after job {YESTERDAY - 1}")
    put_jobs(queue, range(YESTERDAY, ALL))
    died += serve(queue, release=1)
    done = set(range(ALL)) - FREE - FATAL
    prove(queue, 1, died, dict.fromkeys(done, 1), [*FREE, *FATAL])
    check(died == len(KILLS) + ATTEMPTS * len(FATAL), "other workers died than those that were killed")

    worker = Worker(queue, "jobs", print)
    worker.rewind(CHECKPOINT)
    worker.close()
    print("release 2 can write the invoices that release 1 could not: back to the checkpoint")
    died = serve(queue, release=2)
    releases = {number: 1 if number < YESTERDAY else 2 for number in done | FREE}
    prove(queue, 2, died, releases, [*FREE, *FATAL, *FATAL])
    print("each job is done, or a dead letter")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.mkdir(sys.argv[1])
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
