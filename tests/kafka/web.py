"""Asks a command over HTTP."""

from __future__ import annotations

import urllib.error
import urllib.request

from patience import HUNG_SECONDS


def answer(port: int, path: str) -> tuple[int, str]:
    """(status, text), 0 and nothing where nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=HUNG_SECONDS) as found:
            status, text = found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    except OSError:
        return 0, ""
    return status, text
