"""Sends events to the server. An event that gets no answer is sent again with the same ID, to the next server."""

from __future__ import annotations

import asyncio
from collections import Counter


class Client:
    """Sends events one after the other, each until it is answered."""

    def __init__(self, name: str, address: tuple[str, int]) -> None:
        self._name, self._address = name, address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.sequences: dict[str, int] = {}  # of the acknowledged events
        self.statuses: Counter[str] = Counter()

    async def send(self, events: int) -> None:
        for number in range(events):
            event_id = f"{self._name}-{number}"
            while event_id not in self.sequences:
                try:
                    self.sequences[event_id] = await self._post(event_id, f"event {number} of {self._name}")
                except (ConnectionError, asyncio.IncompleteReadError):
                    self._streams = None
                    self.statuses["no answer"] += 1

    async def _post(self, event_id: str, event: str) -> int:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        writer.write(f"POST /events/{event_id} HTTP/1.1\r\nContent-Length: {len(event)}\r\n\r\n{event}".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        answer = await reader.readexactly(int(head.rpartition(": ")[2]))
        status = head.split("\r\n")[0].partition(" ")[2]
        if status not in ("201 Created", "200 OK"):
            raise RuntimeError(f"{status}: {answer.decode()}")
        self.statuses[status] += 1
        return int(answer)
