"""`jlogtool demo`: shows in a minute how jlog works, on real input with real processes, and proves the result."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from rich.console import Console

import jlog
from jlog.demo.fleet import Broken, Fleet
from jlog.demo.sources import NoInput
from jlog.demo.steps import STEPS, Demo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

KEEP = "JLOG_DEMO_DIR"


def run(inputs: list[str], more: Sequence[Callable[[Demo], None]] = ()) -> int:
    """Shows jlog on the lines of the files named, or below the directories named; without any, on the sources of Python's
    standard library. Returns the exit code: 0 only if every acknowledged record is proved to be delivered.

    Works in a temporary directory, which is removed, or in a new one below $JLOG_DEMO_DIR, which is kept. `more` are steps
    that follow those of the demo.
    """
    console = Console(highlight=False, markup=False, emoji=False)
    errors = Console(highlight=False, markup=False, emoji=False, stderr=True, soft_wrap=True)
    try:
        with _ended_tidily(), _directory() as directory, Fleet() as fleet:
            demo = Demo(inputs, directory, fleet, console)
            for step in (*STEPS, *more):
                step(demo)
            if os.environ.get(KEEP):
                demo.say(f"kept: {demo.journal}")
            return 0
    except NoInput as error:
        errors.print(f"demo: {error}")
    except (Broken, jlog.JournalError) as error:
        errors.print(f"demo: FAILED: {error}{_place_of(error)}")
    except OSError as error:
        errors.print(f"demo: {error}{_place_of(error)}")
    except KeyboardInterrupt:
        errors.print("demo: interrupted; its processes have been ended")
        return 128 + signal.SIGINT
    return 1


def _place_of(error: Exception) -> str:
    """Returns where the demo works, if the disk there is full, which any of its processes may have met; else an empty text."""
    if os.strerror(errno.ENOSPC) not in str(error):
        return ""
    kept_in = os.environ.get(KEEP)
    return f"; the demo works below {kept_in or tempfile.gettempdir()}, and {KEEP if kept_in else 'TMPDIR'} names another place"


@contextmanager
def _directory() -> Iterator[str]:
    kept_in = os.environ.get(KEEP)
    if kept_in:
        os.makedirs(kept_in, exist_ok=True)
        yield tempfile.mkdtemp(prefix="jlog-demo-", dir=kept_in)
        return
    with tempfile.TemporaryDirectory(prefix="jlog-demo-") as directory:
        yield directory


@contextmanager
def _ended_tidily() -> Iterator[None]:
    """Lets SIGTERM unwind as Ctrl-C does, so that no process and no file is left."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where no handler can be set
        return
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + number)
