"""Compiles shim.c, and speaks to it from a process that runs under it."""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent
SOURCES = ("shim.c", "fault.h", "record.h", "content.h", "memory.h", "names.h")
FLAGS = ("-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-Wno-attribute-alias")
KINDS = (
    "open", "read", "write", "copy", "truncate", "allocate", "rename", "link", "unlink", "mkdir", "sync", "map", "lock",
)  # fmt: skip
# CPython raises RuntimeError without memory for a lock or a thread. It raises SystemError where it has lost the exception of a
# Python function for want of memory; losing.py shows that without jlog. Where compiled code has lost one, the text names a
# method or a cyfunction: that is an error of jlog's.
NO_LOCK = re.compile("can't ")
LOST = re.compile("error return without exception set|<function .* at 0x[0-9a-f]+> returned NULL without setting an exception")
SHORT = 0  # in place of an errno: less is transferred than was asked for


def compiled() -> Path:
    """The shared library, compiled once for each content of its sources."""
    content = b"".join((HERE / name).read_bytes() for name in SOURCES)
    name = f"jlog-shim-{os.getuid()}-{hashlib.sha256(content).hexdigest()[:16]}.so"
    target = Path(tempfile.gettempdir()) / name
    if not target.exists() or target.stat().st_uid != os.getuid():
        temporary = target.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [os.environ.get("CC", "cc"), *FLAGS, "-o", temporary, HERE / "shim.c", "-ldl", "-lpthread"],
            check=True,
        )
        os.rename(temporary, target)
    return target


def environment(**more: str) -> dict[str, str]:
    """Returns the environment of a process under the shim."""
    paths = {"LD_PRELOAD": str(compiled()), "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **paths, **more}


def run(module: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a module of the tests under the shim, to its end."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=3600,
    )


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.shim_disarm.restype = ctypes.c_long
    library.shim_arm.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_int, ctypes.c_int]
    library.shim_arm_memory.argtypes = [ctypes.c_long, ctypes.c_long]
    library.shim_arm_memory_of_others.argtypes = [ctypes.c_long, ctypes.c_long]
    library.shim_disarm_memory.restype = ctypes.c_long
    library.shim_note.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


def is_pythons_own(error: BaseException) -> bool:
    """Says whether the error only says that CPython had no memory."""
    pattern = LOST if isinstance(error, SystemError) else NO_LOCK
    return isinstance(error, MemoryError) or pattern.match(str(error)) is not None


def loaded() -> bool:
    return hasattr(ctypes.CDLL(None), "shim_arm")


def watch(directory: str | os.PathLike[str]) -> None:
    """Counts, lets fail and records calls on files below it from now on."""
    _library().shim_below(os.fsencode(os.path.realpath(directory)))


def dry_sync(dry: bool) -> None:
    """Lets a sync return at once without syncing, where only the order of events matters."""
    _library().shim_dry_sync(int(dry))


def arm(kind: str, at: int, error: int, *, for_ever: bool = False) -> None:
    """The `at`-th call of this kind from now on fails with this errno (SHORT: is short); `for_ever`: the later ones too."""
    _library().shim_arm(KINDS.index(kind), at, error, int(for_ever))


def disarm() -> tuple[int, dict[str, int]]:
    """Nothing fails any more. How many calls have failed, and how many of each kind there were."""
    counts = (ctypes.c_long * len(KINDS))()
    struck = _library().shim_disarm(counts)
    return int(struck), dict(zip(KINDS, counts, strict=True))


def arm_memory(at: int, count: int = 1) -> None:
    """The allocations of this thread from the `at`-th on fail, `count` of them."""
    _library().shim_arm_memory(at, count)


def disarm_memory() -> int:
    """No allocation fails any more. How many there were, if they were counted."""
    return int(_library().shim_disarm_memory())


def end_starving() -> None:
    """Ends what arm_memory() began, also where this has to allocate first."""
    while True:
        try:
            disarm_memory()
        except MemoryError:
            continue
        return


def arm_memory_of_others(at: int, count: int) -> None:
    """`count` allocations of the threads that are not spared fail, from the `at`-th on."""
    _library().shim_arm_memory_of_others(at, count)


def spare_thread() -> None:
    """No allocation of this thread fails with those of others."""
    _library().shim_spare_thread()


def count_only() -> None:
    """Counts the calls until disarm()."""
    arm("open", 1 << 60, errno.EIO)


def log_to(path: str | os.PathLike[str] | None) -> None:
    """Records into this file; None ends that."""
    _library().shim_log(os.fsencode(path) if path is not None else None)


def note(kind: str, **content: Any) -> None:
    """Into the log, at its place among the events."""
    text = json.dumps([kind, content]).encode()
    _library().shim_note(text, len(text))
