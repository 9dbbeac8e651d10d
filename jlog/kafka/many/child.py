"""The process of one mirror or capture. It gets its job through stdin, and reports through the pipe that was its stdout."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace

from jlog.errors import JournalError
from jlog.flow.ends import Lag
from jlog.flow.engine import Flow
from jlog.flow.signals import stopping
from jlog.flow.stats import FlowStats, Lags
from jlog.flow.stop import Stop, Stopped
from jlog.kafka.many.config import Job

PR_SET_PDEATHSIG = 1
REPORT_EVERY = 1.0  # seconds
EVENTS_KEPT = 1_000  # lines, while the supervisor does not read


@dataclass(frozen=True)
class Assignment:
    """The job of a child. `lags`: its reports have the lag too, for which the brokers are asked every few seconds."""

    job: Job
    until_end: bool
    lags: bool
    supervisor: int


@dataclass
class Report:
    """The state of a flow. `events` are the lines since the report before. A report with `ended` is the last one, and `failure`
    is the error that has ended the flow."""

    stats: FlowStats = field(default_factory=FlowStats)
    is_open: bool = False
    was_open: bool = False
    lag: Lag | None = None
    events: list[str] = field(default_factory=list)
    ended: bool = False
    failure: Exception | None = None


def main() -> None:
    given: Assignment = pickle.load(sys.stdin.buffer)
    _end_with(given.supervisor)
    stop = Stop()
    signal.signal(signal.SIGTERM, lambda *_: stop.request())
    reporter = Reporter(given, stop)
    failure = None
    try:
        flow = given.job.open(until_end=given.until_end, on_event=reporter.say, stop=stop)
        reporter.watch(flow)
        with stopping(flow) as end:
            signal.signal(signal.SIGTERM, lambda *_: end())
            flow.run()
    except Stopped:
        pass
    except Exception as error:  # noqa: BLE001 - whatever it was, the supervisor reports it
        failure = _portable(error)
    reporter.end(failure)


def _end_with(supervisor: int) -> None:
    """Lets the kernel kill this process when its supervisor dies, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it has died before the call
        os._exit(1)


def _portable(error: Exception) -> Exception:
    """Returns the error as the supervisor can load it: one of a type that it may not know becomes a JournalError."""
    if type(error).__module__.partition(".")[0] in ("builtins", "jlog"):
        with suppress(Exception):
            found: Exception = pickle.loads(pickle.dumps(error))
            return found
        return JournalError(str(error) or repr(error))
    return JournalError(f"{type(error).__name__}: {error}")


class Reporter:
    """Reports every second, in a thread of its own: the flow never waits for the supervisor."""

    def __init__(self, given: Assignment, stop: Stop) -> None:
        # A function of a transform may print: that goes to stderr, and not between the reports. The copy of the descriptor is
        # not inherited: a program that the function starts must not keep the pipe open.
        self._pipe = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._name = given.job.name
        self._stop = stop
        self._flows: dict[str, Flow] = {}  # the flow by its name, once it is open
        self._lags = Lags(self._flows) if given.lags else None
        self._events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jlog-reports", daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        self._events.append(text)

    def watch(self, flow: Flow) -> None:
        self._flows[self._name] = flow

    def end(self, failure: Exception | None) -> None:
        """Sends the last report."""
        self._ending.set()
        self._thread.join()
        with suppress(BrokenPipeError):
            self._send(Report(ended=True, failure=failure))

    def _run(self) -> None:
        try:
            self._send(Report())
            while not self._ending.wait(REPORT_EVERY):
                self._send(Report())
        except BrokenPipeError:  # the supervisor has given this process up
            self._stop.request()

    def _send(self, report: Report) -> None:
        while self._events:
            report.events.append(self._events.popleft())
        flow = self._flows.get(self._name)
        if flow is not None:
            report.stats = replace(flow.stats)  # a copy: the flow goes on counting
            report.is_open, report.was_open = flow.is_open, flow.was_open
            report.lag = None if self._lags is None else self._lags.known.get(self._name)
        pickle.dump(report, self._pipe)
        self._pipe.flush()
