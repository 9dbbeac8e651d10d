"""Runs many mirrors and captures out of one file, each in a process of its own."""

from __future__ import annotations

import base64
import ctypes
import marshal
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from jlog.errors import JournalError
from jlog.flow.ends import Lag
from jlog.flow.engine import Flow
from jlog.flow.options import nothing
from jlog.flow.signals import stopping
from jlog.flow.stats import FlowStats, Lags, Watched
from jlog.flow.stop import GRACE_SECONDS, SLICE_SECONDS, Stop, Stopped
from jlog.kafka.client.errors import may_pass
from jlog.kafka.client.settings import ENVIRONMENT
from jlog.kafka.many.config import Job, read_tables

LOOK_EVERY = 5.0  # seconds between two looks for journals and topics
REPORT_EVERY = 1.0  # seconds between two reports of a process
SILENT_SECONDS = 10.0  # without a report, after which a process counts as hanging
PAUSE_SECONDS = 1.0, 30.0  # before a process is started again, at first and at most
DEATHS_IN_A_ROW = 5  # of a flow that has to come to an end; one that follows is started again for ever
# From the request to stop to a kill, and from that to the end, which may wait for a disk.
ENDING = (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)
EVENTS_KEPT = 1_000  # lines, while the supervisor does not read
PR_SET_PDEATHSIG = 1

# The child has the supervisor's own path for imports, so that it finds the same modules. Until then it imports only what is
# built into the interpreter: a file in the working directory cannot take its place.
BOOT = "import marshal, sys; sys.path[:] = marshal.load(sys.stdin.buffer); from jlog.kafka.many.supervisor import main; main()"


class Mirrors:
    """Runs all mirrors and captures that `config_file` asks for, each in a process of its own; also those of journals and
    topics that come later. One that cannot go on ends alone and stays in `failures`; one that found no broker, or whose process
    died, is started again. `flows` has their counts. All processes end with this one, however it ends. The file::

        [kafka]                              # settings of librdkafka, for all
        "security.protocol" = "SSL"

        [[to-kafka]]
        journals = "/var/lib/journals/*"     # paths and patterns
        url = "kafka://localhost:9092"
        topic = "live.{name}"                # the journal's directory; without it {name}
        key = "header:user"                  # and the other options of Mirror, transform = "module:function"

        [[from-kafka]]
        url = "kafka://localhost:9092"
        topics = ["orders.*", "clicks"]      # names and patterns
        exclude = ["*.test"]                 # patterns of topics to leave out
        journal = "/var/lib/copies/{topic}"  # without {topic} all of them go into one
        writer = { compression = "lz4" }     # options of jlog.Writer

    until_end: each of them ends where its source ended when it began.
    lags: `flows` have their lags too, for which brokers are asked every few seconds.
    on_event: is called with each line that a person should see.

    Raises ValueError for an error in the file, OSError where it cannot be read.
    """

    def __init__(
        self,
        config_file: str | os.PathLike[str],
        *,
        until_end: bool = False,
        lags: bool = False,
        on_event: Callable[[str], None] = nothing,
    ) -> None:
        self._tables = read_tables(config_file)
        self._stop = Stop()
        self._until_end = until_end
        self._lags = lags
        self._on_event = on_event
        self._workers: dict[str, Worker] = {}
        self._said: dict[str, str] = {}
        self._waiting: set[str] = set()  # tables whose brokers are away
        self._looked = False
        self.flows: dict[str, Watched] = {}
        self.failures: dict[str, Exception] = {}

    def jobs(self) -> Iterator[Job]:
        """Yields the mirrors and captures of the journals and topics that exist now."""
        for where, find in self._tables.items():
            yield from find(self._stop, partial(self._say, where))

    def run(self) -> None:
        """Runs until stop(), until every mirror has failed, or with until_end until all have ended."""
        looking = threading.Thread(target=self._look, name="jlog-looks", daemon=True)
        looking.start()
        try:
            while not self._stop.requested and not self._is_over():
                self._supervise()
        finally:
            self._stop.request()
            for number, seconds in ENDING:
                until = time.monotonic() + seconds
                for worker in [*self._workers.values()]:
                    worker.end(number)
                while any(worker.process for worker in [*self._workers.values()]) and time.monotonic() < until:
                    self._supervise()
            looking.join(GRACE_SECONDS)

    def stop(self) -> None:
        """Ends run() within 2 s, from another thread or a signal handler. Each transaction under way is committed if the
        brokers answer in time."""
        self._stop.request()

    def _look(self) -> None:
        """Looks for journals and topics, in a thread: brokers that are away hold up nothing else."""
        with suppress(Stopped):
            while not self._looked or not (self._until_end or self._stop.wait(LOOK_EVERY)):
                for where in self._tables:
                    self._look_for(where)
                self._looked = True

    def _look_for(self, where: str) -> None:
        say = partial(self._say, where)
        try:
            jobs = self._tables[where](self._stop, say)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other tables are looked at
            say(str(error))
            self.flows[where] = Report(FlowStats(last_error=str(error)))
            if may_pass(error) and not self._until_end:
                self._waiting.add(where)
            else:
                self.failures[where] = error
            return
        self._waiting.discard(where)
        self.flows.pop(where, None)
        self.failures.pop(where, None)
        for job in jobs:
            if job.name not in self._workers:
                given = job, self._until_end, self._lags
                self._workers[job.name] = Worker(given, self._stop, partial(self._say, job.name))

    def _supervise(self) -> None:
        """Looks at all processes, and then waits a moment. In one thread: the kernel kills a process when the thread ends that
        has started it."""
        for name, worker in [*self._workers.items()]:
            worker.look()
            self.flows[name] = worker.seen()
            if worker.failure is not None:
                self.failures[name] = worker.failure
        time.sleep(SLICE_SECONDS)

    def _is_over(self) -> bool:
        if not self._looked or not all(worker.is_over for worker in [*self._workers.values()]):
            return False
        return self._until_end or bool(self.failures and not self._waiting)

    def _say(self, where: str, text: str, *, again: bool = False) -> None:
        if again or self._said.get(where) != text:
            self._said[where] = text
            self._on_event(f"{where}: {text}")


