"""The console's application: its pages, and the clients that it answers."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

import jlog
from jlog.console import pages, question, state
from jlog.console.assets import SCRIPT, STYLE
from jlog.console.guard import Guard, form_of
from jlog.console.records import page_from, row_of, text_of
from jlog.console.samples import Sampler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator
    from socket import socket

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from jlog.console.samples import Watched

QUIET_SECONDS = 15.0  # after which a connection without records is tried, so that one which is gone is noticed
LOOK_SECONDS = 0.25  # between two events: a browser shows no more
RECORDS = 200  # of an event: of more, the newest
BYTES = 4 << 20
STATEMENT = "SELECT count(*), min(timestamp), max(timestamp)\nFROM journal"


class UnknownJournal(LookupError):
    """A path that is not one of the journals to look at."""


def application(
    find: Callable[[], Iterator[str]], hosts: Collection[str] | None, *, allow_changes: bool = False, token: str | None = None
) -> ASGIApp:
    """find: yields the paths of the journals that may be looked at. hosts, token: as Guard has them."""
    sampler = Sampler(find)
    sampler.start()
    console = Console(sampler, allow_changes)
    routes = [
        Route("/", console.overview),
        Route("/glance", console.glance),
        Route("/records", console.records),
        Route("/tail", console.tail),
        Route("/state", console.state),
        Route("/curves", console.curves),
        Route("/sql", console.sql, methods=["GET", "POST"]),
        Route("/console.css", lambda _: Response(STYLE, media_type="text/css")),
        Route("/console.js", lambda _: Response(SCRIPT, media_type="text/javascript")),
    ]
    if allow_changes:
        routes += [Route("/confirm", console.confirm), Route("/change", console.change, methods=["POST"])]
    return Guard(Starlette(routes=routes, exception_handlers=dict.fromkeys(FAILURES, failed)), hosts, token)


class Console:
    """The pages. One that reads a journal runs in a thread; the others show what the sampler knows, and wait for no disk."""

    def __init__(self, sampler: Sampler, allow_changes: bool) -> None:
        self._sampler = sampler
        self._allow_changes = allow_changes

    def _asked_for(self, path: str) -> Watched:
        found = self._sampler.named(path)
        if found is None:
            raise UnknownJournal(f"{path}: there is no journal")
        if found.is_topic:
            raise UnknownJournal(f"{path}: the console has no pages of a topic; use `jlogtool info` and `jlogtool dump`")
        return found

    async def overview(self, _: Request) -> Response:
        return HTMLResponse(pages.overview(self._sampler.all()))

    async def glance(self, _: Request) -> Response:
        return HTMLResponse(pages.glance(self._sampler.all()))

    def records(self, request: Request) -> Response:
        path, start, grep = (request.query_params.get(name, "") for name in ("path", "start", "grep"))
        page = page_from(self._asked_for(path).path, start or "begin", re.compile(grep.encode()) if grep else None)
        return HTMLResponse(pages.records(path, page, start, grep))

    async def tail(self, request: Request) -> Response:
        watched = await run_in_threadpool(self._asked_for, request.query_params.get("path", ""))
        return StreamingResponse(events(watched.path), media_type="text/event-stream")

    def state(self, request: Request) -> Response:
        fields = request.query_params
        watched = self._asked_for(fields.get("path", ""))
        firsts = {name: int(fields[name]) for name in state.PAGED if fields.get(name, "").isdecimal()}
        return HTMLResponse(state.state(watched, firsts, self._allow_changes))

    def curves(self, request: Request) -> Response:
        return HTMLResponse(state.curves(self._asked_for(request.query_params.get("path", ""))))

    async def sql(self, request: Request) -> Response:
        asks = request.method == "POST"
        fields = await form_of(request) if asks else request.query_params
        path, statement, parse = fields.get("path", ""), fields.get("statement", STATEMENT), fields.get("parse")
        await run_in_threadpool(self._asked_for, path)
        found = None
        if asks:
            sources = question.sources_of(statement, path, [watched.path for watched in self._sampler.all()])
            found = await question.answer(statement, sources, "json" if parse else None)
        return HTMLResponse(pages.sql(path, statement, bool(parse), found))

    def confirm(self, request: Request) -> Response:
        change = state.Change(*(request.query_params.get(name, "") for name in state.CHANGE_FIELDS))
        self._asked_for(change.path)
        return HTMLResponse(state.confirmation(change))

    async def change(self, request: Request) -> Response:
        fields = await form_of(request)
        change = state.Change(*(fields.get(name, "") for name in state.CHANGE_FIELDS))
        await run_in_threadpool(self._asked_for, change.path)
        await run_in_threadpool(change.make)
        return RedirectResponse(state.place_of(change), 303)


FAILURES = (jlog.JournalError, OSError, ValueError, re.error, UnknownJournal)


def failed(_: Request, error: Exception) -> Response:
    return HTMLResponse(pages.failure(str(error)), 404 if isinstance(error, UnknownJournal) else 400)


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
                found = [row_of(record) async for record in first_of(reader)]
                if found:
                    end = journal.next_sequence
                    if end - reader.position > RECORDS:
                        reader.seek(end - RECORDS)
                    found += map(row_of, reader.read(RECORDS, BYTES))
                    yield f"data: {json.dumps([row.cells() for row in found])}\n\n"
                    await asyncio.sleep(LOOK_SECONDS)
                else:
                    yield ": nothing new\n\n"
        except (jlog.JournalError, OSError) as error:
            yield f"data: {json.dumps([['', '', '', text_of(str(error).encode()), '']])}\n\n"


async def first_of(reader: jlog.Reader) -> AsyncIterator[jlog.Record]:
    async for record in reader.follow_async(timeout=QUIET_SECONDS):
        yield record
        return
