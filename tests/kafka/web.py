"""Asks a command over HTTP."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from patience import HUNG_SECONDS

PROMPT_SECONDS = 25.0  # an answer must not wait for brokers: one that does takes 30


def answer(port: int, path: str) -> tuple[int, str]:
    """(status, text), 0 and nothing where nobody listens; also how long it took is checked."""
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HUNG_SECONDS) as found:
            status, text = found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    except OSError:
        return 0, ""
    assert time.monotonic() - begun < PROMPT_SECONDS
    return status, text
