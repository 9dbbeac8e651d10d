"""The processes of the demo: starts them, listens to them, kills them, and ends them with the demo whatever happens."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, final

import jlog

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import SpawnProcess
    from types import TracebackType

SPAWN = multiprocessing.get_context("spawn")


class Broken(Exception):
    """A promise of jlog was broken, or a process of the demo ended as it should not."""


class Link:
    """The connection of a process to the demo. When it breaks, the process ends."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._orders: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        try:
            while True:
                self._orders.put(self._connection.recv())
        except (EOFError, OSError):
            os._exit(1)

    def say(self, what: str, told: Any = None) -> None:
        self._connection.send((what, told))

    def wait_for(self, order: str) -> None:
        while self._orders.get() != order:
            pass

    def wait_for_the_kill(self) -> None:
        while True:
            self._orders.get()


def _live(connection: Connection, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    link = Link(connection)
    try:
        work(link, *arguments)
    except (Broken, jlog.JournalError, OSError) as error:
        link.say("failed", str(error))


@dataclass
class FleetProcess:
    process: SpawnProcess
    connection: Connection
    said: dict[str, Any] = field(default_factory=dict)
    open: bool = True


@final
class Fleet:
    """The processes by name. `tick` is called about once a second while the fleet waits for them."""

    def __init__(self, tick: Callable[[], None] = lambda: None) -> None:
        self.tick = tick
        self._members: dict[str, FleetProcess] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for member in self._members.values():
            member.process.kill()
        for member in self._members.values():
            member.process.join()

    def start(self, name: str, work: Callable[..., None], *arguments: Any) -> None:
        """Starts a process that runs work(link, *arguments), under a new name or that of a killed process."""
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=_live, args=(theirs, work, arguments), name=name, daemon=True)
        # The process inherits the mask: Ctrl-C, which a terminal sends to all, reaches only the demo, which ends the others.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
            self._members[name] = FleetProcess(process, ours)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()

    def tell(self, name: str, order: str) -> None:
        self._members[name].connection.send(order)

    def wait_for(self, name: str, what: str) -> Any:
        """Waits for this message of the process, and returns what comes with it."""
        member = self._members[name]
        while what not in member.said:
            if not member.open:
                raise Broken(f"{name} ended before it was {what!r}")
            self._listen()
        return member.said[what]

    def wait_for_the_end(self, name: str) -> None:
        self._check_exit(name, self._members[name])

    def kill(self, name: str) -> None:
        """Sends SIGKILL to a process that is at work."""
        member = self._members[name]
        member.process.kill()
        code = self._exit_code(member)
        if code != -signal.SIGKILL:
            raise Broken(f"{name} ended with exit code {code} before it was killed")
        member.connection.close()

    def _check_exit(self, name: str, member: FleetProcess) -> None:
        code = self._exit_code(member)
        if code != 0:
            raise Broken(f"{name} ended with exit code {code}")

    @staticmethod
    def _exit_code(member: FleetProcess) -> int | None:
        member.process.join()
        return member.process.exitcode

    def _listen(self) -> None:
        """Waits until a process sends something, or a second has passed."""
        by_connection = {member.connection: (name, member) for name, member in self._members.items() if member.open}
        ready = wait(list(by_connection), timeout=1)
        if not ready:
            self.tick()
        for connection in ready:
            assert isinstance(connection, Connection)
            name, member = by_connection[connection]
            try:
                what, told = connection.recv()
            except (EOFError, OSError):
                member.open = False
                self._check_exit(name, member)
                continue
            if what == "failed":
                raise Broken(f"{name}: {told}")
            member.said[what] = told
