"""Progress of long work on a terminal. Elsewhere nothing is shown or imported."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress

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
    began, done = time.monotonic(), 0
    bar: Progress | None = None

    def advance(amount: int) -> None:
        nonlocal done, bar
        done += amount
        if bar is None and time.monotonic() - began >= PATIENCE:
            bar = _bar_of(label, total, in_bytes)
            bar.start()
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def _bar_of(label: str, total: int | None, in_bytes: bool) -> Progress:
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(binary_units=True) if in_bytes else progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(label, total=total)
    return bar


@contextmanager
def working(label: str) -> Iterator[None]:
    """Shows that work goes on which cannot tell its progress."""
    if not on_terminal():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield
