"""A terminal that is taken over as a whole, and given back however the program ends."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live

from jlog.cli.terminal.output import say_no_more

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from rich.console import RenderableType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
NOTICED = (*ENDING, signal.SIGTSTP, signal.SIGWINCH, signal.SIGCONT)
KEYS = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1bOH": "home",
    b"\x1bOF": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
    b"\t": "tab",
    b" ": "page down",
}


class Screen:
    """Draws, and waits for keys. Signals that end a program are noted in `ended`, so that no exception interrupts a drawing.
    After a resize, or after Ctrl-Z, the screen is drawn again by itself. Used in the main thread only."""

    def __init__(self) -> None:
        self.ended: signal.Signals | None = None
        self._console = Console(force_terminal=True, force_interactive=True, highlight=False)
        self._live: Live | None = None
        self._drawn: Callable[[int, int], RenderableType] | None = None
        self._stop_wanted = False
        self._before: dict[int, Any] = {}

    # --- Taking the terminal, and giving it back ----------------------------------------------------------------------

    def __enter__(self) -> Screen:  # noqa: PYI034
        self._woken, self._wakes = os.pipe()  # noqa: TID251 - __exit__() closes them
        os.set_blocking(self._wakes, False)
        os.set_blocking(self._woken, False)
        self._wakeup_before = signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for number in NOTICED:
            self._before[number] = signal.signal(number, self._notice)
        try:
            self._take()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._give_back()
        finally:
            if self.ended == signal.SIGHUP:  # the end of input may be seen before the signal, which then comes late
                self._before[signal.SIGHUP] = signal.SIG_IGN
            for number, handler in self._before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(self._wakeup_before)
            os.close(self._woken)
            os.close(self._wakes)

    def _take(self) -> None:
        self._modes = termios.tcgetattr(sys.stdin.fileno())
        self._live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        tty.setcbreak(sys.stdin.fileno())
        self._live.start()

    def _give_back(self) -> None:
        """Gives the terminal back, unless it has gone (SIGHUP)."""
        live, self._live = self._live, None
        if live is None:
            return
        try:
            try:
                live.stop()
            except OSError:
                say_no_more()
        finally:
            with suppress(OSError, termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._modes)

    def _notice(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if number in ENDING:
            self.ended = signal.Signals(number)
        elif number == signal.SIGTSTP:
            self._stop_wanted = True

    def _stop(self) -> None:
        """Handles Ctrl-Z: gives the terminal to the shell, and takes it again when the program goes on."""
        self._stop_wanted = False
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        if self.ended is None:
            self._take()

    # --- Using it -----------------------------------------------------------------------------------------------------

    def draw(self, drawn: Callable[[int, int], RenderableType]) -> None:
        """Draws what `drawn` returns for a width and a height, in one write. It is drawn again whenever the terminal
        changes."""
        self._drawn = drawn
        self._console.size = os.get_terminal_size(sys.stdout.fileno())
        if self._live is not None:
            self._live.update(drawn(*self._console.size), refresh=True)

    def wait(self, seconds: float) -> list[str]:
        """Returns keys as soon as there are some; none after so many seconds, or when a signal came."""
        if self.ended is not None:
            return []
        ready, _, _ = select.select([sys.stdin, self._woken], [], [], max(0.0, seconds))
        if self._woken in ready:
            os.read(self._woken, 1024)
            if self._stop_wanted:
                self._stop()
            if self._drawn is not None and self.ended is None:
                self.draw(self._drawn)
        if sys.stdin not in ready or self.ended is not None:
            return []
        typed = os.read(sys.stdin.fileno(), 1024)
        if not typed:  # the terminal has gone
            self.ended = signal.SIGHUP
        return keys_of(typed)


def keys_of(typed: bytes) -> list[str]:
    """Returns the keys in the bytes from a terminal: a name for each special key, else the character."""
    found = []
    while typed:
        sequence = next((sequence for sequence in KEYS if typed.startswith(sequence)), typed[:1])
        found.append(KEYS.get(sequence) or sequence.decode(errors="replace"))
        typed = typed[len(sequence) :]
    return found
