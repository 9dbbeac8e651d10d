"""Runs many mirrors and captures out of one file, each in a process of its own."""

from __future__ import annotations

import ctypes
import marshal
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from jlog.errors import JournalError, JournalMoved, JournalNotFound
from jlog.flow.ends import Lag
from jlog.flow.engine import Flow
from jlog.flow.options import nothing
from jlog.flow.stats import FlowStats, Lags, Watched
from jlog.flow.stop import GRACE_SECONDS, SLICE_SECONDS, Stop, Stopped, stopping
from jlog.kafka.client.errors import may_pass
from jlog.kafka.client.settings import ENVIRONMENT
from jlog.kafka.mirror_file import Job, read_tables
from jlog.kafka.mirrors import Mirror

LOOK_EVERY = 5.0  # seconds between two looks for journals and topics
REPORT_EVERY = 1.0  # seconds between two reports of a process
SILENT_SECONDS = 10.0  # without a report, after which a process counts as hanging
PAUSE_SECONDS = 1.0, 30.0  # before a process is started again, at first and at most
DEATHS_IN_A_ROW = 5  # of a flow that has to come to an end; one that follows is started again for ever
# From the request to stop to a kill, and from that to the end, which may wait for a disk.
ENDING = (signal.SIGTERM, 2.0), (signal.SIGKILL, 5.0)
PACKET_BYTES = 1 << 20
LINE_CHARACTERS = 10_000  # a packet has one line at most, and the socket takes 200 KB
PR_SET_PDEATHSIG = 1

# The child has the supervisor's own path for imports, so that it finds the same modules. Until then it imports only what is
# built into the interpreter: a file in the working directory cannot take its place.
BOOT = (
    "import marshal, posix, sys; sys.path[:] = marshal.loads(posix.read(0, 1 << 20)); "
    "import jlog.kafka.supervisor as supervisor; supervisor.main()"
)


