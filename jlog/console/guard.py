"""Which requests the console answers: those of its own pages, by its own name or with its token."""

from __future__ import annotations

import hmac
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse

from jlog.console.pages import sign_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES = 64 << 10  # of a form
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # With "no-referrer" a browser would send no origin with a form, and each change would be refused.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets a request through if it names one of `hosts`, comes from this server's own pages, and carries the token.

    So no page of elsewhere reads a journal or changes one through the user's browser, also not under a host name that its owner
    has made lead here. hosts: None for any name, which needs a token. origin: the address of a proxy before this server, as
    browsers see it, such as https://journals.example.org; then only its pages may change something. token: None for a console
    that asks for none.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None, token: str | None, origin: str | None = None) -> None:
        self._app = app
        self._hosts = hosts
        self._origin = origin
        self._token = token
        # A browser keeps this in place of the token. Cookies of one host are shared by all its ports, hence the name.
        self._session = secrets.token_urlsafe(32)
        self._cookie = f"jlog-console-{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((n.lower().encode(), v.encode()) for n, v in HEADERS.items())]
            await send(message)

        request = Request(scope, receive)
        if not self._is_of_this_server(request):
            answer: ASGIApp = PlainTextResponse("another host or origin", 403)
        elif self._has_token(request) or request.url.path == "/console.css":
            answer = self._app
        elif request.method == "POST" and request.url.path == "/token":
            answer = await self._signed_in(request)
        else:
            answer = HTMLResponse(sign_in(), 401)
        await answer(scope, receive, send_with_headers)

    def _is_of_this_server(self, request: Request) -> bool:
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        is_public = self._origin is not None and host == urlsplit(self._origin).netloc
        if self._hosts is not None and host not in self._hosts and not is_public:
            return False
        if origin is None:  # every browser sends one with a form
            return request.method in ("GET", "HEAD")
        if self._origin is not None:  # a proxy may hand on its own name as the host, or that of this server
            return origin == self._origin
        return origin.partition("://")[2] == host

    def _has_token(self, request: Request) -> bool:
        if self._token is None:
            return True
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        cookie = request.cookies.get(self._cookie, "")
        return _same(bearer, self._token) or _same(cookie, self._session)

    async def _signed_in(self, request: Request) -> ASGIApp:
        given = (await form_of(request)).get("token", "")
        if not _same(given, self._token or ""):
            return HTMLResponse(sign_in("That is not the token."), 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", secure=_is_tls(self._origin))
        return answer


def _is_tls(origin: str | None) -> bool:
    return origin is not None and origin.startswith("https:")


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode(errors="replace"))


async def form_of(request: Request) -> dict[str, str]:
    """Returns the fields of a form; none of one that is too large."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES:
            return {}
    fields = parse_qs(body.decode(errors="replace"), keep_blank_values=True, errors="surrogateescape")
    return {name: values[0] for name, values in fields.items()}
