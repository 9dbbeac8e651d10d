"""The processes of the demo: starts them, listens to them, kills them, and ends them with the demo whatever happens."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, final

import jlog
from jlog.system.python import away_from_working_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import SpawnProcess

SPAWN = multiprocessing.get_context("spawn")


class Broken(Exception):
    """A promise of jlog was broken, or a process of the demo ended as it should not."""


@dataclass
class FleetProcess:
    process: SpawnProcess
    connection: Connection
    said: dict[str, Any] = field(default_factory=dict)
    open: bool = True


@final
class Fleet:
    """The processes by name. Each sends pairs: a word, and its value."""

    def __init__(self) -> None:
        self._members: dict[str, FleetProcess] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members.values():
            member.process.kill()
        for member in self._members.values():
            member.process.join()

    def start(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        """Starts a process that runs work(connection, *arguments), under a new name or that of a killed process."""
        ours, theirs = SPAWN.Pipe(duplex=False)
        process = SPAWN.Process(target=_live, args=(os.getcwd(), theirs, work, arguments), name=name, daemon=True)
        # The process inherits the mask: Ctrl-C, which a terminal sends to all, reaches only the demo, which ends the others.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with away_from_working_directory():
                process.start()
            self._members[name] = FleetProcess(process, ours)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()

    def wait_for(self, name: str, what: str) -> Any:
        """Waits until the process says this, and returns what belongs to it."""
        member = self._members[name]
        while what not in member.said:
            if not member.open:
                raise Broken(f"{name} ended before it was {what!r}")
            self._listen()
        return member.said[what]

    def wait_for_the_end(self, name: str) -> None:
        process = self._members[name].process
        process.join()
        if process.exitcode != 0:
            raise Broken(f"{name} ended with exit code {process.exitcode}")

    def kill(self, name: str) -> None:
        """Sends SIGKILL to a process that is at work."""
        member = self._members[name]
        member.process.kill()
        member.process.join()
        if member.process.exitcode != -signal.SIGKILL:
            raise Broken(f"{name} ended with exit code {member.process.exitcode} before it was killed")
        member.connection.close()

    def _listen(self) -> None:
        """Waits until a process says something."""
        by_connection = {member.connection: name for name, member in self._members.items() if member.open}
        for connection in wait(list(by_connection)):
            assert isinstance(connection, Connection)
            name = by_connection[connection]
            try:
                what, told = connection.recv()
            except (EOFError, OSError):
                self._members[name].open = False
                self.wait_for_the_end(name)
                continue
            if what == "failed":
                raise Broken(f"{name}: {told}")
            self._members[name].said[what] = told


def _live(directory: str, connection: Connection, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    os.chdir(directory)
    threading.Thread(target=_end_with_the_demo, daemon=True).start()
    try:
        work(connection, *arguments)
    except (Broken, jlog.JournalError, OSError) as error:
        connection.send(("failed", str(error)))


def _end_with_the_demo() -> None:
    demo = multiprocessing.parent_process()
    if demo is not None:
        demo.join()
        os._exit(1)
