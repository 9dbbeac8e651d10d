"""Runs the real `jlogtool`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from patience import HUNG_SECONDS
from processes.forkserver import fork_server

if TYPE_CHECKING:
    from pathlib import Path

INSTALLED = os.path.join(os.path.dirname(sys.executable), "jlogtool")
COMMAND = [INSTALLED] if os.path.exists(INSTALLED) else [sys.executable, "-m", "jlog.cli"]


@dataclass
class Result:
    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


def arguments_of(arguments: tuple[Any, ...]) -> list[Any]:
    return [a if isinstance(a, bytes) else str(a) for a in arguments]


def run(*arguments: Any, stdin: bytes = b"", cwd: Path | None = None) -> Result:
    """Whatever it exits with. It is forked from a process that has imported its modules."""
    with tempfile.TemporaryFile() as err:
        process = fork_server("tool").start(arguments_of(arguments), cwd or ".", err.fileno())
        feeding = threading.Thread(target=feed, args=(process.stdin, stdin))
        feeding.start()
        try:
            with process.stdout:
                out = process.stdout.read()
            feeding.join()
            code = process.wait()
        finally:
            process.kill()  # if the test ran out of time
        err.seek(0)
        return checked(Result(code, out, err.read().decode()))


def run_afresh(*arguments: Any) -> Result:
    """The same, in a process that imports everything itself."""
    done = subprocess.run([*COMMAND, *arguments_of(arguments)], capture_output=True, timeout=HUNG_SECONDS)
    return checked(Result(done.returncode, done.stdout, done.stderr.decode()))


def feed(stdin: BinaryIO, content: bytes) -> None:
    with stdin, suppress(BrokenPipeError):
        while content:
            content = content[stdin.write(content) :]


def checked(result: Result) -> Result:
    assert "Traceback" not in result.err, result.err
    return result


def do(*arguments: Any, stdin: bytes = b"") -> Result:
    """It must exit with 0 and say nothing on stderr."""
    result = run(*arguments, stdin=stdin)
    assert (result.code, result.err) == (0, ""), result
    return result


def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
    """Goes on beside the test, with pipes to and from it."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([*COMMAND, *arguments_of(arguments)], bufsize=0, **pipes)


def run_on_terminal(*arguments: Any, typed: bytes = b"") -> tuple[int, bytes]:
    """Exit code, and what the terminal shows."""
    ours, its = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, *arguments_of(arguments)], stdin=its, stdout=its, stderr=its, start_new_session=True
        )
        os.close(its)
        os.write(ours, typed)
        shown = b""
        try:
            while piece := os.read(ours, 1 << 16):
                shown += piece
        except OSError:
            pass  # EIO: the other end is closed
        return process.wait(HUNG_SECONDS), shown
    finally:
        os.close(ours)
