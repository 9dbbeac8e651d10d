"""Work for a journal in a thread of its own, so that the append or the roll that asks for it does not wait."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from jlog._core.system.notices import warn
from jlog.errors import JournalError, JournalNotFound
from jlog.system.threads import start_thread

FIRST_DELAY_SECONDS, MOST_DELAY_SECONDS = 1.0, 60.0  # after a failure; each delay is twice the one before


class Background:
    """Calls `work` with the path of each journal that asks for it: one call at a time for a journal, again where it asks
    meanwhile, and again after a growing delay where it fails. Nobody waits for a thread: one that is at work when the process
    ends is cut off, as by a kill. A forked process begins without threads."""

    def __init__(self, work: Callable[[str], object]) -> None:
        self._work = work
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._asked: dict[str, threading.Event] = {}  # those for which a thread runs

    def ask(self, path: str) -> None:
        """Returns at once."""
        with self._lock:
            running = self._asked.get(path)
            if running is not None:
                running.set()
                return
            asked = self._asked[path] = threading.Event()
        asked.set()
        try:
            start_thread("jlog-archive", self._run, path, asked)
        except JournalError:  # the process has no room for a thread, or is about to end
            with self._lock:
                del self._asked[path]

    def _run(self, path: str, asked: threading.Event) -> None:
        delay = FIRST_DELAY_SECONDS
        try:
            while self._is_asked(path, asked):
                try:
                    self._work(path)
                    delay = FIRST_DELAY_SECONDS
                except JournalNotFound:
                    continue
                except (JournalError, OSError) as error:
                    if delay == FIRST_DELAY_SECONDS:
                        warn(path, "not archived yet, and tried again from time to time", error)
                    time.sleep(delay)
                    asked.set()
                    delay = min(2 * delay, MOST_DELAY_SECONDS)
        finally:
            with self._lock:
                if self._asked.get(path) is asked:
                    del self._asked[path]

    def _is_asked(self, path: str, asked: threading.Event) -> bool:
        """Says whether to work once more. From the answer no on, the next ask() starts a thread."""
        with self._lock:
            if asked.is_set():
                asked.clear()
                return True
            del self._asked[path]
            return False
