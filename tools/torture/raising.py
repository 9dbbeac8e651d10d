"""A signal's handler that raises in the calls of a child: at any moment of them, also where they wait."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from typing import TYPE_CHECKING, TypeVar

import jlog
from torture.records import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random
    from types import FrameType

    from torture.log import Log

PACKAGE = os.path.dirname(os.path.abspath(jlog.__file__)) + os.sep
COMPILED = "jlog/_core/"  # a compiled frame names its source relative to the repository
SECONDS = (1e-5, 1e-4, 1e-3, 0.02)  # from the call's begin to the signal, at most
Result = TypeVar("Result")


class Interrupted(BaseException):
    """The exception of the handler."""


class Raising:
    """Makes the calls of the main thread, and interrupts some of them, with a line `i` for each in the log. Without `chance` it
    makes them and does nothing else."""

    def __init__(self, chance: Random | None, log: Log) -> None:
        self._chance, self._log = chance, log
        self._within = False
        if chance is not None:
            signal.signal(signal.SIGALRM, self._raise)

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        if self._within:
            self._within = False
            raise Interrupted

    def call(self, function: Callable[[], Result]) -> Result:
        if self._chance is None:
            return function()
        if self._chance.random() < 0.5:
            signal.setitimer(signal.ITIMER_REAL, self._chance.uniform(1e-6, self._chance.choice(SECONDS)))
        try:
            self._within = True
            return function()
        except Interrupted:
            self._log("i")
            raise
        finally:
            self._within = False

    def next_of(self, reader: jlog.Reader, step: Callable[[], Result]) -> Result | None:
        """Makes a call that reads. Where it is interrupted, the records come again: returns None, and the position is where it
        was. The caller's own line may be interrupted after the call, and has to go back itself."""
        before = reader.position
        try:
            return self.call(step)
        except Interrupted as error:
            frames = traceback.extract_tb(error.__traceback__)
            place = frames[-2]  # the last frame is the handler's
        gc.collect()
        within = place.filename.startswith((PACKAGE, COMPILED))
        if within and reader.position != before:
            raise Wrong(f"interrupted in {place.filename}:{place.lineno}, it moved from {before} to {reader.position}")
        if not within:
            reader.seek(before)
        return None
