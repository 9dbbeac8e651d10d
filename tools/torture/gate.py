"""The gate at which a child's threads wait while the parent judges."""

from __future__ import annotations

import threading


class Gate:
    """A gate that each thread passes between two calls, with no call under way."""

    def __init__(self, threads: int) -> None:
        self._changed = threading.Condition()
        self._threads = threads
        self._parked = 0
        self._shut = False
        self.ending = False

    def is_open(self) -> bool:
        """Waits while the gate is shut. Returns False if the child should end."""
        if self._shut:
            with self._changed:
                self._parked += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self._shut)
                self._parked -= 1
        return not self.ending

    def shut(self) -> None:
        """Shuts the gate, and waits until every thread waits there."""
        with self._changed:
            self._shut = True
            self._changed.wait_for(lambda: self._parked == self._threads)

    def open(self) -> None:
        with self._changed:
            self._shut = False
            self._changed.notify_all()

    def end(self) -> None:
        self.ending = True
        self.open()

    def wait_for_all(self) -> None:
        """Waits until every thread has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._threads == 0)

    def left(self) -> None:
        """Counts a thread that has ended."""
        with self._changed:
            self._threads -= 1
            self._changed.notify_all()
