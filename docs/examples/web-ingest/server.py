"""Takes events by HTTP and appends them to a journal: `python server.py JOURNAL PORT`.

    POST /events/ID    the body is the event; the answer is its sequence

ID is chosen by the client. A client that got no answer sends the same event again, with the same ID, and gets the sequence of
the first one. An event whose answer was 201 or 200 survives SIGKILL and a power loss.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

import jlog

BODY_MAX = 1 << 20


class Ingest:
    """The journal of the events."""

    def __init__(self, path: str) -> None:
        self._writer = jlog.Writer(path)

    async def put(self, event_id: bytes, event: bytes) -> tuple[int, bool]:
        """Returns the sequence of the event, durable, and whether it is new."""
        end = self._writer.next_sequence
        sequence = await self._writer.append_durable(event, id=event_id)
        return sequence, sequence >= end


async def serve(ingest: Ingest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers the requests of one connection until the client closes it."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            status, answer, keep = await respond(ingest, head, reader)
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(answer)}\r\n\r\n".encode() + answer)
            await writer.drain()
            if not keep:
                break
    writer.close()


async def respond(ingest: Ingest, head: str, reader: asyncio.StreamReader) -> tuple[str, bytes, bool]:
    """Returns status, answer, and whether the connection can go on."""
    request, *lines = head.split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, _, target = request.partition(" ")
    length = headers.get("content-length", "" if method == "POST" else "0")
    if not length.isdecimal() or int(length) > BODY_MAX:
        return "411 Length Required", b"Content-Length is missing, or above 1 MiB\n", False
    body = await reader.readexactly(int(length))
    path = target.split(" ")[0]
    if method != "POST" or not path.startswith("/events/"):
        return "404 Not Found", b"POST /events/ID takes an event\n", True
    try:
        sequence, new = await ingest.put(path.removeprefix("/events/").encode(), body)
    except (jlog.JournalError, OSError) as error:  # a full disk, for example; the event is not acknowledged
        return "503 Service Unavailable", f"{error}\n".encode(), True
    return "201 Created" if new else "200 OK", b"%d\n" % sequence, True


async def main(ingest: Ingest, listener: socket.socket) -> None:
    server = await asyncio.start_server(lambda *streams: serve(ingest, *streams), sock=listener)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python server.py JOURNAL PORT")
    asyncio.run(main(Ingest(sys.argv[1]), socket.create_server(("127.0.0.1", int(sys.argv[2])))))
