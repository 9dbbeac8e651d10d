"""Drivers of Spark's in processes of their own, which tests start, listen to and kill."""

from __future__ import annotations

import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import HUNG_SECONDS
from spark.sessions import ROOT

DRIVER = Path(__file__).with_name("driver.py")


class Driver:
    """driver.py, or another script, in a group of its own with all that it starts. packages: where another PySpark is."""

    def __init__(
        self, folder: Path, master: str, script: Path = DRIVER, packages: Path | None = None, **environment: str
    ) -> None:
        path = os.pathsep.join(map(str, filter(None, [packages, ROOT, ROOT / "tests"])))
        self._process = subprocess.Popen(
            [sys.executable, script, folder, master],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1", **environment},
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

    def call(self, verb: str, *arguments: object) -> None:
        """Sends a call, and does not wait for its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, *arguments], default=str) + "\n")
        self._process.stdin.flush()

    def said(self, pattern: str) -> str:
        """Waits for a line like this; returns what its group matched."""
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

    def until(self, true: Callable[[], object]) -> None:
        """Waits until this holds."""
        until = time.monotonic() + HUNG_SECONDS
        while not true():
            assert self._process.poll() is None, "it has ended"
            assert time.monotonic() < until, "it did not happen"
            time.sleep(0.001)

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._listening.join()
