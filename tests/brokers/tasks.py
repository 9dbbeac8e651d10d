"""The Celery application of the tests: JLOG_TEST_DIRECTORY holds its broker, and what its tasks have done."""

from __future__ import annotations

import json  # noqa: F401 - for the statements of the tests
import os
import signal
import time
from pathlib import Path

from celery import Celery

import jlog.celery  # noqa: F401 - registers the transport

DIRECTORY = Path(os.environ["JLOG_TEST_DIRECTORY"])
DONE = DIRECTORY / "done"

app = Celery("brokers.tasks", broker=f"jlog://{DIRECTORY}/broker")
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=2,
    broker_transport_options={
        "worker": {"backoff": (0.01, 0.1), "max_attempts": 3, "dead_letters": str(DIRECTORY / "dead")},
    },
)


def write_done(name: str, text: str) -> None:
    """Writes a result as a whole, so that a worker that is killed leaves none or all of it."""
    DONE.mkdir(exist_ok=True)
    unfinished = DONE / f".{name}.{os.getpid()}"
    unfinished.write_text(text)
    unfinished.rename(DONE / name)


@app.task
def count_words(number: int, page: str) -> None:
    write_done(str(number), str(len(Path(page).read_text().split())))


@app.task
def begin_and_hang(name: str) -> None:
    write_done(f"{name}.begun", str(os.getpid()))
    time.sleep(3600)


@app.task
def kill_process(name: str) -> None:
    with (DIRECTORY / name).open("a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True, max_retries=3, default_retry_delay=0)
def fail_twice(self, name: str) -> None:
    if self.request.retries < 2:
        raise self.retry()
    write_done(name, str(self.request.retries))


@app.task
def note(name: str) -> None:
    write_done(name, str(time.time()))
