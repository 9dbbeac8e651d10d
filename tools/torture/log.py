"""The log in which a child process notes what it was acknowledged, or has read."""

from __future__ import annotations

import os


class Log:
    """A file that each line reaches with a write of its own: a killed process has written it or not."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def __call__(self, *words: object) -> None:
        os.write(self._fd, " ".join(map(str, words)).encode() + b"\n")
