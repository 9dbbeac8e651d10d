"""The taskiq application of the tests: JLOG_TEST_DIRECTORY holds its journal, and what its tasks have done."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from jlog.taskiq import JournalBroker

DIRECTORY = Path(os.environ["JLOG_TEST_DIRECTORY"])
DONE = DIRECTORY / "done"

broker = JournalBroker(DIRECTORY / "tasks", durable=True, worker={"backoff": (0.01, 0.1)})


@broker.task
async def count_words(number: int, page: str) -> None:
    """Writes the result as a whole, so that a worker that is killed leaves none or all of it."""
    DONE.mkdir(exist_ok=True)
    unfinished = DONE / f".{number}.{os.getpid()}"
    unfinished.write_text(str(len(Path(page).read_text().split())))
    unfinished.rename(DONE / str(number))


@broker.task
async def wait(number: int) -> None:
    """Begins, and ends once the test says so."""
    (DIRECTORY / f"begun.{os.environ['JLOG_TEST_LIFE']}.{number}").touch()
    while not (DIRECTORY / "go").exists():
        await asyncio.sleep(0.01)


async def kick_waiting(count: int) -> None:
    await broker.startup()
    for number in range(count):
        await wait.kiq(number)
    await broker.shutdown()


async def kick() -> None:
    await broker.startup()
    for number, page in enumerate(json.loads((DIRECTORY / "pages").read_text())):
        await count_words.kiq(number, page)
    await broker.shutdown()
