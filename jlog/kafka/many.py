"""Runs many mirrors and captures out of one file, each in a process of its own."""

from __future__ import annotations

import ctypes
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

from jlog.errors import JournalError
from jlog.flow.ends import Lag
from jlog.flow.engine import Flow
from jlog.flow.options import nothing
from jlog.flow.signals import stopping
from jlog.flow.stats import FlowStats, Lags
from jlog.flow.stop import SLICE_SECONDS, Stop, Stopped
from jlog.kafka.client.errors import may_pass
from jlog.kafka.client.settings import ENVIRONMENT
from jlog.kafka.mirror_file import Job, read_tables

LOOK_EVERY = 5.0  # seconds between two looks for journals and topics
REPORT_EVERY = 1.0  # seconds between two reports of a process
SILENT_SECONDS = 10.0  # without a report, after which a process counts as hanging
PAUSE_SECONDS = 1.0, 30.0  # before a process is started again, at first and at most
DEATHS_IN_A_ROW = 5  # of a flow that has to come to an end; one that follows is started again for ever
END_SECONDS, KILL_SECONDS = 2.0, 5.0  # from the request to stop to a kill, and from that to the end, which may wait for a disk
PACKET_BYTES = 1 << 20
LINE_CHARACTERS = 10_000  # a packet has one line at most, and the socket takes 200 KB
PR_SET_PDEATHSIG = 1

# The process has the supervisor's own path for imports, so that it finds the same modules. Until then it imports only what is
# built into the interpreter: a file in the working directory cannot take its place.
BOOT = "import sys; sys.path[:] = sys.argv[2:]; from jlog.kafka.many import main; main()"


@dataclass
class MirrorState:
    """A report of a mirror's process, for metrics. has_ended: the process ends by itself. failure: what has ended it."""

    stats: FlowStats = field(default_factory=FlowStats)
    is_open: bool = False
    known_lag: Lag | None = None
    has_ended: bool = False
    failure: Exception | None = None
    reported_at: float = field(default_factory=time.monotonic)  # one clock for all processes
    was_open = True  # lag() may be called

    def lag(self) -> Lag | None:
        return self.known_lag

    def down(self, problem: str) -> MirrorState:
        """Returns the state without what is not true any more."""
        return replace(self, is_open=False, known_lag=None, stats=replace(self.stats, last_error=problem))


