"""Mirrors in processes of their own, by the command line, to be killed, stopped and woken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

TOOL = [sys.executable, "-m", "jlog.cli"]
HUNG_SECONDS = 90.0  # guards against hanging only


class Process:
    """`jlogtool mirror`, or another command, with these arguments."""

    def __init__(self, *arguments: Any, command: str = "mirror", cwd: Any = None) -> None:
        self._process = subprocess.Popen(
            [*TOOL, command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def runs_for(self, seconds: float) -> bool:
        """Lets it run; whether it has not ended by itself."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> tuple[int, str]:
        """By SIGTERM; its exit code and what it said on stderr."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def peak_megabytes(self) -> float:
        """Waits for its end, which is a good one; the most memory that it has had."""
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        assert self.wait() == (0, "")
        return used.ru_maxrss / 1024

    def wait(self) -> tuple[int, str]:
        _, said = self._process.communicate(timeout=HUNG_SECONDS)
        assert b"Traceback" not in said, said.decode()
        return self._process.returncode, said.decode()


def run_to_end(*arguments: Any) -> None:
    code, said = Process(*arguments, "--until-end").wait()
    assert (code, said) == (0, ""), said


def discard(processes: Sequence[Process]) -> None:
    for process in processes:
        if process.is_running:
            process.kill()
