"""Celery with a directory of journals as its broker: real workers, which are killed again and again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kombu import Connection, Exchange, Queue

import jlog
import jlog.celery
from jlog.celery.queues import Queues
from patience import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TESTS = Path(__file__).parents[1]
PAGES = sorted(map(str, (TESTS.parent / "docs").rglob("*.md"))) * 10  # often enough that workers are killed while they count


class Cluster:
    """The application's broker and workers."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
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
        at = jlog.Journal(self.directory / "broker" / "queues" / "celery").subscribers()["celery"]
        return at.lag if at.work is None else at.work.unfinished


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
    left = os.listdir(cluster.directory / "broker" / "queues")
    assert not [name for name in left if name.startswith("worker")], "the queue of the worker's own commands is deleted"


# --- The transport alone -----------------------------------------------------------------------------------------


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[], Connection]]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Connection(f"jlog://{tmp_path}/broker"))


def test_a_message_goes_to_one_consumer_and_is_gone_once_it_is_acknowledged(connect: Callable[[], Connection]) -> None:
    one, other = connect(), connect()
    queue = one.SimpleQueue("jobs")
    queue.put({"number": 1})
    queue.put({"number": 2})
    first = queue.get(timeout=5)
    second = other.SimpleQueue("jobs").get(timeout=5)
    assert [first.payload, second.payload] == [{"number": 1}, {"number": 2}]
    assert queue.qsize() == 2
    first.ack()
    second.reject()
    assert queue.qsize() == 0


def test_a_message_that_is_requeued_or_left_comes_again(connect: Callable[[], Connection]) -> None:
    one = connect()
    queue = one.SimpleQueue("jobs")
    queue.put("again")
    queue.get(timeout=5).requeue()
    queue.get(timeout=5)
    one.release()
    found = connect().SimpleQueue("jobs").get(timeout=5)
    assert found.payload == "again"
    found.ack()


def test_a_topic_and_a_fanout_reach_the_queues_that_other_processes_have_bound(connect: Callable[[], Connection]) -> None:
    topic, news = Exchange("logs", "topic"), Exchange("news", "fanout")
    consumer = connect().channel()
    for name, exchange, key in (("errors", topic, "*.error"), ("all", topic, "#"), ("one", news, ""), ("two", news, "")):
        Queue(name, exchange, key)(consumer).declare()
    producer = connect().Producer()
    producer.publish("bad", exchange=topic, routing_key="web.error")
    producer.publish("good", exchange=topic, routing_key="web.info")
    producer.publish("extra", exchange=news)
    found = {name: [] for name in ("errors", "all", "one", "two")}
    for name, payloads in found.items():
        while (message := consumer.basic_get(name, no_ack=True)) is not None:
            payloads.append(message.payload)
    assert found == {"errors": ["bad"], "all": ["bad", "good"], "one": ["extra"], "two": ["extra"]}


def test_purging_and_deleting_a_queue(connect: Callable[[], Connection], tmp_path: Path) -> None:
    connection = connect()
    queue = connection.SimpleQueue("jobs")
    for _ in range(5):
        queue.put("value")
    assert queue.clear() == 5
    assert queue.qsize() == 0
    connection.channel().queue_delete("jobs")
    assert (tmp_path / "broker" / "queues" / "jobs" / "journal.meta").exists(), "another channel uses it"
    connection.default_channel.queue_delete("jobs")
    assert not (tmp_path / "broker" / "queues" / "jobs" / "journal.meta").exists()


def test_a_queue_whose_directory_was_removed_is_begun_anew(tmp_path: Path) -> None:
    queues = Queues(tmp_path, writer={}, worker={})
    queues.put("jobs", b"old")
    held, in_use = queues.take("jobs"), queues._writers["jobs"]
    assert held is not None
    shutil.rmtree(tmp_path / "jobs")
    queues.declare("jobs", temporary=False)
    wait_until(lambda: queues.put("jobs", b"new") or jlog.Journal(tmp_path / "jobs").next_sequence > 0)
    with pytest.raises(jlog.JournalMoved):  # another thread learns the same, and goes on in the same way
        in_use.append(b"of another thread")
    wait_until(lambda: queues.take("jobs") is not None and jlog.Journal(tmp_path / "jobs").subscribers()["celery"].busy)
    held.ack()
    queues.close()


@pytest.mark.parametrize("url", ["jlog://", "jlog://host/var/lib/app"])
def test_a_url_without_a_directory_or_with_a_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"write jlog:///var/lib/app"):
        Connection(url).channel()