class Mirrors:
    """Runs all mirrors and captures that `config_file` asks for, each in a process of its own; also those of journals and
    topics that come later. One that cannot go on ends alone and stays in `failures`; one that found no broker, or whose process
    died, is started again. `flows` has their counts. All processes end with this one, however it ends.

    until_end: each of them ends where its source ended when it began.
    lags: `flows` have their lags too, for which brokers are asked every few seconds.
    on_event: is called with each line that a person should see, by any of several threads.

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
        self._looked: set[str] = set()  # the tables that could be looked up
        self._threads: dict[str, threading.Thread] = {}  # of the mirrors
        self._said: dict[str, str] = {}
        self.flows: dict[str, MirrorState] = {}
        self.failures: dict[str, Exception] = {}

    def jobs(self) -> Iterator[Job]:
        """Yields the mirrors and captures of the journals and topics that exist now."""
        for where, find in self._tables.items():
            yield from find(self._stop, partial(self._say, where))

    def run(self) -> None:
        """Runs until stop(), until every mirror has failed, or with until_end until all have ended."""
        look_at = 0.0
        try:
            while not (self._stop.requested or self._is_over()):
                if time.monotonic() >= look_at:
                    self._look()
                    look_at = float("inf") if self._until_end else time.monotonic() + LOOK_EVERY
                time.sleep(SLICE_SECONDS)
        except Stopped:
            pass
        finally:
            self._stop.request()
            for thread in self._threads.values():
                thread.join()

    def stop(self) -> None:
        """Ends run() within 2 s, from another thread or a signal handler. Each transaction under way is committed if the
        brokers answer in time."""
        self._stop.request()

    def _is_over(self) -> bool:
        all_begun = self._tables.keys() <= self._looked | self.failures.keys()
        none_runs = not any(thread.is_alive() for thread in self._threads.values())
        return all_begun and none_runs and (self._until_end or bool(self.failures))

    def _look(self) -> None:
        """Looks for journals and topics, and begins with the new ones. Brokers that are away hold up no mirror that runs."""
        for where, find in self._tables.items():
            try:
                say = nothing if where in self._looked else partial(self._say, where)
                for job in find(self._stop, say):
                    if job.name not in self._threads:
                        thread = threading.Thread(target=self._keep, args=[job], name=job.name, daemon=True)
                        thread.start()
                        self._threads[job.name] = thread
            except Exception as error:  # noqa: BLE001 - whatever it is, the other tables are looked at
                if self._until_end or not may_pass(error):
                    self.failures[where] = error
                self._is_down(where, str(error))
            else:
                self._looked.add(where)
                self.flows.pop(where, None)
                self.failures.pop(where, None)

    def _keep(self, job: Job) -> None:
        """Runs a process for the job, and another one after that has died or found no broker. In a thread of its own, which
        outlives them: the kernel kills a process when the thread ends that has started it."""
        in_a_row = 0  # ends of a process without a transaction in between
        try:
            while not self._stop.requested:
                try:
                    how = self._run_process(job)
                except OSError as error:  # of too many processes or descriptors
                    how = f"cannot be started: {error}"
                in_a_row = 1 if self.flows[job.name].stats.transactions else in_a_row + 1
                if self._is_last(job.name, how, in_a_row):
                    return
                self._stop.wait(min(PAUSE_SECONDS[0] * 2 ** min(in_a_row - 1, 9), PAUSE_SECONDS[1]))
        except Exception as error:  # noqa: BLE001 - whatever it is, the others go on
            self.failures[job.name] = error
            self._is_down(job.name, f"{type(error).__name__}: {error}")

    def _is_last(self, name: str, how: str, in_a_row: int) -> bool:
        """Says whether a process that has ended was the last one, and tells what has ended it."""
        state = self.flows[name]
        failure: Exception | None = state.failure
        if state.has_ended:
            passes = failure is None or may_pass(failure)
            is_last = self._until_end or not passes
        else:
            passes, is_last = True, self._until_end and in_a_row >= DEATHS_IN_A_ROW
            then = f", {in_a_row} times in a row" if is_last else "; it is started again"
            failure = JournalError(f"its process {how}{then}")
        if passes and self._stop.requested:
            return True
        if failure is not None:
            self._is_down(name, str(failure) or repr(failure), again=not state.has_ended)
            if is_last:
                self.failures[name] = failure
        return is_last

    def _run_process(self, job: Job) -> str:
        """Runs a process for the job, and returns how it has ended."""
        self.flows[job.name] = MirrorState()
        ours, of_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # a packet for each report
        with ours:
            ours.setblocking(False)
            with of_child:
                process = subprocess.Popen(
                    [sys.executable, "-c", BOOT, job.name, *sys.path],  # the name is for those who list processes
                    stdin=of_child.fileno(),
                    stdout=2,  # for a transform that prints
                    env={name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT)},
                    start_new_session=True,  # Ctrl-C comes to the supervisor alone
                )
            try:
                with suppress(BrokenPipeError):
                    ours.send(pickle.dumps((job, self._until_end, self._lags, os.getpid())))
                self._listen(job.name, process, ours)
                process.terminate()  # one that ends by itself has committed or aborted its transaction
                self._listen(job.name, process, ours, END_SECONDS)
                if process.returncode is None:
                    self._say(job.name, "its process does not end, and is killed; the next start goes on where it was")
            finally:
                process.kill()  # what it has committed is found out at the next start
            self._listen(job.name, process, ours, KILL_SECONDS)
        code = process.returncode
        return f"was killed by signal {-code}" if code and code < 0 else f"ended with exit code {code}"

    def _listen(self, name: str, process: subprocess.Popen[bytes], ours: socket.socket, seconds: float | None = None) -> None:
        """Takes the reports of a process until it has ended, for so many seconds at most; None: until the request to stop."""
        until = time.monotonic() + (seconds or 0)
        while True:
            has_ended = process.poll() is not None  # first, so that the last report is in the socket then
            with suppress(BlockingIOError, ConnectionResetError):
                while packet := ours.recv(PACKET_BYTES):
                    said = pickle.loads(packet)
                    if isinstance(said, str):
                        self._say(name, said)
                    else:
                        self.flows[name] = said
            if has_ended or (self._stop.requested if seconds is None else time.monotonic() >= until):
                return
            if (silent := time.monotonic() - self.flows[name].reported_at) > SILENT_SECONDS:
                self.flows[name] = self.flows[name].down(f"its process has not answered for {silent:.0f} s")
            time.sleep(SLICE_SECONDS)

    def _is_down(self, name: str, problem: str, *, again: bool = False) -> None:
        self._say(name, problem, again=again)
        self.flows[name] = self.flows.get(name, MirrorState()).down(problem)

    def _say(self, where: str, text: str, *, again: bool = False) -> None:
        if again or self._said.get(where) != text:
            self._said[where] = text
            self._on_event(f"{where}: {text}")


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
        state = MirrorState(known_lag=known.get(job.name))
        for flow in flows.values():
            state.stats, state.is_open = replace(flow.stats), flow.is_open
        state.stats.last_error = state.stats.last_error[:LINE_CHARACTERS]
        return state

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
