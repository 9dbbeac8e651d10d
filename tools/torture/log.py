"""The log in which a child process notes its acknowledgements and the records that it has read."""

from __future__ import annotations

import os


class Log:
    """A file into which each line goes with one write: a killed process has written the line, or it has not."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def __call__(self, *words: object) -> None:
        os.write(self._fd, " ".join(map(str, words)).encode() + b"\n")
