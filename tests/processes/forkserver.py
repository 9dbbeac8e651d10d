"""Forks workers, and processes that run `jlogtool`, from a process that has imported all that they need: a fork takes
milliseconds, and the imports take ten times as long. Each is the child of the process that asked for it, as one of
subprocess.Popen is."""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

CHANNEL = 0  # the server's end of the socket
REQUEST_BYTES_MAX = 1 << 18
PR_SET_CHILD_SUBREAPER = 36


# --- The process that asks -------------------------------------------------------------------------------------------


class Forked:
    """One of the workers, with pipes to its standard input and from its output: the part of Popen that its tests need."""

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.stdin = open(stdin, "wb", buffering=0)  # noqa: SIM115 - closed when the worker is discarded
        self.stdout = open(stdout, "rb", buffering=0)  # noqa: SIM115
        self.returncode: int | None = None

    def wait(self) -> int:
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Forks workers, or processes that run `jlogtool`. Ends with this process, or when it is closed."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._open()

    def _open(self) -> None:
        self._mounts = _mounts()
        self._channel, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen([sys.executable, __file__, self._kind], stdin=theirs)

    def start(
        self,
        arguments: Sequence[str | bytes] = (),
        directory: str | os.PathLike[str] = ".",
        stderr: int = 2,
        **environment: str,
    ) -> Forked:
        if self._mounts != _mounts():  # this process has mounts of its own now, and the server does not see them
            self.close()
            self._open()
        its_stdin, stdin = os.pipe()
        stdout, its_stdout = os.pipe()
        # The server's child ends at once, and its orphan, the worker, becomes a child of this process.
        _adopt_orphans(True)
        try:
            request = {
                "environment": {**os.environ, **environment},
                "directory": os.path.abspath(directory),
                "arguments": [os.fsdecode(argument) for argument in arguments],
            }
            socket.send_fds(self._channel, [json.dumps(request).encode()], [its_stdin, its_stdout, stderr])
            pid = int(self._channel.recv(16))
        finally:
            _adopt_orphans(False)
            os.close(its_stdin)
            os.close(its_stdout)
        return Forked(pid, stdin, stdout)

    def close(self) -> None:
        self._channel.close()
        self._server.wait()


@functools.cache
def fork_server(kind: str = "worker") -> ForkServer:
    """The one of this process."""
    server = ForkServer(kind)
    atexit.register(server.close)
    return server


def _mounts() -> str:
    """The namespace of this thread's mounts."""
    return os.readlink("/proc/thread-self/ns/mnt")


def _adopt_orphans(adopt: bool) -> None:
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) != 0:
        raise OSError("prctl(PR_SET_CHILD_SUBREAPER) is refused")


# --- The server ------------------------------------------------------------------------------------------------------


def serve(kind: str) -> None:
    main = worker_main() if kind == "worker" else tool_main()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and they end this
    channel = socket.socket(fileno=os.dup(CHANNEL))
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, REQUEST_BYTES_MAX, 3)
        if not request:
            return
        pid = _fork_twice()
        if pid == 0:
            channel.close()
            wanted = json.loads(request)
            _become(wanted, descriptors)
            main(wanted["arguments"])
            return
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(b"%d" % pid)


def worker_main() -> Callable[[list[str]], object]:
    sys.path.insert(0, str(Path(__file__).parent))
    import worker

    return lambda _: worker.main()


def tool_main() -> Callable[[list[str]], object]:
    from jlog.cli.tool import SECTIONS, main

    for section in SECTIONS.values():
        for place, _ in section.values():
            importlib.import_module(f"jlog.cli.commands.{place.partition(':')[0]}")
    return main


def _fork_twice() -> int:
    """Returns the number of the child's child, whose parent has ended; 0 in the child's child."""
    told, telling = os.pipe()
    child = os.fork()
    if child == 0:
        orphan = os.fork()
        if orphan == 0:
            os.close(told)
            os.close(telling)
            return 0
        os.write(telling, b"%d" % orphan)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(telling)
    with open(told, "rb") as told_by:
        return int(told_by.read())


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if request["environment"] != os.environ:
        os.environ.clear()
        os.environ.update(request["environment"])
    os.chdir(request["directory"])
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    serve(sys.argv[1])
