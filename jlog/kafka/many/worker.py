"""A mirror or a capture as its supervisor sees it: its process, what that reports, and when it is started again."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import IO

from jlog.errors import JournalError
from jlog.flow.ends import Lag
from jlog.flow.stats import FlowStats
from jlog.kafka.client.errors import may_pass
from jlog.kafka.client.settings import ENVIRONMENT
from jlog.kafka.many.child import Assignment
from jlog.kafka.many.config import Job
from jlog.kafka.many.reports import Report, Reports

AGAIN_SECONDS = 5.0  # until a flow is started again that found no broker
DEATH_SECONDS = 1.0, 30.0  # the same for a process that died, at first and at most
DEATHS_IN_A_ROW = 5  # of a flow that has to come to an end; one that follows is started again for ever
SILENT_SECONDS = 10.0  # without a report, after which a process counts as hanging
KILL_SECONDS = 2.0  # from the request to stop
REAP_SECONDS = 5.0  # a killed process may wait for its disk

# The child has the supervisor's own path for imports, so that it finds the same modules. Until then it imports only what is
# built into the interpreter: a file in the working directory cannot take its place.
BOOT = "import marshal, sys; sys.path[:] = marshal.load(sys.stdin.buffer); from jlog.kafka.many.child import main; main()"


class Worker:
    """Runs a job in a process of its own, in turns of poll(). Its attributes are those of a flow, for metrics: it is not open
    while the process is dead, or does not report.

    until_end: the job ends; a process that dies again and again is a failure.
    lags: the process looks at the lag every few seconds.
    on_event: is called with each line that a person should see.
    """

    def __init__(self, job: Job, *, until_end: bool, lags: bool, on_event: Callable[[str], None]) -> None:
        self.job = job
        self.failure: Exception | None = None  # the error that ended it for good
        self.is_over = False
        self._until_end = until_end
        self._lags = lags
        self._on_event = on_event
        self._said = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._reports: Reports | None = None
        self._report = Report()
        self._heard_at = 0.0
        self._start_at = time.monotonic()
        self._deaths = 0  # in a row, without a transaction in between

    # --- Running ----------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Hears what the process has reported, starts it if it is time, and handles its end. Never waits."""
        if self._process is None:
            if not self.is_over and time.monotonic() >= self._start_at:
                self._start()
            return
        self._hear()
        if self._process.poll() is not None:
            self._hear()  # what came between the two calls
            self._ended(self._process.returncode)

    def _start(self) -> None:
        self._report = Report()
        self._heard_at = time.monotonic()
        try:
            self._process, self._pipe, theirs = _started(self.job.name)
        except OSError as error:  # of too many processes or descriptors: the others go on
            self._start_again(f"its process cannot be started: {error}")
            return
        self._reports = Reports(self._pipe)
        given = Assignment(self.job, self._until_end, self._lags, theirs, os.getpid())
        with suppress(BrokenPipeError):  # it has died, which poll() finds
            _send(self._process.stdin, given)

    def _hear(self) -> None:
        assert self._reports is not None, "_start() comes first"
        for report in self._reports.new():
            self._heard_at = time.monotonic()
            self._report = report
            if report.stats.transactions:
                self._deaths = 0
            for text in report.events:
                self._say(text)

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._on_event(f"{self.job.name}: {text}")

    def _ended(self, code: int) -> None:
        self._forget_process()
        last = self._report
        if not last.ended:
            self._died(code)
        elif last.failure is None:
            self.is_over = self._until_end
            self._start_at = time.monotonic() + DEATH_SECONDS[0]  # a signal has ended it, and not the supervisor
        else:
            self._say(str(last.failure) or repr(last.failure))
            if self._until_end or not may_pass(last.failure):
                self._fail(last.failure)
            else:
                self._start_at = time.monotonic() + AGAIN_SECONDS

    def _died(self, code: int) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._start_again(f"its process {how}")

    def _start_again(self, text: str) -> None:
        self._deaths += 1
        if self._until_end and self._deaths >= DEATHS_IN_A_ROW:
            self._fail(JournalError(f"{text}, {self._deaths} times in a row"))
            self._say(str(self.failure))
            return
        wait = min(DEATH_SECONDS[0] * 2 ** (self._deaths - 1), DEATH_SECONDS[1])
        self._start_at = time.monotonic() + wait
        self._said = ""
        self._say(f"{text}; it is started again in {wait:g} s")

    def _fail(self, error: Exception) -> None:
        self.is_over = True
        self.failure = error

    # --- Ending -----------------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def stop(self) -> None:
        """Asks the process to end. It has committed or aborted its transaction when it has ended."""
        self.is_over = True
        if self._process is not None:
            self._process.terminate()

    def kill(self) -> None:
        """Ends a process that does not end by itself. The next start finds out what it has committed."""
        if self._process is not None:
            self._on_event(f"{self.job.name}: its process does not end, and is killed; the next start goes on where it was")
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(REAP_SECONDS)
            self._forget_process()

    def finish(self) -> None:
        """Hears the last reports of a process that was asked to end."""
        if self._process is not None:
            ended = self._process.poll() is not None
            self._hear()
            if ended:
                self._forget_process()

    def _forget_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _close(process.stdin)
            os.close(self._pipe)

    # --- As a flow --------------------------------------------------------------------------------------------------

    @property
    def stats(self) -> FlowStats:
        problem = self._problem()
        return replace(self._report.stats, last_error=problem) if problem else self._report.stats

    @property
    def is_open(self) -> bool:
        return self._report.is_open and not self._problem()

    @property
    def was_open(self) -> bool:
        return self._report.was_open

    def lag(self) -> Lag | None:
        """Returns the lag; None where it is not known now."""
        return None if self._problem() else self._report.lag

    def _problem(self) -> str:
        """Returns why the flow cannot be running; empty where it may be."""
        if self.failure is not None:
            return str(self.failure)
        if self._process is None:
            return "" if self.is_over else self._said or "its process is not started yet"
        silent = time.monotonic() - self._heard_at
        return f"its process has not answered for {silent:.0f} s" if silent > SILENT_SECONDS else ""


def _started(name: str) -> tuple[subprocess.Popen[bytes], int, int]:
    """Starts a process. Returns it, the pipe of its reports, and the number that this pipe's other end has there."""
    ours, theirs = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", BOOT, name],  # the name is for those who list processes
            stdin=subprocess.PIPE,
            pass_fds=[theirs],
            env={name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)},
            start_new_session=True,  # Ctrl-C comes to the supervisor alone
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return process, ours, theirs


def _send(pipe: IO[bytes] | None, given: Assignment) -> None:
    import marshal

    assert pipe is not None, "it is a pipe"
    pipe.write(marshal.dumps(sys.path) + pickle.dumps(given))
    pipe.flush()


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with suppress(BrokenPipeError):
            pipe.close()
