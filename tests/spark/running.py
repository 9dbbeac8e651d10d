"""Processes of Spark's: drivers, masters and workers, which tests start, listen to and kill."""

from __future__ import annotations

import os
import queue
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spark.sessions import ROOT

HUNG_SECONDS = 120.0  # guards against hanging only


class Running:
    """In a group of its own, with all that it starts."""

    def __init__(self, *arguments: object) -> None:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        self._process = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def said(self, pattern: str) -> str:
        """Waits for a line like this; what its group matched."""
        heard = []
        while (line := self._lines.get(timeout=HUNG_SECONDS)) is not None:
            heard.append(line)
            found = re.search(pattern, line)
            if found is not None:
                return found[1]
        raise AssertionError(f"it has ended without saying {pattern}:\n{''.join(heard[-20:])}")

    @contextmanager
    def told_through(self, pipe: Path) -> Iterator[str]:
        """Waits for a line that one of its processes writes into the pipe, which stays open meanwhile for the others."""
        with open(pipe, "r+b", buffering=0) as lines:
            until = time.monotonic() + HUNG_SECONDS
            while not select.select([lines], [], [], 0.1)[0]:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.kill()
                    self.said(f"a line through {pipe}")
            yield lines.readline().decode()

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listening.join()
