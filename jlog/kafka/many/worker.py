"""A mirror or a capture as its supervisor sees it: its process, the reports of that, and when it is started again."""

from __future__ import annotations

import marshal
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from jlog.errors import JournalError
from jlog.flow.ends import Lag
from jlog.flow.stats import FlowStats
from jlog.flow.stop import Stop
from jlog.kafka.client.errors import may_pass
from jlog.kafka.client.settings import ENVIRONMENT
from jlog.kafka.many.child import Assignment, Report
from jlog.kafka.many.config import Job

PAUSE_SECONDS = 1.0, 30.0  # before a process is started again, at first and at most
DEATHS_IN_A_ROW = 5  # of a flow that has to come to an end; one that follows is started again for ever
SILENT_SECONDS = 10.0  # without a report, after which a process counts as hanging
REAP_SECONDS = 5.0  # a killed process may wait for its disk

# The child has the supervisor's own path for imports, so that it finds the same modules. Until then it imports only what is
# built into the interpreter: a file in the working directory cannot take its place.
BOOT = "import marshal, sys; sys.path[:] = marshal.load(sys.stdin.buffer); from jlog.kafka.many.child import main; main()"


class Worker:
    """Runs a job in a process of its own, and starts it again when it dies, in a thread. Its attributes are those of a flow,
    for metrics: it is not open while the process is dead, or does not report.

    until_end: the job ends; a process that dies again and again is a failure.
    lags: the process looks at the lag every few seconds.
    stop: starts no further process.
    on_event: is called with each line that a person should see.
    """

    def __init__(self, job: Job, *, until_end: bool, lags: bool, stop: Stop, on_event: Callable[[str], None]) -> None:
        self.job = job
        self.failure: Exception | None = None  # the error that ended it for good
        self.is_over = False
        self._until_end = until_end
        self._lags = lags
        self._stop = stop
        self._on_event = on_event
        self._said = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._report = Report()
        self._heard_at = time.monotonic()
        self._in_a_row = 0  # ends of the process without a transaction in between
        self._thread = threading.Thread(target=self._run, name="jlog-mirror", daemon=True)
        self._thread.start()

    # --- Running ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self.is_over:
            how = self._run_process()
            self._in_a_row += 1
            self._judge(how)
            if not self.is_over:
                self._stop.wait(min(PAUSE_SECONDS[0] * 2 ** (self._in_a_row - 1), PAUSE_SECONDS[1]))

    def _run_process(self) -> str:
        """Runs one process up to its end. Returns how it has died; an empty text if it has sent its last report."""
        self._report = Report()
        self._heard_at = time.monotonic()
        try:
            process = _started(self.job.name)
        except OSError as error:  # of too many processes or descriptors: the others go on
            return f"cannot be started: {error}"
        self._process = process
        if self._stop.requested:
            process.terminate()
        assert process.stdin is not None
        assert process.stdout is not None
        given = Assignment(self.job, self._until_end, self._lags, os.getpid())
        with suppress(BrokenPipeError), process.stdin as pipe:
            pipe.write(marshal.dumps(sys.path) + pickle.dumps(given))
        with suppress(EOFError, pickle.UnpicklingError), process.stdout as pipe:  # it was killed, maybe within a report
            while not self._report.ended:
                self._hear(pickle.load(pipe))
        code = process.wait()
        self._process = None
        if self._report.ended:
            return ""
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def _hear(self, report: Report) -> None:
        self._heard_at = time.monotonic()
        self._report = report
        if report.stats.transactions:
            self._in_a_row = 0
        for text in report.events:
            self._say(text)

    def _judge(self, how: str) -> None:
        """Decides what comes after the end of the process."""
        failure = self._report.failure
        if self._stop.requested:
            self.is_over = True
        elif how:
            if self._until_end and self._in_a_row >= DEATHS_IN_A_ROW:
                self._fail(JournalError(f"its process {how}, {self._in_a_row} times in a row"))
            else:
                self._said = ""
                self._say(f"its process {how}; it is started again")
        elif failure is None:
            self.is_over = self._until_end  # otherwise a signal has ended it, and not the supervisor
        elif self._until_end or not may_pass(failure):
            self._fail(failure)
        else:
            self._say(str(failure) or repr(failure))

    def _fail(self, error: Exception) -> None:
        self._say(str(error) or repr(error))
        self.failure = error
        self.is_over = True

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._on_event(f"{self.job.name}: {text}")

    # --- Ending, after the request to stop --------------------------------------------------------------------------

    def terminate(self) -> None:
        """Asks the process to end. It has committed or aborted its transaction when it has ended."""
        process = self._process
        if process is not None:
            process.terminate()

    def finish(self, seconds: float) -> None:
        """Waits for the end, and kills a process that does not end. The next start finds out what that one has committed."""
        self._thread.join(max(0.0, seconds))
        process = self._process
        if process is not None and self._thread.is_alive():
            self._on_event(f"{self.job.name}: its process does not end, and is killed; the next start goes on where it was")
            process.kill()
            self._thread.join(REAP_SECONDS)

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


def _started(name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", BOOT, name],  # the name is for those who list processes
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)},
        start_new_session=True,  # Ctrl-C comes to the supervisor alone
    )
