"""`jlogtool demo`: shows in a minute how jlog works, on real input with real processes, and proves the result."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

import jlog
from jlog.demo.fleet import Broken, Fleet
from jlog.demo.input import NoInput
from jlog.demo.screen import Screen
from jlog.demo.steps import LAST_STEPS, SCRATCH, STEPS, Demo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

KEEP = "JLOG_DEMO_DIR"


def run(inputs: list[str], more: Sequence[Callable[[Demo], None]] = ()) -> int:
    """Shows jlog on the lines of the files named, or below the directories named; without any, on the sources of Python's
    standard library. Returns the exit code: 0 only if every acknowledged record is proved to be delivered.

    Works in a new directory below $JLOG_DEMO_DIR, or else below the temporary directory. The journal stays there, unless the
    demo fails without $JLOG_DEMO_DIR. `more` are steps that follow those which prove the result.
    """
    try:
        with _directory() as directory, Fleet() as fleet:
            demo = Demo(inputs, directory, fleet, Screen())
            with demo.screen.counting(demo.progress_text):
                for step in (*STEPS, *more, *LAST_STEPS):
                    step(demo)
            return 0
    except (NoInput, Broken, jlog.JournalError, OSError) as error:
        failed = "FAILED: " if isinstance(error, (Broken, jlog.JournalError)) else ""
        click.echo(f"demo: {failed}{error}{_place_of(error)}", err=True)
        return 1


def _place_of(error: Exception) -> str:
    """Returns where the demo works, if the disk there is full, which any of its processes may have met; else an empty text."""
    if os.strerror(errno.ENOSPC) not in str(error):
        return ""
    kept_in = os.environ.get(KEEP)
    return f"; the demo works below {kept_in or tempfile.gettempdir()}, and {KEEP if kept_in else 'TMPDIR'} names another place"


@contextmanager
def _directory() -> Iterator[str]:
    kept_in = os.environ.get(KEEP) or None
    if kept_in:
        os.makedirs(kept_in, exist_ok=True)
    directory = tempfile.mkdtemp(prefix="jlog-demo-", dir=kept_in)
    try:
        yield directory
    except BaseException:
        if not kept_in:
            shutil.rmtree(directory)
        raise
    shutil.rmtree(os.path.join(directory, SCRATCH))
