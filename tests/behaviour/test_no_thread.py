"""A process that can have no more threads: the error says so, and nothing is half done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import jlog

NOBODY_HAS_BYTES = 1 << 46  # of a thread's stack


@pytest.fixture
def no_thread() -> Iterator[None]:
    before = threading.stack_size(NOBODY_HAS_BYTES)
    yield
    threading.stack_size(before)


def refused() -> pytest.RaisesExc[jlog.JournalError]:
    return pytest.raises(jlog.JournalError, match=r"cannot be started .* raise it, or end other threads")


@pytest.mark.parametrize("sync", ["none", "interval"])
@pytest.mark.usefixtures("no_thread")
def test_a_writer_that_needs_one_is_not_opened_and_leaves_nothing_behind(path: Path, sync: str) -> None:
    with refused():
        jlog.Writer(path, sync=sync)
    threading.stack_size(0)
    jlog.Writer(path, exclusive=True).close()


def test_a_durable_append_appends_nothing(path: Path, request: pytest.FixtureRequest) -> None:
    with jlog.Writer(path) as writer:
        request.getfixturevalue("no_thread")
        with refused():
            asyncio.run(writer.append_durable(b"x"))
        with refused():
            asyncio.run(writer.sync_async())
        assert writer.append(b"first") == 0
        threading.stack_size(0)
        assert asyncio.run(writer.append_durable(b"second")) == 1


def test_workers_start_none_and_take_nothing(path: Path, request: pytest.FixtureRequest) -> None:
    with jlog.Writer(path) as writer, jlog.Worker(path, "w") as worker:
        request.getfixturevalue("no_thread")
        with refused():
            asyncio.run(worker.take_async(timeout=None))
        with refused():
            worker.run(lambda _: None, threads=3)
        threading.stack_size(0)
        writer.append(b"x")
    with jlog.Worker(path, "w") as worker:
        assert [task.value for task in worker.take(timeout=0)] == [b"x"]


def test_a_reader_does_not_follow_in_an_event_loop(path: Path, request: pytest.FixtureRequest) -> None:
    jlog.Writer(path).close()

    async def follow() -> None:
        await anext(reader.follow_async())

    with jlog.Reader(path) as reader:
        request.getfixturevalue("no_thread")
        with refused():
            asyncio.run(follow())
