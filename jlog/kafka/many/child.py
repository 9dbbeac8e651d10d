"""The process of one mirror or capture. It gets its job through stdin, and reports to its supervisor through a pipe."""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import sys
import threading
from collections import deque
from dataclasses import dataclass, replace

from jlog.flow.engine import Flow
from jlog.flow.lags import Lags
from jlog.flow.signals import stopping
from jlog.flow.stop import GRACE_SECONDS, Stop, Stopped
from jlog.kafka.many.config import Job
from jlog.kafka.many.reports import Report, portable, send

PR_SET_PDEATHSIG = 1
REPORT_EVERY = 1.0  # seconds
EVENTS_KEPT = 1_000  # lines, while the supervisor does not read
LAST_SECONDS = 1.0  # in which the last report is written


@dataclass(frozen=True)
class Assignment:
    """What the supervisor tells a child. `reports` is the descriptor of the pipe for reports, and `lags` says whether they tell
    the lag too, for which the brokers are asked every few seconds."""

    job: Job
    until_end: bool
    lags: bool
    reports: int
    supervisor: int


def main() -> None:
    given: Assignment = pickle.load(sys.stdin.buffer)
    os.set_inheritable(given.reports, False)  # a program that a transform starts must not keep the pipe open
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
    except Exception as error:  # noqa: BLE001 - whatever it was, the supervisor tells it
        failure = portable(error)
    reporter.end(failure)


def _end_with(supervisor: int) -> None:
    """Makes the kernel kill this process when its supervisor dies, however that happens."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:  # it has died before the call
        os._exit(1)


class Reporter:
    """Reports every second, in a thread of its own: the flow never waits for the supervisor."""

    def __init__(self, given: Assignment, stop: Stop) -> None:
        self._fd = given.reports
        self._name = given.job.name
        self._stop = stop
        self._flows: dict[str, Flow] = {}  # the flow by its name, once it is made
        self._lags = Lags(self._flows) if given.lags else None
        self._events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._last: Report | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="jlog-reports", daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        self._events.append(text)

    def watch(self, flow: Flow) -> None:
        self._flows[self._name] = flow

    def end(self, failure: Exception | None) -> None:
        """Sends the last report. Gives up where the supervisor does not read it."""
        if self._lags is not None:
            self._lags.close()
        self._last = Report(ended=True, failure=failure)
        self._ending.set()
        self._thread.join(LAST_SECONDS)

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                send(self._fd, self._now(Report()))
                self._ending.wait(REPORT_EVERY)
                self._end_without_supervisor()
            assert self._last is not None, "end() has set it"
            send(self._fd, self._now(self._last))
        except BrokenPipeError:
            self._stop.request()

    def _now(self, report: Report) -> Report:
        events = []
        while self._events:
            events.append(self._events.popleft())
        flow = self._flows.get(self._name)
        if flow is None:
            return replace(report, events=events)
        lag = None if self._lags is None else self._lags.known.get(self._name)
        stats = replace(flow.stats)  # a copy: the flow goes on counting
        return replace(report, stats=stats, is_open=flow.is_open, was_open=flow.was_open, lag=lag, events=events)

    def _end_without_supervisor(self) -> None:
        """Ends this process where the supervisor has closed its end of stdin: it is gone, or it gives this child up."""
        if select.select([0], [], [], 0)[0] and not self._stop.requested:
            self._stop.request()
            threading.Timer(2 * GRACE_SECONDS, os._exit, [1]).start()