@dataclass
class Report:
    """The last known state of a flow, for metrics. `events` are the lines since the report before. A report with `ended` is the
    last one, and `failure` is the error that has ended the flow."""

    stats: FlowStats = field(default_factory=FlowStats)
    is_open: bool = False
    was_open: bool = False
    known_lag: Lag | None = None
    events: list[str] = field(default_factory=list)
    ended: bool = False
    failure: Exception | None = None

    def lag(self) -> Lag | None:
        return self.known_lag


class Worker:
    """Runs a job in a process of its own, and starts it again when that dies.

    given: the job, until_end and lags, for the process.
    """

    def __init__(self, given: tuple[Job, bool, bool], stop: Stop, say: Callable[..., None]) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.failure: Exception | None = None  # the error that ended it for good
        self.is_over = False
        self._given = given
        self._stop = stop
        self._say = say
        self._pipe: int | None = None  # has a line for each report
        self._report = Report()
        self._unread = b""  # the first part of a line
        self._heard_at = self._start_at = 0.0
        self._in_a_row = 0  # ends of the process without a transaction in between
        self._problem = "its process is not started yet"

    def look(self) -> None:
        """Starts the process where it is time, or takes its reports and finds out whether it has ended."""
        if self.process is not None:
            code = self.process.poll()  # first, so that the last report is in the pipe if it has ended
            self._hear()
            if code is not None:
                name = next((one.name for one in signal.Signals if one == -code), f"signal {-code}")
                how = f"was killed by {name}" if code < 0 else f"ended with exit code {code}"
                self._ended("" if self._report.ended else how)
        elif not self.is_over and not self._stop.requested and time.monotonic() >= self._start_at:
            self._start()

    def _start(self) -> None:
        self._report, self._unread, self._heard_at = Report(), b"", time.monotonic()
        try:
            self._pipe, of_child = os.pipe()
            with open(of_child, "wb"):  # closes it here
                self.process = subprocess.Popen(
                    [sys.executable, "-c", BOOT, self._given[0].name],  # the name is for those who list processes
                    stdin=subprocess.PIPE,
                    stdout=2,  # for a transform that prints
                    pass_fds=[of_child],
                    env={name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)},
                    start_new_session=True,  # Ctrl-C comes to the supervisor alone
                )
        except OSError as error:  # of too many processes or descriptors: the others go on
            self._ended(f"cannot be started: {error}")
            return
        os.set_blocking(self._pipe, False)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError), self.process.stdin as pipe:
            pipe.write(marshal.dumps(sys.path) + pickle.dumps((*self._given, os.getpid(), of_child)))

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            while self._pipe is not None and (read := os.read(self._pipe, 1 << 16)):
                *lines, self._unread = (self._unread + read).split(b"\n")
                for line in lines:
                    self._report, self._heard_at = pickle.loads(base64.b64decode(line)), time.monotonic()
                    if self._report.stats.transactions:
                        self._in_a_row = 0
                    for text in self._report.events:
                        self._say(text)

    def _ended(self, how: str) -> None:
        """Decides what comes after the end of the process. how: empty where it has sent its last report."""
        if self._pipe is not None:
            os.close(self._pipe)
        self._pipe = self.process = None
        failure, until_end = self._report.failure, self._given[1]
        self._in_a_row += 1
        self._start_at = time.monotonic() + min(PAUSE_SECONDS[0] * 2 ** (self._in_a_row - 1), PAUSE_SECONDS[1])
        if self._stop.requested:
            self.is_over, self._problem = True, ""
        elif how and not (until_end and self._in_a_row >= DEATHS_IN_A_ROW):
            self._problem = f"its process {how}; it is started again"
            self._say(self._problem, again=True)
        else:
            if how:
                failure = JournalError(f"its process {how}, {self._in_a_row} times in a row")
            self.is_over = until_end or (failure is not None and not may_pass(failure))
            self._problem = "" if failure is None else str(failure) or repr(failure)
            if failure is not None:
                self._say(self._problem)
                self.failure = failure if self.is_over else None

    def end(self, number: signal.Signals) -> None:
        """Asks the process to end, or kills it. One that ends by itself has committed or aborted its transaction; what a killed
        one has committed is found out at the next start."""
        if self.process is not None:
            if number == signal.SIGKILL:
                self._say("its process does not end, and is killed; the next start goes on where it was")
            self.process.send_signal(number)

    def seen(self) -> Report:
        """Returns the last report, without what cannot be true any more."""
        problem, silent = self._problem, time.monotonic() - self._heard_at
        if self.process is not None:
            problem = f"its process has not answered for {silent:.0f} s" if silent > SILENT_SECONDS else ""
        if not problem:
            return self._report
        return replace(self._report, is_open=False, known_lag=None, stats=replace(self._report.stats, last_error=problem))


