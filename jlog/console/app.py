"""The console's application: its pages, and the clients that it answers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

import jlog
from jlog.console import isolation, pages, sql, state
from jlog.console.assets import SCRIPT, STYLE
from jlog.console.guard import Guard, form_of
from jlog.console.records import Page, text_of
from jlog.console.samples import Sampler

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
    from socket import socket

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from jlog.console.samples import Watched

FOLLOWING = 16  # pages at once, since each has a process
STATEMENT = "SELECT count(*), min(timestamp), max(timestamp)\nFROM journal"


class UnknownJournal(LookupError):
    """A path that is not one of the journals to look at."""


def application(
    places: Sequence[str],
    topics: Sequence[str],
    hosts: Collection[str] | None,
    *,
    allow_changes: bool = False,
    token: str | None = None,
    origin: str | None = None,
) -> ASGIApp:
    """places: directories below which every journal may be looked at. topics: URLs of topics that may be looked at too. hosts,
    token, origin: as Guard has them."""
    sampler = Sampler(places, topics)
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
    return Guard(Starlette(routes=routes, exception_handlers=dict.fromkeys(FAILURES, failed)), hosts, token, origin)


class Console:
    """The pages. One that reads a journal has a process of its own; the others show what the sampler knows, and wait for no
    disk."""

    def __init__(self, sampler: Sampler, allow_changes: bool) -> None:
        self._sampler = sampler
        self._allow_changes = allow_changes
        self._following = 0

    async def _asked_for(self, path: str) -> Watched:
        found = await run_in_threadpool(self._sampler.named, path)
        if found is None:
            raise UnknownJournal(f"{path}: there is no journal")
        return found

    async def overview(self, _: Request) -> Response:
        return HTMLResponse(pages.overview(self._sampler.all()))

    async def glance(self, _: Request) -> Response:
        return HTMLResponse(pages.glance(self._sampler.all()))

    async def records(self, request: Request) -> Response:
        path, start, grep = (request.query_params.get(name, "") for name in ("path", "start", "grep"))
        await self._asked_for(path)
        asked = {"path": path, "start": start, "grep": grep}
        found = await answered(request, isolation.answer("jlog.console.records", path, asked))
        return HTMLResponse(pages.records(path, Page.of(found), start, grep))

    async def tail(self, request: Request) -> Response:
        watched = await self._asked_for(request.query_params.get("path", ""))
        return StreamingResponse(self.events(watched.path), media_type="text/event-stream")

    async def events(self, path: str) -> AsyncIterator[str]:
        """Yields the new records of a journal, as server-sent events, until the browser goes away."""
        if self._following >= FOLLOWING:
            yield event_of(f"{FOLLOWING} pages follow journals already; close one of them")
            return
        self._following += 1
        try:
            async with isolation.process("jlog.console.tail", {"path": path}) as work:
                async for said in isolation.lines(work):
                    if "error" in said:
                        yield event_of(said["error"])
                    else:
                        yield f"data: {json.dumps(said['found'])}\n\n" if said["found"] else ": nothing new\n\n"
        finally:
            self._following -= 1

    async def state(self, request: Request) -> Response:
        fields = request.query_params
        watched = await self._asked_for(fields.get("path", ""))
        firsts = {name: int(fields[name]) for name in state.PAGED if fields.get(name, "").isdecimal()}
        asked = {"path": watched.path, "firsts": firsts, "may_change": self._allow_changes}
        found = await answered(request, isolation.answer("jlog.console.state", watched.path, asked))
        return HTMLResponse(pages.state(watched, found))

    async def curves(self, request: Request) -> Response:
        return HTMLResponse(pages.curves(await self._asked_for(request.query_params.get("path", ""))))

    async def sql(self, request: Request) -> Response:
        asks = request.method == "POST"
        fields = await form_of(request) if asks else request.query_params
        path, statement, parse = fields.get("path", ""), fields.get("statement", STATEMENT), fields.get("parse")
        await self._asked_for(path)
        found = None
        if asks:
            sources = sql.sources_of(statement, path, [watched.path for watched in self._sampler.all()])
            question_asked = {"statement": statement, "sources": sources, "parse": "json" if parse else None}
            try:
                found = await answered(request, isolation.answer("jlog.console.sql", path, question_asked))
            except isolation.Refused as error:
                found = {"error": str(error)}
        return HTMLResponse(pages.sql(path, statement, bool(parse), found))

    async def confirm(self, request: Request) -> Response:
        change = state.Change(*(request.query_params.get(name, "") for name in state.CHANGE_FIELDS))
        await self._asked_for(change.path)
        return HTMLResponse(await run_in_threadpool(state.confirmation, change))

    async def change(self, request: Request) -> Response:
        fields = await form_of(request)
        change = state.Change(*(fields.get(name, "") for name in state.CHANGE_FIELDS))
        await self._asked_for(change.path)
        await run_in_threadpool(change.make)
        return RedirectResponse(state.place_of(change), 303)


async def answered(request: Request, answer: Coroutine[Any, Any, Any]) -> Any:
    """Returns the answer. Ends the work on it, and raises Refused, when the browser has gone away."""
    work, gone = asyncio.ensure_future(answer), asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise isolation.Refused("nobody waits for the answer any more")
    finally:
        work.cancel()
        gone.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)


async def disconnected(request: Request) -> None:
    """Returns when the browser has closed the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


FAILURES = (jlog.JournalError, OSError, ValueError, UnknownJournal, isolation.Refused)


def failed(_: Request, error: Exception) -> Response:
    return HTMLResponse(pages.failure(str(error)), 404 if isinstance(error, UnknownJournal) else 400)


def serve(app: ASGIApp, server: socket) -> None:
    """Serves until SIGTERM or Ctrl-C."""
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1, lifespan="off")
    uvicorn.Server(config).run(sockets=[server])


def event_of(text: str) -> str:
    """Returns a row that says why no records come."""
    return f"data: {json.dumps([['', '', '', text_of(text.encode()), '']])}\n\n"
