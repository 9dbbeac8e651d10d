"""Calls of a child that are cut off: by a signal's handler that raises, at any moment and also where they wait, or by an
allocation that fails."""

from __future__ import annotations

import gc
import os
import signal
import traceback
from typing import TYPE_CHECKING, TypeVar

import jlog
from faults import shim
from torture.records import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from types import FrameType

    from torture.log import Log

PACKAGE = os.path.dirname(os.path.abspath(jlog.__file__)) + os.sep
COMPILED = "jlog/_core/"  # a compiled frame names its source relative to the repository
SECONDS = (1e-5, 1e-4, 1e-3, 0.02)  # from the call's begin to the signal, at most
ALLOCATIONS_POWER = 11  # of two: an append makes a dozen, and opening a journal some thousands
FAILING = (1, 1, 10, 1000)  # allocations, one after the other
Result = TypeVar("Result")


class Interrupted(BaseException):
    """The exception of the handler."""


class Starved(Interrupted):
    """Stands for the exception of a call that had no memory."""


class Raising:
    """Makes the calls of the main thread, and cuts some of them off, with a line `i` (a signal) or `s` (no memory) for each in
    the log. Without `chance` it makes them and does nothing else."""

    def __init__(self, chance: Random | None, log: Log, without: Sequence[str] = ()) -> None:
        self._chance, self._log = chance, log
        self._starves = shim.loaded() and "memory" not in without
        self._within = False
        if chance is not None:
            signal.signal(signal.SIGALRM, self._raise)
            if self._starves:
                shim.spare_thread()

    def _raise(self, _number: int, _frame: FrameType | None) -> None:
        if self._within:
            self._within = False
            raise Interrupted

    def call(self, function: Callable[[], Result], *, starves: bool = True) -> Result:
        """starves: whether it may have no memory."""
        chance = self._chance
        if chance is None:
            return function()
        if self._starves and chance.random() < 0.02:  # of the library's own threads, at some time
            shim.arm_memory_of_others(self._at(chance), chance.choice(FAILING))
        if self._starves and starves and chance.random() < 0.3:
            return self._call_without_memory(function, chance)
        if chance.random() < 0.5:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, chance.choice(SECONDS)))
        try:
            self._within = True
            return function()
        except Interrupted:
            self._log("i")
            raise
        finally:
            self._within = False

    @staticmethod
    def _at(chance: Random) -> int:
        return int(2 ** chance.uniform(0, ALLOCATIONS_POWER))

    def _call_without_memory(self, function: Callable[[], Result], chance: Random) -> Result:
        """Raises Starved for an exception that only says that there is no memory. Other errors and results stay as they are."""
        at, count = self._at(chance), chance.choice(FAILING)
        signal.setitimer(signal.ITIMER_REAL, 0)  # a handler without memory would raise where nothing expects it
        try:
            try:
                shim.arm_memory(at, count)
                return function()
            finally:
                shim.end_starving()
        except (MemoryError, RuntimeError, SystemError) as error:
            if not shim.is_pythons_own(error):
                raise
        self._log("s")
        raise Starved

    def next_of(self, reader: jlog.Reader, step: Callable[[], Result]) -> Result | None:
        """Makes a call that reads. Where it is cut off, the records come again: returns None, and the position is where it
        was. The caller's own line may be interrupted after the call, and has to go back itself."""
        before = reader.position
        try:
            return self.call(step)
        except Starved:
            within, where = True, "no memory"
        except Interrupted as error:
            frames = traceback.extract_tb(error.__traceback__)
            place = frames[-2]  # the last frame is the handler's
            within, where = place.filename.startswith((PACKAGE, COMPILED)), f"{place.filename}:{place.lineno}"
        gc.collect()
        if within and reader.position != before:
            raise Wrong(f"cut off ({where}), it moved from {before} to {reader.position}")
        if not within:
            reader.seek(before)
        return None
