"""A shell for the commands of a page."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cli.command import COMMAND
from patience import HUNG_SECONDS

KILLED = re.compile(r"^bash: line \d+: +\d+ Killed .*$", re.MULTILINE)
ENDED = re.compile(r"^Terminated\n", re.MULTILINE)
DONE = "--- done, with code "
QUIET_LOOKS = 20
LOOK_SECONDS = 0.05


class Shell:
    """A bash that lives through the page, with `jlogtool` and `python` on its path."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        programs = directory / "programs"
        programs.mkdir()
        for name, command in (("jlogtool", COMMAND), ("python", [sys.executable])):
            (programs / name).write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
            (programs / name).chmod(0o755)
        self._output = directory / "programs" / "output"
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=directory,
            env={**environment, "PATH": f"{programs}:{environment['PATH']}"},
            start_new_session=True,
        )

    def run(self, command: str) -> tuple[str, int]:
        """Returns what it shows, and its code."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{{ {command}\n}} < /dev/null\necho '{DONE}'$?\n")
        process.stdin.flush()
        shown = []
        for line in process.stdout:
            before, done, code = line.partition(DONE)
            shown.append(before)
            if done:
                return KILLED.sub("Killed", "".join(shown)), int(code)
        raise AssertionError(f"the shell ended in {command!r}")

    def run_until_quiet(self, command: str, is_enough: Callable[[str], bool]) -> tuple[str, int]:
        """The same for a command that goes on for ever. Its first process gets SIGTERM once enough is shown and all of its
        processes were seen waiting for a while."""
        self._output.write_text("")
        started, _ = self.run(f"set -m; {{ {command}\n}} > {self._output} 2>&1 & echo $!; set +m")
        group = int(started)
        until = time.monotonic() + HUNG_SECONDS
        quiet = 0
        while (found := processes_of(group)) and quiet < QUIET_LOOKS and time.monotonic() < until:
            quiet += set(found.values()) == {"S"} and is_enough(self._output.read_text())
            time.sleep(LOOK_SECONDS)
        if found:
            os.kill(min(found.keys() - {group}, default=group), signal.SIGTERM)
        _, code = self.run(f"wait {group}")
        return ENDED.sub("", self._output.read_text()), code

    def close(self) -> None:
        """Ends the shell, and what it still waits for where a test ran out of time."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def processes_of(group: int) -> dict[int, str]:
    """The living processes of a group, with the state of each: S for one that waits."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group and fields[0] not in "ZX":
            found[int(path.parent.name)] = fields[0]
    return found
