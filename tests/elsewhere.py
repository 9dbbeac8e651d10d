"""Runs Python code in a process of its own, which may be another user's or have mounts that nobody else sees."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from patience import HUNG_SECONDS

TESTS = Path(__file__).parent
NOBODY = 65534
PRELUDE = """
import errno, os, shutil, sys
import jlog
from behaviour.journals import *
"""


@dataclass(frozen=True)
class Place:
    """`command`: Python is run by it. `before`: the code that comes first."""

    command: tuple[str, ...] = ()
    before: str = ""


HERE = Place()
# A user who may not write files that this one has made read-only. First come imports, also those of an error's traceback: this
# user may not be able to read the directories of the interpreter and of jlog.
ANOTHER_USER = Place(
    before=f"""
b"x".decode("unicode_escape")
for name in jlog.__all__:
    getattr(jlog, name)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
"""
    * (os.geteuid() == 0)
)


def python(
    source: str, *arguments: object, within: Place = HERE, seconds: float = HUNG_SECONDS, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program to its end, within so many seconds, and returns its exit code and what it has printed."""
    command = [*within.command, sys.executable, "-c", textwrap.dedent(source), *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=seconds)


def run_python(source: str, within: Place = HERE, seconds: float = HUNG_SECONDS) -> None:
    """Does the same with the prelude. An exception there fails the test."""
    program = PRELUDE + within.before + textwrap.dedent(source)
    done = python(program, within=within, seconds=seconds, PYTHONPATH=str(TESTS), PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0, done.stderr


def mounted_by(mount: str, *, host: str | None = None, alone: bool = False, before: str = "") -> Place:
    """A place with the mounts of this shell command, and on a host of this name; alone: with no network but a loopback of its
    own. Skips where this user may not mount."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
    if host is not None:
        unshare, mount = [*unshare, "-u"], f"{mount} && hostname {host}"
    if alone:
        unshare, mount = [*unshare, "-n"], f"{mount} && ip link set lo up"
    try:
        tried = subprocess.run([*unshare, "sh", "-c", mount], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare; apt-get install util-linux")
    if tried.returncode != 0:
        pytest.skip(f"mounting in a namespace of its own is not allowed here, run as root: {tried.stderr.strip()}")
    return Place((*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh"), before)


def read_only(path: Path) -> str:
    quoted = shlex.quote(str(path))
    return f"mount --bind {quoted} {quoted} && mount -o remount,bind,ro {quoted}"


def small_disk(path: Path, size: str) -> str:
    return f"mount -t tmpfs -o size={size} tmpfs {shlex.quote(str(path))}"
