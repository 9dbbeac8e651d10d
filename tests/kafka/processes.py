"""Mirrors in processes of their own, by the command line, to be killed, stopped and woken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import jlog
from jlog.kafka import positions
from kafka.witness import numbered
from patience import HUNG_SECONDS

TOOL = [sys.executable, "-m", "jlog.cli"]
PATIENT = f"""
import signal
from jlog.cli.tool import main
from jlog.kafka import supervisor

supervisor.ENDING = ((signal.SIGTERM, {HUNG_SECONDS}),)
main()
"""


class Process:
    """`jlogtool mirror`, or another command, with these arguments. patient: `mirror run` kills no process that ends too late,
    as on a busy machine."""

    def __init__(self, *arguments: Any, command: str = "mirror", cwd: Any = None, patient: bool = False) -> None:
        tool = [sys.executable, "-c", PATIENT] if patient else TOOL
        self._process = subprocess.Popen(
            [*tool, command, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

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

    def close(self) -> None:
        """Closes the pipes of one that has ended."""
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def pause(self) -> None:
        """Returns once it has stopped."""
        self._process.send_signal(signal.SIGSTOP)
        found = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert found is not None
        assert found.si_code == os.CLD_STOPPED, "it has ended"

    def pause_within(self, left: Callable[[], int], more: Callable[[], None], *, at_least: int = 1) -> None:
        """Stops it while `left()` says that it has at least so many records to move. A busy machine may wake the test late:
        where too few are left, the process goes on, gets `more()`, and is stopped again."""
        self.pause()
        while left() < at_least:
            self.resume()
            more()
            self.pause()

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def end(self) -> tuple[int, str]:
        """Ends it by SIGTERM, which a paused one gets when it goes on. Returns its exit code and its lines on stderr."""
        self._process.send_signal(signal.SIGTERM)
        self.resume()
        return self.wait()

    def peak_megabytes(self) -> float:
        """Waits for its end, which is a good one; the most memory that it has had. (What wait4() tells begins with that of
        the process that it was forked from.)"""
        peak = 0
        while self.runs_for(0.05):
            with open(f"/proc/{self._process.pid}/status") as status:
                peak = max([peak, *(int(line.split()[1]) for line in status if line.startswith("VmHWM"))])
        ended = self.wait()
        assert ended == (0, ""), ended
        return peak / 1024

    def wait(self, seconds: float = HUNG_SECONDS) -> tuple[int, str]:
        _, said = self._process.communicate(timeout=seconds)
        assert b"Traceback" not in said, said.decode()
        return self._process.returncode, said.decode()


def run_to_end(*arguments: Any) -> None:
    code, said = Process(*arguments, "--until-end").wait()
    assert (code, said) == (0, ""), said


def discard(processes: Sequence[Process]) -> None:
    for process in processes:
        if process.is_running:
            process.kill()
        process.close()


# --- Journals that are moved ----------------------------------------------------------------------------------------


def fill(journal: Any, records: int, first: int = 0) -> None:
    with jlog.Writer(journal) as writer:
        for at in range(first, first + records, 1000):
            writer.extend(numbered(min(1000, first + records - at), at))


@pytest.fixture(name="journal")
def journal_of_ten(tmp_path: Path) -> Path:
    """A journal of ten records."""
    fill(tmp_path / "journal", 10)
    return tmp_path / "journal"


def position(journal: Any) -> int:
    """The sequence of the next record to be mirrored, as the last transaction has left it."""
    return max((at.sequence for at in jlog.Journal(journal).subscribers().values()), default=0)


def not_mirrored(journal: Any) -> int:
    return captured(journal) - position(journal)


def captured(journal: Any) -> int:
    """The number of records in the journal, which may not have been created yet."""
    try:
        return len(jlog.Journal(journal))
    except jlog.JournalNotFound:
        return 0


def stored(url: str, journal: Any) -> dict[str, int]:
    """The position of each part of a source of topics in a journal, which may not have been created yet."""
    try:
        return {row.part: row.position for row in positions(url, journal)}
    except jlog.JournalNotFound:
        return {}


@contextmanager
def running(flow: Any) -> Iterator[None]:
    """Runs it in a thread, and stops it at the end."""
    thread = threading.Thread(target=flow.run)
    thread.start()
    try:
        yield
    finally:
        flow.stop()
        thread.join()
