"""Sends events to the server, kills it between append and answer, and proves that each event is in the journal exactly once.

`python run.py` works in a temporary directory, `python run.py DIRECTORY` in a new directory that it leaves there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections import Counter
from multiprocessing import get_context
from multiprocessing.process import BaseProcess

import jlog
import server
from client import Client

CLIENTS, EVENTS = 8, 250
FATAL_EVENTS = (1, 50, 200, 500)  # the first server is killed before it answers its first event, the second one at its 50th, …
SPAWN = get_context("spawn")  # a forked server would keep the connections of the clients open


class DoomedIngest(server.Ingest):
    """Is killed at the event of this number: it is in the journal, and its client does not know it."""

    def __init__(self, journal: str, fatal: int | None) -> None:
        super().__init__(journal)
        self._events, self._fatal = 0, fatal

    async def put(self, event_id: bytes, event: bytes) -> tuple[int, bool]:
        stored = await super().put(event_id, event)
        self._events += 1
        if self._events == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return stored


def run_server(journal: str, listener: socket.socket, fatal: int | None) -> None:
    asyncio.run(server.main(DoomedIngest(journal, fatal), listener))


async def keep_running(journal: str, listener: socket.socket) -> None:
    """Starts a server, and the next one when it is killed, as systemd does. The listener stays open, so clients wait for the
    next one meanwhile."""
    for number, fatal in enumerate((*FATAL_EVENTS, None)):
        process: BaseProcess = SPAWN.Process(target=run_server, args=(journal, listener, fatal), daemon=True)
        process.start()
        await asyncio.to_thread(process.join)
        check(process.exitcode == -signal.SIGKILL, f"server {number} ended with {process.exitcode}")
        print(f"server {number} was killed: {len(jlog.Journal(journal))} events in the journal")


async def run_all(journal: str) -> list[Client]:
    with socket.create_server(("127.0.0.1", 0), backlog=CLIENTS) as listener:
        clients = [Client(f"client{number}", listener.getsockname()) for number in range(CLIENTS)]
        servers = asyncio.create_task(keep_running(journal, listener))
        sending = asyncio.gather(*(client.send(EVENTS) for client in clients))
        await asyncio.wait((servers, sending), return_when=asyncio.FIRST_COMPLETED)
        for process in SPAWN.active_children():
            process.kill()
        await servers
        await sending
    return clients


def prove(journal: str, clients: list[Client]) -> None:
    with jlog.Reader(journal) as reader:
        found = [((record.id or b"").decode(), record.sequence) for record in reader]
    statuses = sum((client.statuses for client in clients), Counter[str]())
    print(", ".join(f"{status}: {count}" for status, count in sorted(statuses.items())))
    check(statuses["200 OK"] > 0, "no event was sent again that was in the journal")
    check(
        len(found) == len(dict(found)) == CLIENTS * EVENTS, f"{len(found)} events in the journal, {len(dict(found))} different"
    )
    for client in clients:
        check([event for event in found if event[0] in client.sequences] == list(client.sequences.items()), "another order")
    print(f"{len(found)} events are in the journal, each exactly once, where its answer said and in its client's order")


def check(holds: bool, otherwise: str) -> None:
    if not holds:
        sys.exit(f"FAILED: {otherwise}")


def main(folder: str) -> None:
    journal = os.path.join(folder, "events")
    prove(journal, asyncio.run(run_all(journal)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        os.mkdir(sys.argv[1])
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
