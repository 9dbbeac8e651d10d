"""The test's side of its child processes."""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patience import HUNG_SECONDS, wait_until
from processes.forkserver import Forked
from processes.units import Unit

WORKER = Path(__file__).with_name("worker.py")
LOCK_WORDS = {"append": 128, "write": 304, "sync": 320}  # where they lie in the control page
WAKE_FLAG = 388
SLEEPERS = 1 << 31


class Died(Exception):
    """The child has ended without an answer."""


class Raised(Exception):
    """The exception that a call in the child raised."""

    def __init__(self, kind: str, message: str, errno: int | None, filename: str | None) -> None:
        super().__init__(kind, message)
        self.kind, self.message, self.errno, self.filename = kind, message, errno, filename


def run_within(command: Sequence[str], failpoints: str = "") -> subprocess.Popen[bytes]:
    """Starts a worker through a command that becomes the one whose words follow it."""
    environment = {**os.environ, "JLOG_FAILPOINTS": failpoints}
    return subprocess.Popen(
        [*command, sys.executable, str(WORKER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=environment,
    )


class Child:
    """A worker. `acknowledged` and `records` grow with what it tells, whenever its answer is waited for."""

    def __init__(self, process: Forked | subprocess.Popen[bytes]) -> None:
        self.process = process
        self.acknowledged: list[Unit] = []
        self.records: list[tuple[int, bytes]] = []
        self.told: dict[str, list[Any]] = {}
        self.outcomes: dict[str, str] = {}
        self._rest = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self, verb: str, *arguments: Any) -> None:
        """Does not wait for the answer."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps([verb, arguments]).encode() + b"\n")
        except BrokenPipeError:
            raise Died(f"{verb}: it had died before") from None

    def result(self) -> Any:
        """Returns the result of the call that was started. Raises Died or Raised."""
        while True:
            kind, *content = self._message()
            if kind == "done":
                return content[0]
            if kind == "raised":
                raise Raised(*content)

    def call(self, verb: str, *arguments: Any) -> Any:
        self.start(verb, *arguments)
        return self.result()

    def wait_for(self, kind: str) -> list[Any]:
        """The next message of this kind: "unit" for one more acknowledgement, "record", "following", …"""
        while True:
            found, *content = self._message()
            if found == kind:
                return content
            assert found not in ("done", "raised"), f"{content} came before any {kind}"

    def _message(self) -> list[Any]:
        message: list[Any] = json.loads(self._line())
        kind, *content = message
        if kind == "unit":
            self.acknowledged.append(Unit(*content))
        elif kind == "record":
            self.records.append((content[0], content[1].encode()))
        elif kind == "called":
            self.outcomes[content[0]] = content[1]
        else:
            self.told.pop(kind, None)
            self.told[kind] = content
        return message

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], HUNG_SECONDS)
            if not ready:
                self.kill()
                at = "".join(f", since it said {kind} {content}" for kind, content in [*self.told.items()][-1:])
                raise TimeoutError(f"child {self.pid} has said nothing for {HUNG_SECONDS} s{at}")
            found = os.read(self.process.stdout.fileno(), 1 << 16)
            if not found:
                raise Died(f"child {self.pid} ended with {self.process.wait()}")
            self._rest += found
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    # --- Its end -------------------------------------------------------------------------------------------------

    def dies(self, *call: Any) -> None:
        """Checks that it is killed during this call (or the one that was started)."""
        if call:
            self.start(*call)
        try:
            answer = self.result()
        except Died:
            assert self.process.wait() == -signal.SIGKILL, f"it ended with {self.process.returncode}"
        else:
            raise AssertionError(f"it lived on and answered {answer}")

    def may_die(self, *call: Any) -> bool:
        """Returns whether it was killed during this call: the code may never come to the failpoint."""
        try:
            self.call(*call)
        except Died:
            assert self.process.wait() == -signal.SIGKILL, f"it ended with {self.process.returncode}"
            return True
        return False

    def kill(self) -> None:
        """SIGKILL, and everything that it had told before is read."""
        self.process.kill()
        self.process.wait()
        try:
            while True:
                self._message()
        except Died:
            return

    def end(self) -> None:
        """Its input ends, and so does it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def discard(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    # --- Signals -------------------------------------------------------------------------------------------------

    def is_stopped(self) -> None:
        """Waits until it has stopped at its failpoint."""
        found = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert found is not None
        assert found.si_code == os.CLD_STOPPED, "it has ended"

    def continues(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def goes_on(self) -> Any:
        """Continues it from its failpoint until it has answered. It may stop again: each failpoint counts its own visits."""
        assert self.process.stdout is not None
        guard = time.monotonic() + HUNG_SECONDS
        while True:
            self.continues()
            while os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if b"\n" not in self._rest and not select.select([self.process.stdout], [], [], 0.01)[0]:
                    assert time.monotonic() < guard, "it goes on without an end"
                    continue
                guard = time.monotonic() + HUNG_SECONDS
                kind, *content = self._message()
                if kind == "done":
                    return content[0]
                if kind == "raised":
                    raise Raised(*content)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


def word_of(path: Path, offset: int) -> int:
    with open(path / "precommit", "rb") as file:
        found: int = struct.unpack("<I", os.pread(file.fileno(), 4, offset))[0]
        return found


def lock_word(path: Path, name: str = "append") -> int:
    return word_of(path, LOCK_WORDS[name])


def somebody_waits(path: Path, name: str = "append") -> None:
    """Waits until a process sleeps on the lock word."""
    wait_until(lambda: lock_word(path, name) & SLEEPERS, complaint="nobody came to wait for the lock")


def somebody_follows(path: Path) -> None:
    """Waits until a reader has asked to be woken: it sleeps, or is about to look for the last time before."""
    wait_until(lambda: word_of(path, WAKE_FLAG), complaint="nobody came to wait for records")


def nobody_follows(path: Path) -> None:
    """Forgets who has asked before, and does not wait any more."""
    with open(path / "precommit", "r+b") as file:
        os.pwrite(file.fileno(), bytes(4), WAKE_FLAG)
