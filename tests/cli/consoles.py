"""A console that serves, and requests to it."""

from __future__ import annotations

import re
import subprocess
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.client import HTTPMessage
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from cli.command import COMMAND
from patience import HUNG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HOSTILE = b"<script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
NAME = "it's <b>here</b>"
WRITE = "import jlog, sys\nwith jlog.Writer(sys.argv[1]) as w:\n for n in range(int(sys.argv[2])): w.append(b'line %d' % n)"


@contextmanager
def serving(*arguments: object, listen: str = "127.0.0.1:0", command: Sequence[object] = COMMAND) -> Iterator[str]:
    """Yields the address of a console."""
    with running(*arguments, listen=listen, command=command) as (address, _):
        yield address


@contextmanager
def running(*arguments: object, listen: str = "127.0.0.1:0", command: Sequence[object] = COMMAND) -> Iterator[tuple[str, int]]:
    """Yields the address and the PID of a console."""
    whole = [*map(str, command), "console", "--listen", listen, *map(str, arguments)]
    with subprocess.Popen(whole, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"Serving (http://[\d.]+:\d+)/\n", line)
        assert found, line
        try:
            yield found[1], process.pid
        finally:
            process.terminate()
        assert process.wait(HUNG_SECONDS) in (0, 143, -15)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def ask(url: str, method: str = "GET", data: bytes | None = None, **headers: str) -> tuple[int, HTTPMessage, str]:
    """Returns status, headers and text of the answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, headers=named, method=method, data=data)
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=HUNG_SECONDS) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def post(console: str, page: str, origin: str | None = None, **fields: object) -> tuple[int, HTTPMessage, str]:
    """Sends a form, as one of the console's own pages does."""
    return ask(f"{console}/{page}", "POST", urlencode(fields).encode(), Origin=origin or console)


def page(console: str, journals: Path, name: str = "records", journal: str = NAME, **more: object) -> str:
    return f"{console}/{name}?{urlencode({'path': journals / journal, **more})}"
