"""Work for a journal in a thread of its own, so that the append or the roll that asks for it does not wait."""

from __future__ import annotations

import os
from collections.abc import Callable

from jlog._core.system.notices import warn
from jlog.errors import JournalError, JournalNotFound
from jlog.system.threads import real_sleep, start_thread

FIRST_DELAY_SECONDS, MOST_DELAY_SECONDS = 1.0, 60.0  # after a failure; each delay is twice the one before


class Background:
    """Calls `work` with the path of each journal that asks for it: one call at a time for a journal, again where it asks
    meanwhile, and again after a growing delay where it fails. A forked process begins without threads.

    waited_for: the end of the process waits for a thread that is at work. Otherwise the thread is cut off, as by a kill.
    """

    def __init__(self, name: str, work: Callable[[str], object], *, waited_for: bool) -> None:
        self._name = name
        self._work = work
        self._daemon = not waited_for
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._asked: dict[str, _Asked] = {}  # those for which a thread runs

    def ask(self, path: str) -> bool:
        """Returns at once, and says whether a thread does the work. Takes no lock: a signal's handler may ask too, between any
        two lines."""
        mine = _Asked()
        try:
            asked = self._asked.setdefault(path, mine)
            asked.again = True
            if asked is mine:
                start_thread(self._name, self._run, path, asked, daemon=self._daemon)
        except BaseException as error:
            if self._asked.get(path) is mine and not mine.has_thread:
                self._asked.pop(path, None)
            if not isinstance(error, JournalError):  # else the process has no room for a thread, or is about to end
                raise
            return False
        return True

    def _run(self, path: str, asked: _Asked) -> None:
        asked.has_thread, delay = True, FIRST_DELAY_SECONDS
        try:
            while self._is_asked(path, asked):
                try:
                    self._work(path)
                    delay = FIRST_DELAY_SECONDS
                except JournalNotFound:
                    continue
                except (JournalError, OSError, MemoryError) as error:
                    if delay == FIRST_DELAY_SECONDS:
                        warn(path, "not archived yet, and tried again from time to time", error)
                    real_sleep(delay)
                    asked.again = True
                    delay = min(2 * delay, MOST_DELAY_SECONDS)
        finally:
            if self._asked.get(path) is asked:
                self._asked.pop(path, None)

    def _is_asked(self, path: str, asked: _Asked) -> bool:
        """Says whether to work once more. From the answer no on, the next ask() starts a thread."""
        if not asked.asks():
            self._asked.pop(path, None)
            # An ask that came before the pop has found this thread, and one that came after it starts another.
            if not asked.asks() or self._asked.setdefault(path, asked) is not asked:
                return False
        asked.again = False
        return True


class _Asked:
    """A journal's thread, or one that is about to start."""

    again = False  # whether it was asked for again since it began the present work
    has_thread = False

    def asks(self) -> bool:
        return self.again
