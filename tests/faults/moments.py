"""A signal's handler that raises, at each moment at which CPython would run one between two steps of Python code.

CPython looks for signals where a function begins, where a loop turns back, and after each call. A trace function raises there,
in place of a handler, so that every moment can be tried, one after the other. It counts those in jlog's frames, and in
contextlib's.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import os
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

import jlog

PACKAGE = os.path.dirname(os.path.abspath(jlog.__file__)) + os.sep
LOOKS = tuple(
    code for name, code in dis.opmap.items() if name.startswith(("CALL", "RESUME", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "SEND"))
)
HANDLER = dis.opmap.get("PUSH_EXC_INFO")  # follows a call that has raised: CPython does not look between them
BELOW_LOOP = ("_wake", "wake")  # an event loop logs what these raise, and goes on
Result = TypeVar("Result")


class Stopped(BaseException):
    """The exception that the handler raises."""


class Moments:
    """Raises Stopped at the `at`-th moment after begin(), or calls `handler` in its place; with 0 it only counts the moments.
    `struck` says where it was."""

    def __init__(self, at: int = 0, handler: Callable[[], object] | None = None) -> None:
        self.at = at
        self.handler = handler
        self.count = 0
        self.struck: str | None = None

    def begin(self) -> None:
        gc.disable()  # what it frees, left there by earlier moments, would have moments of its own
        sys.settrace(self._called)

    def end(self) -> None:
        sys.settrace(None)
        gc.enable()

    def during(self, call: Callable[[], Result]) -> Result:
        self.begin()
        try:
            return call()
        finally:
            self.end()

    def _called(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_filename != contextlib.__file__:
            return None
        if frame.f_code.co_name in BELOW_LOOP:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        last = 0

        def step(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
            nonlocal last
            if event == "opcode":
                now = opcode(frame.f_code, frame.f_lasti)
                if last in LOOKS and now != HANDLER:
                    self._pass(frame)
                last = now
            return step

        self._pass(frame)
        return step

    def _pass(self, frame: FrameType) -> None:
        self.count += 1
        if self.count == self.at:
            self.struck = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
            if self.handler is None:
                raise Stopped(self.struck)
            self.end()
            self.handler()


def opcode(code: CodeType, at: int) -> int:
    return code.co_code[at]
