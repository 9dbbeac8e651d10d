"""Runs the real `jlogtool`, or a shell, at a real terminal, and looks at its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyte

from cli.command import COMMAND, HUNG_SECONDS, arguments_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


KEYS = {
    "up": "\x1b[A",
    "down": "\x1b[B",
    "page up": "\x1b[5~",
    "page down": "\x1b[6~",
    "home": "\x1b[H",
    "end": "\x1b[F",
}


class Terminal:
    """`shown` is every byte that was written to it."""

    def __init__(self, columns: int, lines: int) -> None:
        self.screen = pyte.Screen(columns, lines)
        self.shown = b""
        self._stream = pyte.ByteStream(self.screen)
        self._ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._its = its
        self._modes = termios.tcgetattr(its)

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

    # --- What it shows --------------------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    def words_of(self, text: str) -> list[str]:
        """Of the first line that contains it; none without one."""
        return next((line.split() for line in self.lines if text in line), [])

    def _read(self, seconds: float | None = None) -> bool:
        """False where nobody writes any more."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return True
        try:
            piece = os.read(self._ours, 1 << 16)
        except OSError:  # EIO: the other end is closed
            return False
        self.shown += piece
        self._stream.feed(piece)
        return bool(piece)

    def read_until(self, seen: Callable[[str], bool]) -> str:
        """The text on the screen when `seen` says so."""
        while not seen(self.text):
            assert self._read(), f"it ended, and showed:\n{self.text}"
        return self.text

    def until(self, holds: Callable[[], Any], meanwhile: Callable[[], Any] = lambda: None) -> None:
        """Reads until it holds, doing something meanwhile."""
        guard = time.monotonic() + HUNG_SECONDS
        while not holds():
            assert time.monotonic() < guard, f"it still shows:\n{self.text}"
            meanwhile()
            assert self._read(0.05) or holds(), f"it ended, and showed:\n{self.text}"

    def shows(self, text: str) -> None:
        self.until(lambda: text in self.text)

    # --- What is done to it ---------------------------------------------------------------------------------------------

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def press(self, *keys: str) -> None:
        """Characters, and special keys by name."""
        for key in keys:
            self.type(KEYS.get(key, key).encode())

    def resize(self, columns: int, lines: int) -> None:
        """The program is told, as by a window."""
        self.screen.resize(lines, columns)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def hang_up(self) -> None:
        """It goes away under the program."""
        os.close(self._ours)
        self._ours = -1

    # --- The end of the program -----------------------------------------------------------------------------------------

    def is_stopped(self) -> None:
        """Waits until it has stopped itself."""
        guard = time.monotonic() + HUNG_SECONDS
        while os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is None:
            assert time.monotonic() < guard, f"it goes on, and shows:\n{self.text}"
            self._read(0.05)
        self._read(0)

    @property
    def is_given_back(self) -> bool:
        """The modes are as they were, the other screen is left, and the cursor is seen."""
        left = self.shown.rfind(b"\x1b[?1049l") > self.shown.rfind(b"\x1b[?1049h")
        seen = self.shown.rfind(b"\x1b[?25h") > self.shown.rfind(b"\x1b[?25l")
        return left and seen and termios.tcgetattr(self._ours) == self._modes

    def wait(self) -> int:
        """The exit code, when all is read."""
        while self._ours >= 0 and self._read():
            continue
        return self.process.wait(HUNG_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self._ours >= 0:
            self.hang_up()


def terminal(*arguments: Any, **options: Any) -> AbstractContextManager[Terminal]:
    """Of jlogtool."""
    return terminal_of([*COMMAND, *arguments_of(arguments)], **options)


@contextmanager
def terminal_of(command: list[Any], columns: int = 80, lines: int = 24, **options: Any) -> Iterator[Terminal]:
    """`options` are Popen's: stdout=... is not a terminal then."""
    found = Terminal(columns, lines)
    found.start(command, options)
    try:
        yield found
    finally:
        found.close()
