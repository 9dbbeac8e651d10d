"""The console's application: its pages, and the clients that it answers."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

import jlog
from jlog.console import pages
from jlog.console.records import headers_of, page_from, text_of, time_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection
    from socket import socket

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

QUIET_SECONDS = 15.0  # after which a connection without records is tried, so that one which is gone is noticed
LOOK_SECONDS = 0.25  # between two events: a browser shows no more
RECORDS = 200  # of an event: of more, the newest
BYTES = 4 << 20
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Guard:
    """Answers only who asks this server by its own name, from its own pages, and only to look. So no page of elsewhere reads
    a journal through the user's browser, also not by a name that it lets lead here."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin = headers.get(b"origin")
        if headers.get(b"host") not in self._hosts or (origin is not None and origin.partition("://")[2] not in self._hosts):
            await PlainTextResponse("another host or origin", 403)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((n.lower().encode(), v.encode()) for n, v in HEADERS.items())]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def application(find: Callable[[], list[str]], hosts: Collection[str]) -> ASGIApp:
    """find: the paths of the journals that may be looked at. hosts: the names and ports by which this server is asked."""

    def overview(_: Request) -> Response:
        return HTMLResponse(pages.overview(find()))

    def journal(request: Request) -> Response:
        path, start, grep = (request.query_params.get(name, "") for name in ("path", "start", "grep"))
        if path not in find():
            return HTMLResponse(pages.failure(f"{path}: there is no journal"), 404)
        try:
            pattern = re.compile(grep.encode()) if grep else None
            page = page_from(path, start or "begin", pattern)
        except (jlog.JournalError, OSError, ValueError, re.error) as error:
            return HTMLResponse(pages.failure(str(error)), 400)
        return HTMLResponse(pages.records(path, page, start, grep))

    async def tail(request: Request) -> Response:
        path = request.query_params.get("path", "")
        if path not in await run_in_threadpool(find):
            return PlainTextResponse("there is no journal", 404)
        return StreamingResponse(events(path), media_type="text/event-stream")

    routes = [
        Route("/", overview),
        Route("/journal", journal),
        Route("/tail", tail),
        Route("/console.css", lambda _: Response(pages.STYLE, media_type="text/css")),
        Route("/console.js", lambda _: Response(pages.SCRIPT, media_type="text/javascript")),
    ]
    return Guard(Starlette(routes=routes), hosts)


def serve(app: ASGIApp, server: socket) -> None:
    """Serves until SIGTERM or Ctrl-C."""
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="off")
    uvicorn.Server(config).run(sockets=[server])


async def events(path: str) -> AsyncIterator[str]:
    """Yields the new records of a journal, as server-sent events, until the browser goes away."""
    journal = jlog.Journal(path)
    with jlog.Reader(path, start="end") as reader:
        yield ": following\n\n"
        try:
            while True:
                found = [record async for record in first_of(reader)]
                if found:
                    end = journal.next_sequence
                    if end - reader.position > RECORDS:
                        reader.seek(end - RECORDS)
                    found += reader.read(RECORDS, BYTES)
                    yield f"data: {json.dumps([row(record) for record in found])}\n\n"
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    yield ": nothing new\n\n"
        except (jlog.JournalError, OSError) as error:
            yield f"data: {json.dumps([['', '', '', text_of(str(error).encode()), '']])}\n\n"


async def first_of(reader: jlog.Reader) -> AsyncIterator[jlog.Record]:
    async for record in reader.follow_async(timeout=QUIET_SECONDS):
        yield record
        return


def row(record: jlog.Record) -> list[str]:
    key = "" if record.key is None else text_of(record.key)
    return [str(record.sequence), time_of(record), key, text_of(record.value), headers_of(record)]
