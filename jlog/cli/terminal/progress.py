"""Progress of long work on a terminal. Elsewhere nothing is shown or imported."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE = 0.5  # seconds: shorter work shows nothing


def on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def progress_bar(
    label: str, total: int | None, *, in_bytes: bool = True, shown: bool = True
) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with each amount that is done, of `total` bytes or records (None: not known)."""
    if not (shown and on_terminal()):
        yield lambda _: None
        return
    bar = _Bar(label, total, in_bytes)
    try:
        yield bar.advance
    finally:
        bar.close()


@contextmanager
def working(label: str) -> Iterator[None]:
    """Shows that work goes on which cannot tell its progress."""
    if not on_terminal():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield


class _Bar:
    def __init__(self, label: str, total: int | None, in_bytes: bool) -> None:
        self._label = label
        self._total = total
        self._in_bytes = in_bytes
        self._done = 0
        self._start = time.monotonic()
        self._progress: Any = None

    def advance(self, amount: int) -> None:
        self._done += amount
        if self._progress is None:
            if time.monotonic() - self._start < PATIENCE:
                return
            self._open()
        self._progress.update(self._task, completed=self._done)

    def _open(self) -> None:
        from rich import progress
        from rich.console import Console

        self._progress = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(binary_units=True) if self._in_bytes else progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(self._label, total=self._total)
        self._progress.start()

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
