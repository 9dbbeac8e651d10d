"""Log files that are written to, and the program that ships them."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import jlog
from behaviour.journals import values
from cli.command import HUNG_SECONDS, start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jlog.cli.records.log_file import LogFile

LOGROTATE = shutil.which("logrotate", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def wait_for(journal: Path, records: int) -> None:
    """Waits until the journal has so many records."""
    with jlog.Reader(journal) as reader:
        for record in reader.follow(timeout=HUNG_SECONDS):
            if record.sequence + 1 >= records:
                return


def wait_for_place(journal: Path) -> None:
    moment = threading.Event()
    while not jlog.Journal(journal).state():
        moment.wait(0.01)


@contextmanager
def shipping(journal: Path, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the command, and kills it in the end."""
    with start("append", journal, "--follow", log, *options) as tool:
        try:
            yield tool
        finally:
            tool.kill()


def add(path: Path, text: str) -> None:
    with open(path, "a") as file:
        file.write(text)


def shipped(journal: Path, path: Path, records: int, *options: str) -> str:
    """Ships until the journal has so many records, and returns what was told."""
    with shipping(journal, path, *options) as tool:
        wait_for(journal, records)
        tool.terminate()
        assert tool.wait(HUNG_SECONDS) == 0
        return tool.stderr.read().decode()


def texts(journal: Path) -> list[str]:
    return [value.decode() for value in values(journal)]


def later_than(path: Path) -> None:
    """Waits until a file that is made now has a later time than this one."""
    probe = path.with_name("probe")
    while True:
        probe.write_bytes(b"")
        later = probe.stat().st_mtime_ns > path.stat().st_mtime_ns
        probe.unlink()
        if later:
            return


def wait_until(is_so: Callable[[], object]) -> None:
    moment, end = threading.Event(), time.monotonic() + HUNG_SECONDS
    while not is_so():
        assert time.monotonic() < end
        moment.wait(0.01)


def is_open(pid: int, path: str) -> bool:
    names = (f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd"))
    return path in [os.readlink(name) for name in names if os.path.islink(name)]


def bytes_read(pid: int) -> int:
    with open(f"/proc/{pid}/io") as file:
        return int(file.readline().split()[1])


def drained_texts(file: LogFile) -> list[str]:
    lines: list[str] = []
    while (batch := file.next()) is not None:
        lines += [value.decode() for value in batch.values]
    return lines
