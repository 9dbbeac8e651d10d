"""taskiq with a journal as its queue: real workers, which are killed again and again."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from taskiq import BrokerMessage

import jlog
from jlog.taskiq import JournalBroker
from patience import HUNG_SECONDS, wait_until

if TYPE_CHECKING:
    from typing import Any

TESTS = Path(__file__).parents[1]
PAGES = sorted(map(str, (TESTS.parent / "docs").rglob("*.md"))) * 10  # often enough that workers are killed while they count


def kill(worker: subprocess.Popen[bytes]) -> None:
    """Kills the worker with its processes."""
    if worker.poll() is None:
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def test_every_word_is_counted_whatever_workers_are_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "JLOG_TEST_DIRECTORY": str(tmp_path), "PYTHONPATH": str(TESTS)}

    def run(*command: str) -> list[str]:
        return [sys.executable, *command]

    def done() -> dict[str, str]:
        found = [file for file in (tmp_path / "done").glob("*") if not file.name.startswith(".")]
        return {file.name: file.read_text() for file in found}

    def start(stack: ExitStack) -> subprocess.Popen[bytes]:
        command = run("-m", "taskiq", "worker", "brokers.kicked:broker", "--workers", "2")
        options: dict[str, Any] = {"env": environment, "cwd": tmp_path, "start_new_session": True}
        with open(tmp_path / "log", "ab") as log:
            worker = subprocess.Popen(command, stdout=log, stderr=log, **options)
        stack.callback(kill, worker)
        return worker

    (tmp_path / "pages").write_text(json.dumps(PAGES))
    statement = "import asyncio; from brokers.kicked import *; asyncio.run(kick())"
    subprocess.run(run("-c", statement), env=environment, check=True)
    with ExitStack() as stack:
        for turn in range(5):
            worker = start(stack)
            wait_until(lambda turn=turn: len(done()) >= min(50 * (turn + 1), len(PAGES)))
            kill(worker)
        worker = start(stack)
        wait_until(lambda: len(done()) == len(PAGES))
        wait_until(lambda: jlog.Journal(tmp_path / "tasks").subscribers()["taskiq"].lag == 0)
        worker.terminate()
        worker.wait()
    assert done() == {str(number): str(len(Path(page).read_text().split())) for number, page in enumerate(PAGES)}


def test_the_tasks_of_a_killed_worker_are_done_beside_each_other_again(tmp_path: Path) -> None:
    """Each task waits until all have begun. As deaths count what was in work, none of them waits for another one."""
    environment = {**os.environ, "JLOG_TEST_DIRECTORY": str(tmp_path), "PYTHONPATH": str(TESTS)}
    statement = "import asyncio; from brokers.kicked import *; asyncio.run(kick_waiting(12))"
    subprocess.run([sys.executable, "-c", statement], env=environment, check=True)
    with ExitStack() as stack, open(tmp_path / "log", "ab") as log:
        for life in range(2):
            command = [sys.executable, "-m", "taskiq", "worker", "brokers.kicked:broker", "--workers", "1"]
            named = {**environment, "JLOG_TEST_LIFE": str(life)}
            worker = subprocess.Popen(command, env=named, cwd=tmp_path, stdout=log, stderr=log, start_new_session=True)
            stack.callback(kill, worker)
            wait_until(lambda life=life: len(list(tmp_path.glob(f"begun.{life}.*"))) == 12)
            if life == 0:
                kill(worker)
        (tmp_path / "go").touch()
        wait_until(lambda: jlog.Journal(tmp_path / "tasks").subscribers()["taskiq"].lag == 0)


def test_a_queue_whose_directory_was_removed_is_begun_anew(tmp_path: Path) -> None:
    path, broker = tmp_path / "tasks", JournalBroker(tmp_path / "tasks")

    async def kick(number: int) -> None:
        message = BrokerMessage(task_id=str(number), task_name="count", message=b"%d" % number, labels={})
        await broker.kick(message)

    async def main() -> None:
        await kick(0)
        messages = broker.listen()
        first = await anext(messages)
        shutil.rmtree(path)
        jlog.Journal.create(path)
        number = 1
        while not jlog.Journal(path).next_sequence:
            await kick(number)
            number += 1
            await asyncio.sleep(0.01)
        wanted = b"%d" % (number - 1)
        while (await anext(messages)).data != wanted:
            pass
        first.ack()
        assert jlog.Journal(path).subscribers()["taskiq"].busy
        await broker.shutdown()

    asyncio.run(asyncio.wait_for(main(), HUNG_SECONDS))


def test_many_at_once_find_one_new_queue_in_place_of_a_removed_one(tmp_path: Path) -> None:
    path, broker = tmp_path / "tasks", JournalBroker(tmp_path / "tasks", durable=True)
    messages = [
        BrokerMessage(task_id=str(number), task_name="count", message=b"%d" % number, labels={}) for number in range(50)
    ]

    async def main() -> None:
        await broker.kick(messages[0])
        shutil.rmtree(path)
        jlog.Journal.create(path)
        await asyncio.gather(*map(broker.kick, messages[1:]))
        await broker.shutdown()

    asyncio.run(asyncio.wait_for(main(), HUNG_SECONDS))
    assert sorted(jlog.Reader(path).values()) == sorted(message.message for message in messages[1:])
