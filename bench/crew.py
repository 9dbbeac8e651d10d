"""Processes that stand ready, begin at one word, and report when they began and ended."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def process(work: Callable[..., None], *arguments: Any) -> Iterator[tuple[Connection, Callable[[], None]]]:
    """Yields a connection to a process that runs work(line, *arguments), and a function that kills it with SIGKILL."""
    ours, theirs = SPAWN.Pipe()
    child = SPAWN.Process(target=work, args=(theirs, *arguments), daemon=True)
    with _interrupts_ignored():
        child.start()
    theirs.close()

    def kill() -> None:
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL, child.exitcode

    try:
        yield ours, kill
    finally:
        ours.close()
        child.kill()
        child.join()


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Makes child processes that begin in here ignore Ctrl-C for ever: this process ends them."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def serve(line: Connection, opens: Callable[..., Any], works: Callable[..., None], *arguments: Any) -> None:
    """Serves runs: for each path it receives, it opens, says so, works at the next word, and reports begin and end."""
    try:
        while True:
            with opens(line.recv(), *arguments) as opened:
                line.send("ready")
                line.recv()
                begin = perf_counter()  # the same clock for all processes
                works(opened, *arguments)
                end = perf_counter()
            line.send((begin, end))
    except (EOFError, BrokenPipeError):  # the other process has gone
        return


def run_together(lines: list[Connection], path: Path) -> float:
    """Returns the seconds from the first begin to the last end."""
    for line in lines:
        line.send(str(path))
    for line in lines:
        line.recv()
    for line in lines:
        line.send("go")
    times = [line.recv() for line in lines]
    seconds: float = max(end for _, end in times) - min(begin for begin, _ in times)
    return seconds
