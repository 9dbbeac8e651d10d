"""Runs the commands of `jlogtool work` in a process of its own, which ends them if `jlogtool` dies.

The kernel frees the records of a killed `jlogtool` at once, so another one may begin with them while their commands still run.
Therefore each command holds a lock on its record, or on its key, until it and all that it has started are gone.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jlog

PR_SET_PDEATHSIG = 1
KILL_SECONDS = 10.0  # between SIGTERM and SIGKILL
LOOK_SECONDS = 0.05  # between two looks whether a session is empty: no event tells that
PACKET_BYTES = 1 << 20
ZOMBIE = "Z"


class CommandsLost(jlog.JournalError):
    """The process that runs the commands has died."""


class Commander:
    """A process that runs one command for many records. It is forked, so it has to be created before any thread."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        with suppress(OSError, ValueError):  # where fs.nr_open has been lowered since
            resource.setrlimit(resource.RLIMIT_NOFILE, (files[1], files[1]))
        if os.fork() == 0:
            try:
                self._requests.close()
                _Commands(command, theirs, files).serve()
            finally:
                os._exit(0)
        theirs.close()

    def run(self, value: bytes, environment: dict[str, str], timeout: float | None, lock: int) -> int | None:
        """Runs the command with this standard input and these further variables. Returns its exit code; None if it was ended
        after `timeout` seconds.

        lock: descriptor of a lock that is freed when the command and all that it has started have ended.
        """
        answer, theirs = socket.socketpair()
        with answer:
            with theirs, open(os.memfd_create("value"), "r+b", buffering=0) as stdin:
                written = 0
                while written < len(value):
                    written += stdin.write(memoryview(value)[written:])
                stdin.seek(0)
                asked = json.dumps([environment, timeout]).encode()
                try:
                    socket.send_fds(self._requests, [asked], [theirs.fileno(), stdin.fileno(), lock])
                except (BrokenPipeError, ConnectionResetError):
                    raise CommandsLost(LOST) from None
            answered = b"".join(iter(lambda: answer.recv(PACKET_BYTES), b""))
        if not answered:
            raise CommandsLost(LOST)
        code, error = json.loads(answered)
        if error is not None:
            raise OSError(*error)
        return None if code is None else int(code)


LOST = (
    "the process that runs the commands of this `jlogtool work` was killed, and the first process of each command with it; end "
    "what the commands had started, and start `jlogtool work` again"
)


class _Command:
    """A command that runs, in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes], answer: socket.socket, lock: int, ends_at: float) -> None:
        self.process, self.answer, self.lock, self.ends_at = process, answer, lock, ends_at
        self.is_ending = self.is_killed = False

    def look(self) -> bool:
        """Ends the command if it is time. Returns whether it has ended: then somebody waits for nothing but the answer."""
        if time.monotonic() >= self.ends_at and not self.is_killed:
            self.is_ending, self.is_killed = True, self.is_ending
            self.ends_at = time.monotonic() + KILL_SECONDS
            for pid in self._session():
                try:
                    os.kill(pid, signal.SIGKILL if self.is_killed else signal.SIGTERM)
                except ProcessLookupError:
                    continue
        # Its first process stays a zombie until its session is empty, so that no other session has the same number.
        if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        return not self.is_ending or not any(self._session())

    def _session(self) -> Iterator[int]:
        """Yields the processes of the command's session that live."""
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    state, _, _, session, *_ = Path(f"/proc/{name}/stat").read_text("latin-1").rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(session) == self.process.pid and state != ZOMBIE:
                    yield int(name)

    def close(self) -> None:
        code = self.process.wait()
        _answer(self.answer, None if self.is_ending else code, None)
        os.close(self.lock)


class _Commands:
    """The forked process, with one thread. It has two descriptors for each command, as `jlogtool` has, and fewer others. So
    `jlogtool` runs out of descriptors first, and this process can receive all that come with a request.

    files: the commands' limits of open files; higher limits may break programs that use select().
    """

    def __init__(self, command: tuple[str, ...], requests: socket.socket, files: tuple[int, int]) -> None:
        self._command, self._requests, self._files = command, requests, files
        self._running: list[_Command] = []

    def serve(self) -> None:
        """Runs what is asked for until `jlogtool` has ended, and then ends what still runs."""
        os.setsid()  # a signal for the terminal's processes, or for a group, is for `jlogtool`
        woken, wake = socket.socketpair()
        woken.setblocking(False)
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
                signal.signal(number, lambda *_: None)  # a command gets the default back, and not a signal that is ignored
        asked = [self._requests]
        while asked or self._running:
            ready, _, _ = select.select([woken, *asked], [], [], self._seconds())
            if woken in ready:
                woken.recv(PACKET_BYTES)
            if self._requests in ready and not self._start_next():
                asked = []
                for command in self._running:
                    command.ends_at = min(command.ends_at, time.monotonic()) if not command.is_ending else command.ends_at
            for command in [each for each in self._running if each.look()]:
                self._running.remove(command)
                command.close()

    def _seconds(self) -> float | None:
        """Returns how long to wait at most; None: until a command ends by itself."""
        if any(command.is_ending for command in self._running):
            return LOOK_SECONDS
        left = min((command.ends_at for command in self._running), default=float("inf")) - time.monotonic()
        return None if left == float("inf") else max(0.0, left)

    def _start_next(self) -> bool:
        """Starts the command that is asked for. Returns False where `jlogtool` is gone."""
        try:
            said, descriptors, _, _ = socket.recv_fds(self._requests, PACKET_BYTES, 3)
        except ConnectionResetError:
            return False
        if not said:
            return False
        answer, stdin, lock = socket.socket(fileno=descriptors[0]), descriptors[1], descriptors[2]
        environment, timeout = json.loads(said)
        try:
            process = subprocess.Popen(
                self._command,
                stdin=stdin,
                env={**os.environ, **environment},
                start_new_session=True,
                preexec_fn=self._prepare,  # noqa: PLW1509 - there is no other thread
            )
        except (OSError, ValueError) as error:
            _answer(answer, None, [getattr(error, "errno", None), str(error)])
            os.close(lock)
        else:
            ends_at = float("inf") if timeout is None else time.monotonic() + timeout
            self._running.append(_Command(process, answer, lock, ends_at))
        os.close(stdin)
        return True

    def _prepare(self) -> None:
        """Is called in the new process, before the command."""
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # where this process is killed, nobody could end the command
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, self._files)


def _answer(answer: socket.socket, code: int | None, error: list[object] | None) -> None:
    with answer:
        try:
            answer.sendall(json.dumps([code, error]).encode())
        except OSError:
            return  # `jlogtool` is gone