class Mirrors:
    """Runs all mirrors and captures that `config_file` asks for, each in a process of its own; also those of journals and
    topics that come later. One that cannot go on ends alone and stays in `failures`; one that found no broker, or whose process
    died, is started again. `flows` has their counts. All processes end with this one, however it ends.

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
        self._mirrors: dict[str, MirrorProcess] = {}
        self._askers: dict[str, str] = {}  # the table that has asked first, by the name of the job
        self._said: dict[str, str] = {}
        self._said_once: set[tuple[str, str]] = set()
        self._waiting: set[str] = set()  # tables whose brokers are away
        self._looked = False
        self.flows: dict[str, Watched] = {}
        self.failures: dict[str, Exception] = {}

    def jobs(self) -> Iterator[Job]:
        """Yields the mirrors and captures of the journals and topics that exist now."""
        for where, find in self._tables.items():
            yield from find(self._stop, partial(self._say_once, where))

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
                for mirror in [*self._mirrors.values()]:
                    mirror.end(number)
                while any(mirror.process for mirror in [*self._mirrors.values()]) and time.monotonic() < until:
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
        try:
            jobs = self._tables[where](self._stop, partial(self._say_once, where))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other tables are looked at
            self._say(where, str(error))
            self.flows[where] = MirrorState(FlowStats(last_error=str(error)))
            if may_pass(error) and not self._until_end:
                self._waiting.add(where)
            else:
                self.failures[where] = error
            return
        self._waiting.discard(where)
        self.flows.pop(where, None)
        self.failures.pop(where, None)
        for job in jobs:
            if (first := self._askers.setdefault(job.name, where)) != where:
                self._refuse_twice(where, job, first)
            elif job.name not in self._mirrors:
                self._mirrors[job.name] = MirrorProcess(
                    job, self._until_end, self._lags, self._stop, partial(self._say, job.name)
                )

    def _refuse_twice(self, where: str, job: Job, first: str) -> None:
        """Tells that two tables ask for the same, perhaps with other options: the first of them holds."""
        error = ValueError(
            f"{job.name} is asked for by {first} already, and goes on as that says; leave it out in one of the two"
        )
        self._say_once(where, str(error))
        self.failures[where] = error

    def _supervise(self) -> None:
        """Looks at all processes, and then waits a moment. In one thread: the kernel kills a process when the thread ends that
        has started it."""
        for name, mirror in [*self._mirrors.items()]:
            mirror.look()
            self.flows[name] = mirror.state
            if mirror.has_no_journal:  # one that is created there later is mirrored
                del self._mirrors[name], self.flows[name]
            elif mirror.failure is not None:
                self.failures[name] = mirror.failure
        time.sleep(SLICE_SECONDS)

    def _is_over(self) -> bool:
        if not self._looked or not all(mirror.is_over for mirror in [*self._mirrors.values()]):
            return False
        return self._until_end or bool(self.failures and not self._waiting)

    def _say_once(self, where: str, text: str) -> None:
        """Says a line about a table once, such as the one that names a pattern that matches nothing."""
        if (where, text) not in self._said_once:
            self._said_once.add((where, text))
            self._on_event(f"{where}: {text}")

    def _say(self, where: str, text: str, *, again: bool = False) -> None:
        if again or self._said.get(where) != text:
            self._said[where] = text
            self._on_event(f"{where}: {text}")


@dataclass
class MirrorState:
    """The last known state of a flow, for metrics. has_ended: its process ends by itself. failure: what has ended it."""

    stats: FlowStats = field(default_factory=FlowStats)
    is_open: bool = False
    was_open: bool = False
    known_lag: Lag | None = None
    has_ended: bool = False
    failure: Exception | None = None

    def lag(self) -> Lag | None:
        return self.known_lag

    def down(self, problem: str) -> MirrorState:
        """Returns the state without what is not true any more."""
        return replace(self, is_open=False, known_lag=None, stats=replace(self.stats, last_error=problem))


class MirrorProcess:
    """Runs a job in a process of its own, and starts it again when that dies."""

    def __init__(self, job: Job, until_end: bool, lags: bool, stop: Stop, say: Callable[..., None]) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.state: MirrorState = MirrorState().down("its process is not started yet")
        self.failure: Exception | None = None  # the error that ended it for good
        self.is_over: bool = False
        self.has_no_journal: bool = False  # it was moved away or removed
        self._given = job, until_end, lags, os.getpid()
        self._until_end = until_end
        self._stop = stop
        self._say = say
        self._socket: socket.socket | None = None  # to the process: a packet for each report
        self._heard_at = self._start_at = 0.0
        self._in_a_row = 0  # ends of the process without a transaction in between

    def look(self) -> None:
        """Starts the process where it is time, or takes its reports and finds out whether it has ended."""
        if self.process is not None:
            code = self.process.poll()  # first, so that the last report is in the socket if it has ended
            self._hear()
            if code is not None:
                self._ended(f"ended with exit code {code}" if code >= 0 else f"was killed by signal {-code}")
            elif (silent := time.monotonic() - self._heard_at) > SILENT_SECONDS:
                self.state = self.state.down(f"its process has not answered for {silent:.0f} s")
        elif not self.is_over and not self._stop.requested and time.monotonic() >= self._start_at:
            self._start()

    def _start(self) -> None:
        self.state, self._heard_at = MirrorState(), time.monotonic()
        try:
            self._socket, of_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with of_child:
                self.process = subprocess.Popen(
                    [sys.executable, "-c", BOOT, self._given[0].name],  # the name is for those who list processes
                    stdin=of_child.fileno(),
                    stdout=2,  # for a transform that prints
                    env={name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)},
                    start_new_session=True,  # Ctrl-C comes to the supervisor alone
                )
        except OSError as error:  # of too many processes or descriptors: the others go on
            self._ended(f"cannot be started: {error}")
            return
        self._socket.setblocking(False)
        with suppress(BrokenPipeError):
            self._socket.send(marshal.dumps(sys.path))
            self._socket.send(pickle.dumps(self._given))

    def _hear(self) -> None:
        with suppress(BlockingIOError, ConnectionResetError):
            while self._socket is not None and (packet := self._socket.recv(PACKET_BYTES)):
                said = pickle.loads(packet)
                if isinstance(said, str):
                    self._say(said)
                    continue
                self.state, self._heard_at = said, time.monotonic()
                self._in_a_row = 0 if said.stats.transactions else self._in_a_row

    def _ended(self, how: str) -> None:
        """Decides what comes after the end of the process."""
        if self._socket is not None:
            self._socket.close()
        self._socket = self.process = None
        self._in_a_row += 1
        self._start_at = time.monotonic() + min(PAUSE_SECONDS[0] * 2 ** min(self._in_a_row - 1, 9), PAUSE_SECONDS[1])
        failure = self.state.failure
        self.is_over = self._stop.requested
        if self.is_over and (failure is None or may_pass(failure)):
            return
        if not self.state.has_ended:
            if not (self._until_end and self._in_a_row >= DEATHS_IN_A_ROW):
                self._is_down(f"its process {how}; it is started again", again=True)
                return
            failure = JournalError(f"its process {how}, {self._in_a_row} times in a row")
        self.is_over = self._until_end or (failure is not None and not may_pass(failure))
        if failure is not None:
            self._is_down(str(failure) or repr(failure))
            is_gone = self._given[0].flow is Mirror and isinstance(failure, (JournalMoved, JournalNotFound))
            self.has_no_journal = is_gone and not self._until_end
            self.failure = failure if self.is_over and not self.has_no_journal else None

    def _is_down(self, problem: str, *, again: bool = False) -> None:
        self._say(problem, again=again)
        self.state = self.state.down(problem)

    def end(self, number: signal.Signals) -> None:
        """Asks the process to end, or kills it. One that ends by itself has committed or aborted its transaction; what a killed
        one has committed is found out at the next start."""
        if self.process is not None:
            if number == signal.SIGKILL:
                self._say("its process does not end, and is killed; the next start goes on where it was")
            self.process.send_signal(number)


# --- In the process of a mirror -------------------------------------------------------------------------------------


def main() -> None:
    """Runs the job that comes through stdin, and reports every second: in a thread, so that the flow never waits for the
    supervisor."""
    supervisor = socket.socket(fileno=os.dup(0))  # noqa: TID251 - a process that has just begun
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # noqa: TID251 - a program that a transform starts gets nothing of it
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # dies with the supervisor, however that happens
    job, until_end, lags, parent = pickle.loads(supervisor.recv(PACKET_BYTES))
    if os.getppid() != parent:  # it has died before the call
        os._exit(1)
    stop, ending = Stop(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.request())
    flows: dict[str, Flow] = {}
    known = Lags(flows).known if lags else {}

    def tell(said: object, flags: int = socket.MSG_DONTWAIT) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # the supervisor does not read, or has died
            supervisor.send(pickle.dumps(said), flags)

    def now() -> MirrorState:
        said = MirrorState(known_lag=known.get(job.name))
        for flow in flows.values():
            said.stats, said.is_open, said.was_open = replace(flow.stats), flow.is_open, flow.was_open
        said.stats.last_error = said.stats.last_error[:LINE_CHARACTERS]
        return said

    def report() -> None:
        tell(now())
        while not ending.wait(REPORT_EVERY):
            tell(now())

    reporting = threading.Thread(target=report, name="jlog-reports", daemon=True)
    reporting.start()
    failure = None
    try:
        on_event = lambda line: tell(line[:LINE_CHARACTERS])  # noqa: E731
        flow = flows[job.name] = job.open(until_end=until_end, on_event=on_event, stop=stop)
        with stopping(flow) as end:
            signal.signal(signal.SIGTERM, lambda *_: end())
            flow.run()
    except Stopped:
        pass
    except Exception as error:  # noqa: BLE001 - whatever it was, the supervisor reports it
        failure = _portable(error)
    ending.set()
    reporting.join()
    tell(replace(now(), has_ended=True, failure=failure), flags=0)


def _portable(error: Exception) -> Exception:
    """Returns the error as the supervisor can load it: one of a type that it may not know becomes a JournalError."""
    if type(error).__module__.partition(".")[0] in ("builtins", "jlog") and len(str(error)) <= LINE_CHARACTERS:
        with suppress(Exception):
            found: Exception = pickle.loads(pickle.dumps(error))
            return found
    return JournalError(f"{type(error).__name__}: {error}"[:LINE_CHARACTERS])
