"""Celery with a directory of journals as its broker: real workers, which are killed again and again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import jlog
import jlog.celery
from patience import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]
PAGES = sorted(map(str, (TESTS.parent / "docs").rglob("*.md"))) * 10  # often enough that workers are killed while they count


class Cluster:
    """The application's broker and workers."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.queue = directory / "broker" / "queues" / "celery"
        self.environment = {**os.environ, "JLOG_TEST_DIRECTORY": str(directory), "PYTHONPATH": str(TESTS)}
        self._stack = stack

    def call(self, statement: str) -> None:
        """Runs a statement in a program of its own, which knows the tasks."""
        subprocess.run([sys.executable, "-c", f"from brokers.tasks import *\n{statement}"], env=self.environment, check=True)

    def worker(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "celery", "-A", "brokers.tasks", "worker", "--loglevel=WARNING", "-n"]
        name = f"worker{time.monotonic_ns()}@%h"
        log = open(self.directory / "log", "ab")  # noqa: SIM115
        worker = subprocess.Popen(
            [*command, name, *options], env=self.environment, cwd=self.directory, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        self._stack.callback(kill, worker)
        return worker

    def done(self) -> dict[str, str]:
        folder = self.directory / "done"
        found = [file for file in folder.iterdir() if not file.name.startswith(".")] if folder.exists() else []
        return {file.name: file.read_text() for file in found}

    def unfinished(self) -> int:
        place = self.place()
        return place.lag if place.work is None else place.work.unfinished

    def taken(self) -> int:
        place = self.place()
        return 0 if place.work is None else place.work.taken

    def place(self) -> jlog.Position:
        return jlog.Journal(self.queue).subscribers()["celery"]


def kill(worker: subprocess.Popen[bytes]) -> None:
    """Kills the worker with the processes of its pool."""
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def test_every_word_is_counted_whatever_workers_are_killed(cluster: Cluster) -> None:
    """Two workers count the words of the documentation. One after the other is killed, and started again."""
    (cluster.directory / "pages").write_text(json.dumps(PAGES))
    cluster.call(
        "for number, page in enumerate(json.loads((DIRECTORY / 'pages').read_text())): count_words.delay(number, page)"
    )
    workers = [cluster.worker("--pool=prefork", "-c", "2"), cluster.worker("--pool=solo")]
    for turn in range(6):
        before = len(cluster.done())
        wait_until(lambda before=before: len(cluster.done()) >= min(before + 50, len(PAGES)))
        kill(workers[turn % 2])
        workers[turn % 2] = cluster.worker("--pool=prefork", "-c", "2")
    wait_until(lambda: len(cluster.done()) == len(PAGES))
    wait_until(lambda: cluster.unfinished() == 0)
    assert cluster.done() == {str(number): str(len(Path(page).read_text().split())) for number, page in enumerate(PAGES)}


def test_a_task_whose_worker_is_killed_comes_again_at_once(cluster: Cluster) -> None:
    cluster.call("begin_and_hang.delay('task')")
    first, second = cluster.worker("--pool=solo"), cluster.worker("--pool=solo")
    wait_until(lambda: "task.begun" in cluster.done())
    pid = int(cluster.done()["task.begun"])
    assert pid in (first.pid, second.pid)
    kill(first if pid == first.pid else second)
    wait_until(lambda: int(cluster.done()["task.begun"]) != pid)


def test_a_retry_and_an_eta_are_kept(cluster: Cluster) -> None:
    cluster.call("note.apply_async(['late'], countdown=2); note.delay('soon'); fail_twice.delay('retried'); print(time.time())")
    cluster.worker("--pool=solo")
    wait_until(lambda: cluster.done().keys() == {"late", "soon", "retried"})
    assert cluster.done()["retried"] == "2"
    wait_until(lambda: cluster.unfinished() == 0)


def test_a_revoked_task_is_not_run(cluster: Cluster) -> None:
    cluster.worker("--pool=solo")
    cluster.call("note.delay('first')")
    wait_until(lambda: "first" in cluster.done())
    cluster.call(
        "result = note.apply_async(['revoked'], countdown=3)\n"
        "app.control.revoke(result.id)\n"
        "note.apply_async(['last'], countdown=5)"
    )
    wait_until(lambda: "last" in cluster.done())
    assert "revoked" not in cluster.done()


def test_workers_answer_a_ping_and_end_at_sigterm(cluster: Cluster) -> None:
    worker = cluster.worker("--pool=prefork", "-c", "1")
    cluster.call("while not app.control.ping(timeout=2): pass")
    worker.terminate()
    worker.wait()
    assert worker.returncode == 0
    assert not jlog.Journal(cluster.directory / "broker" / "queues" / "celery").subscribers()["celery"].busy
    assert os.listdir(cluster.directory / "broker" / "temporary") == [], "the queue of the worker's own commands is deleted"


def test_a_task_that_kills_its_process_ends_in_the_dead_letters(cluster: Cluster) -> None:
    cluster.call("kill_process.delay('tries'); note.delay('beside')")
    worker = cluster.worker("--pool=prefork", "-c", "1")
    wait_until(lambda: cluster.unfinished() == 0 and "beside" in cluster.done())
    assert (cluster.directory / "tries").read_text() == "xxx"
    assert len(jlog.Journal(cluster.directory / "dead")) == 1
    assert worker.poll() is None


@pytest.mark.parametrize("pool", ["solo", "threads", "prefork"])
def test_the_death_of_a_worker_is_a_failure_of_what_its_pool_has_accepted(cluster: Cluster, pool: str) -> None:
    """The worker has also fetched an older task, which waits for its ETA, and others, which wait for a free process."""
    others = 1 if pool == "solo" else 3  # this pool fetches no more while it is at work
    cluster.call("note.apply_async(['late'], countdown=3600); begin_and_hang.delay('task')")
    cluster.call("note.delay('next'); note.delay('last')")
    worker = cluster.worker(f"--pool={pool}", "-c", "1", "--prefetch-multiplier=3")
    wait_until(lambda: "task.begun" in cluster.done() and cluster.taken() == 1 + others)
    kill(worker)
    with jlog.Worker(cluster.queue, "celery") as found:
        failures = [task.failures for task in found.take(10, timeout=0)]
    assert failures == [0, 1, 0, 0]


def test_a_busy_worker_answers_and_obeys(cluster: Cluster) -> None:
    cluster.worker("--pool=prefork", "-c", "1")
    cluster.call("begin_and_hang.apply_async(['task'], task_id='hanging')")
    wait_until(lambda: "task.begun" in cluster.done())
    cluster.call(
        "ids = [note.delay('revoked').id, note.delay('revoked').id]\n"
        "assert app.control.broadcast('ping', reply=True, timeout=60, limit=1)\n"
        "assert app.control.broadcast('revoke', {'task_id': ids}, reply=True, timeout=60, limit=1)\n"
        "note.delay('last')\n"
        "app.control.revoke('hanging', terminate=True, signal='SIGKILL')"
    )
    wait_until(lambda: "last" in cluster.done())
    assert "revoked" not in cluster.done()


def test_probes_leave_no_queue_and_no_file(cluster: Cluster) -> None:
    worker = cluster.worker("--pool=prefork", "-c", "1")
    cluster.call("while not app.control.ping(timeout=2): pass")

    def probe() -> tuple[int, int]:
        cluster.call("assert app.control.broadcast('ping', reply=True, timeout=200, limit=1)")
        return len(os.listdir(cluster.directory / "broker" / "temporary")), len(os.listdir(f"/proc/{worker.pid}/fd"))

    first = max(probe() for _ in range(3))
    assert max(probe() for _ in range(6)) <= first