# --- In the process of a mirror -------------------------------------------------------------------------------------


def main() -> None:
    """Runs the job that comes through stdin, and reports every second: in a thread, so that the flow never waits for the
    supervisor."""
    job, until_end, lags, supervisor, pipe = pickle.load(sys.stdin.buffer)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # dies with the supervisor, however that happens
    if os.getppid() != supervisor:  # it has died before the call
        os._exit(1)
    os.set_inheritable(pipe, False)  # a program that a transform starts must not keep it open
    stop, ending = Stop(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.request())
    flows: dict[str, Flow] = {}
    known = Lags(flows).known if lags else {}
    events: deque[str] = deque(maxlen=EVENTS_KEPT)

    def report() -> None:
        _send(pipe, Report(), flows, known, events)
        while not ending.wait(REPORT_EVERY):
            _send(pipe, Report(), flows, known, events)

    reporting = threading.Thread(target=report, name="jlog-reports", daemon=True)
    reporting.start()
    failure = None
    try:
        flow = flows[job.name] = job.open(until_end=until_end, on_event=events.append, stop=stop)
        with stopping(flow) as end:
            signal.signal(signal.SIGTERM, lambda *_: end())
            flow.run()
    except Stopped:
        pass
    except Exception as error:  # noqa: BLE001 - whatever it was, the supervisor reports it
        failure = _portable(error)
    ending.set()
    reporting.join()
    _send(pipe, Report(ended=True, failure=failure), flows, known, events)


def _send(pipe: int, report: Report, flows: dict[str, Flow], known: dict[str, Lag], events: deque[str]) -> None:
    report.events = [events.popleft() for _ in range(len(events))]
    for name, flow in flows.items():
        report.stats = replace(flow.stats)  # a copy: the flow goes on counting
        report.is_open, report.was_open, report.known_lag = flow.is_open, flow.was_open, known.get(name)
    left = base64.b64encode(pickle.dumps(report)) + b"\n"
    with suppress(BrokenPipeError):  # it dies in a moment, as its supervisor has
        while left:
            left = left[os.write(pipe, left) :]


def _portable(error: Exception) -> Exception:
    """Returns the error as the supervisor can load it: one of a type that it may not know becomes a JournalError."""
    if type(error).__module__.partition(".")[0] not in ("builtins", "jlog"):
        return JournalError(f"{type(error).__name__}: {error}")
    with suppress(Exception):
        found: Exception = pickle.loads(pickle.dumps(error))
        return found
    return JournalError(str(error) or repr(error))
