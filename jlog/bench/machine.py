"""The machine on which the numbers were measured."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

import jlog
from jlog.system.filesystem import type_of


def machine(directory: Path) -> dict[str, str]:
    return {
        "cpu": cpu_model(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "jlog": f"{jlog.__version__}{', built with fail points' if has_failpoints() else ''}",
        "file system": type_of(str(directory)) or "unknown",
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def has_failpoints() -> bool:
    """Says whether this is a build for the tests, which is slower: only such a build contains the name of the variable that
    arms fail points."""
    found = importlib.util.find_spec("jlog._core.recover.recovery")
    return found is not None and b"JLOG_FAILPOINTS" in Path(str(found.origin)).read_bytes()


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
