"""Python code in a process of its own: as another user, or with mounts that nobody else sees."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from patience import HUNG_SECONDS

TESTS = Path(__file__).parent.parent
NOBODY = 65534
PRELUDE = """
import errno, os, shutil, sys
import jlog
from behaviour.journals import *
"""
# Once all is imported: the interpreter may lie where that user cannot come.
BECOME_NOBODY = f"""
b"x".decode("unicode_escape")
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
"""


def run(code: str, *, before: list[str] | None = None, timeout: float = HUNG_SECONDS) -> None:
    """Runs it to its end; what it raises fails the test. `before`: the command that Python is run by."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [*(before or []), sys.executable, "-c", PRELUDE + textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr


def run_as_another_user(code: str) -> None:
    """As one who may not write what this user has made read-only."""
    run((BECOME_NOBODY if os.geteuid() == 0 else "") + textwrap.dedent(code))


def run_with_mount(mount: str, code: str, *, host: str | None = None) -> None:
    """Behind a mount of its own, which ends with it, and on a host of this name; skips where this user may not mount."""
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-r", "-m"]
    if host is not None:
        unshare, mount = [*unshare, "-u"], f"{mount} && hostname {host}"
    try:
        tried = subprocess.run([*unshare, "sh", "-c", mount], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare; apt-get install util-linux")
    if tried.returncode != 0:
        pytest.skip(f"mounting in a namespace of its own is not allowed here, run as root: {tried.stderr.strip()}")
    run(code, before=[*unshare, "sh", "-c", f'{mount} && exec "$@"', "sh"])


def read_only(path: Path) -> str:
    quoted = shlex.quote(str(path))
    return f"mount --bind {quoted} {quoted} && mount -o remount,bind,ro {quoted}"


def small_disk(path: Path, size: str) -> str:
    return f"mount -t tmpfs -o size={size} tmpfs {shlex.quote(str(path))}"
