"""The jobs: each writes the invoice of an order into a file."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import jlog

FLAKY = {10, 30, 90}  # fail once
FREE = {40, 50}  # fail in release 1
FATAL = {60}  # kill their worker


def write_invoice(folder: Path, release: int, task: jlog.Task) -> None:
    """Writes the file as a whole, over an older one: a job may be done twice."""
    number = int(task.value or b"")
    if number in FLAKY and task.attempt == 1:
        raise ConnectionError("the printer does not answer")
    if number in FREE and release == 1:
        raise ValueError("nothing to pay")
    if number in FATAL:
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does when the memory is full
    draft = folder / f".{number}.{os.getpid()}"
    draft.write_text(f"order {number}, by release {release}\n")
    draft.replace(folder / str(number))
