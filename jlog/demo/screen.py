"""The demo's screen: lines that stay, and below them a line that counts, so that it is never silent."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIVE_SECONDS = 0.25
QUIET_SECONDS = 4.0

KILLED, RESUMED, REWOUND = "bold red", "bold green", "bold magenta"


class Screen:
    def __init__(self) -> None:
        self.console: Console = Console(highlight=False, markup=False, emoji=False)

    def say(self, text: str, style: str | None = None) -> None:
        self.console.print(text, soft_wrap=True, style=style)

    @contextmanager
    def counting(self, text: Callable[[], str]) -> Iterator[None]:
        """Shows the text and the seconds until the block ends: at a terminal as one live line, elsewhere as a line now and
        then."""
        began, ended = time.monotonic(), threading.Event()
        with self.console.status("", spinner_style="cyan") as status:

            def count() -> None:
                while not ended.wait(LIVE_SECONDS if self.console.is_terminal else QUIET_SECONDS):
                    line = f"{time.monotonic() - began:3.0f} s  {text()}"
                    if self.console.is_terminal:
                        status.update(line)
                    else:
                        self.say(line)

            counter = threading.Thread(target=count, daemon=True)
            counter.start()
            try:
                yield
            finally:
                ended.set()
                counter.join()
