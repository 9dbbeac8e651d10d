"""Runs the real `jlogtool`, or a shell, at a real terminal, and looks at its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyte

from cli.command import COMMAND, HUNG_SECONDS, arguments_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class Terminal:
    """`shown` is every byte that was written to it."""

    def __init__(self, columns: int, lines: int) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.shown = b""
        self._stream = pyte.ByteStream(self.screen)
        self._ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._its = its

    def start(self, command: list[Any], options: dict[str, Any]) -> None:
        self.process = subprocess.Popen(
            command,
            **{"stdin": self._its, "stdout": self._its, "stderr": self._its, **options},
            start_new_session=True,
            preexec_fn=self._control,  # noqa: PLW1509 - one system call, and no thread of pytest's holds a lock of it
        )
        os.close(self._its)

    def _control(self) -> None:
        """In the child: what is typed as Ctrl-C becomes a signal for it."""
        fcntl.ioctl(self._its, termios.TIOCSCTTY, 0)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def _read(self) -> bool:
        """False where nobody writes any more."""
        try:
            piece = os.read(self._ours, 1 << 16)
        except OSError:  # EIO: the other end is closed
            return False
        self.shown += piece
        self._stream.feed(piece)
        return bool(piece)

    def read_until(self, seen: Callable[[str], bool]) -> str:
        """What stands on the screen when `seen` says so."""
        while not seen(self.text):
            assert self._read(), f"it ended, and showed:\n{self.text}"
        return self.text

    def wait(self) -> int:
        """The exit code, when all is read."""
        while self._read():
            continue
        return self.process.wait(HUNG_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def terminal(*arguments: Any, **options: Any) -> AbstractContextManager[Terminal]:
    """Of jlogtool."""
    return terminal_of([*COMMAND, *arguments_of(arguments)], **options)


@contextmanager
def terminal_of(command: list[Any], columns: int = 80, lines: int = 24, **options: Any) -> Iterator[Terminal]:
    """`options` are Popen's: stdout=... is no terminal then."""
    found = Terminal(columns, lines)
    found.start(command, options)
    try:
        yield found
    finally:
        found.close()
