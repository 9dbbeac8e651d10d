"""A mirror, capture or transform in a process, which ends only as docs/kafka-failures.md says, and is then started again."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafka_torture.records import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_torture.cluster import Cluster

TOOL = [sys.executable, "-m", "jlog.cli"]
HUNG_SECONDS = 250.0
START_SECONDS = 180.0  # after which a flow has begun, or has ended
CALM_SECONDS = 120.0  # after which brokers that were away are not a reason any more
FENCED = r"has taken over \(process (\d+)"
REMADE = r"kafka://\S+?/([\w.]+) was deleted and created again"
DELETED = r"kafka://\S+?/([\w.]+) was deleted"
RIGHTS = r"ACLs do not allow it"
LOST = r"kafka://\S+?/([\w.]+): retention has removed offsets (\d+) to (\d+) of partition (\d+)"
AWAY = r"no broker answers|brokers? |asking for|making topic|reading topic|beginning|claiming|listing topics|the settings"


class Range(NamedTuple):
    """Offsets that retention has removed, as a capture reports them."""

    topic: str
    partition: int
    first: int
    last: int


class Flow:
    """command: without options. options: returns those of the next process. rivals: the processes that write to the same topic,
    with the times when they were started; this flow adds its own."""

    def __init__(
        self,
        name: str,
        directory: Path,
        cluster: Cluster,
        command: list[str],
        options: Callable[[], list[str]] = list,
        rivals: dict[int, float] | None = None,
    ) -> None:
        self.name = name
        self.command = command
        self.options = options
        self.may_end: set[str] = set()  # the patterns of the ends for which there is a reason
        self.lost: set[Range] = set()
        self.ends: list[str] = []
        self._log = directory / f"{name}.log"
        self._cluster = cluster
        self._rivals = {} if rivals is None else rivals
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._log_from = 0
        self.last_code = 0
        self.is_paused = False
        self.not_before = 0.0

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself, and was not asked why yet."""
        return self._process is not None and self._process.poll() is not None

    def start(self, *more: str) -> None:
        self._started_at = time.monotonic()
        with open(self._log, "ab") as log:
            self._log_from = log.tell()
            self._process = subprocess.Popen(
                [*TOOL, *self.command, *self.options(), *more], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self._log.parent,
            )  # fmt: skip
        self._rivals[self._process.pid] = self._started_at

    def kill(self) -> None:
        """Kills it. It is not asked why it ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._note_lost()
            self._process, self.is_paused = None, False

    def pause(self) -> None:
        if self.is_running:
            assert self._process is not None
            self._process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        if self._process is not None and self.is_paused:
            self._process.send_signal(signal.SIGCONT)
            self.is_paused = False

    def stop(self) -> None:
        """Ends it by SIGTERM, which it answers with exit code 0, if it has not ended for a good reason before."""
        self.resume()
        self.last_code = 0
        if self._process is None:
            return
        if self.is_running and not self._catches(signal.SIGTERM):
            self.kill()  # Python has only just started, and the signal would kill it as well
            return
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        self.wait()

    def _catches(self, number: signal.Signals) -> bool:
        """Returns whether the process has a handler of this signal."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii", errors="replace")
        caught = int(re.findall(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)[0], 16)
        return bool(caught >> (number - 1) & 1)

    def wait(self) -> int:
        """Waits for the end. Raises Wrong where it does not end, or without a reason."""
        assert self._process is not None
        self.resume()
        try:
            code = self._process.wait(HUNG_SECONDS)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{self.name} does not end; see {self._log}") from None
        self._process, self.last_code = None, code
        self._judge_end(code)
        return code

    def said(self) -> str:
        """Returns what this process has said."""
        with open(self._log, encoding="utf-8", errors="replace") as log:
            log.seek(self._log_from)
            return log.read()

    def _note_lost(self) -> None:
        for topic, first, last, partition in re.findall(LOST + r"[^\n]*going on at", self.said()):
            self.lost.add(Range(topic, int(partition), int(first), int(last)))

    def _judge_end(self, code: int) -> None:
        self._note_lost()
        text = self.said()
        if "Traceback" in text:
            raise Wrong(f"{self.name}: a traceback; see {self._log}")
        if code == 0:
            return
        last = text.strip().rpartition("\n")[2]
        self.ends.append(last)
        if code != 1 or not self._has_reason(last):
            raise Wrong(f"{self.name} ended with {code}, for which there is no reason: {last}; see {self._log}")

    def _has_reason(self, last: str) -> bool:
        if any(re.search(pattern, last) for pattern in self.may_end):
            return True
        fenced = re.search(FENCED, last)
        if fenced:
            # Of two that begin at the same time, the one whose claim the brokers take last wins.
            return self._rivals.get(int(fenced[1]), -math.inf) > self._started_at - START_SECONDS
        ended_at = time.monotonic() - (time.time() - self._log.stat().st_mtime)  # it may have been noticed much later
        begun, calm = ended_at - self._started_at > START_SECONDS, ended_at - self._cluster.troubled_at > CALM_SECONDS
        return bool(re.search(AWAY, last)) and not begun and not calm

    @property
    def last_end(self) -> str:
        return self.ends[-1] if self.ends else ""
