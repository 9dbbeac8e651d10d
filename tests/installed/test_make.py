"""`make` on a machine that lacks what it needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OLD = "sys.version_info"  # a part of each question that is asked of Python
VENV = "import ensurepip"
HEADERS = "Python.h"


def asked(folder: Path, *lacking: str) -> tuple[int, list[str]]:
    """Returns the exit code of `make machine` and the lines on stderr, on a machine that has no compiler, and a Python that
    lacks this; with nothing named, no Python."""
    for name in ("sh", "make", "id"):
        program = shutil.which(name)
        if program is None:
            pytest.skip(f"no {name}: apt-get install make")
        (folder / name).symlink_to(program)
    if lacking:
        python = folder / "python3"
        python.write_text(f'#!/bin/sh\ncase "$2" in {"|".join(f"*{part!r}*" for part in lacking)}) exit 1;; esac\n')
        python.chmod(0o755)
    of_make = ("CC", "PYTHON", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # these tests may run below a make
    environment = {name: value for name, value in os.environ.items() if name not in of_make}
    done = subprocess.run(
        ["make", "machine"], cwd=ROOT, env=environment | {"PATH": str(folder)}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr.splitlines()


def test_all_that_is_missing_is_told_in_one_line_with_one_command(tmp_path: Path) -> None:
    code, lines = asked(tmp_path, VENV, HEADERS)
    assert lines[0] == (
        "python3 has no venv module, no Python.h for python3, no C compiler: "
        "apt-get install python3-venv python3-dev gcc libc6-dev"
    )
    assert (code, [line for line in lines[1:] if not line.startswith("make: ***")]) == (2, [])


def test_a_python_that_is_missing_or_too_old_is_told_with_its_packages(tmp_path: Path) -> None:
    packages = "python3 python3-venv python3-dev gcc libc6-dev"
    for folder, lacking, said in (("none", [], "no python3"), ("old", [OLD], "python3 is older than 3.10")):
        (tmp_path / folder).mkdir()
        _, lines = asked(tmp_path / folder, *lacking)
        assert lines[0] == f"{said}, no C compiler: apt-get install {packages}"


def step(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "tools" / "step", *command], capture_output=True, text=True, check=False)


def test_a_step_says_what_was_done_and_in_how_many_seconds() -> None:
    done = step("tea", "echo", "unseen")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r" +\d+ s  tea\n", done.stdout)


def test_a_step_that_takes_long_counts_and_says_how_far_a_compilation_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "goes on")
    command = ["sh", "-c", f"echo '[37/82] core'; read line <'{tmp_path / 'goes on'}'"]
    with subprocess.Popen([ROOT / "tools" / "step", "jlog, compiled", *command], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = running.stdout.readline()
        (tmp_path / "goes on").write_text("\n")
        last = running.stdout.readlines()[-1]
    assert re.fullmatch(r" +\d+ s  jlog, compiled … \[37/82\]\n", first)
    assert re.fullmatch(r" +\d+ s  jlog, compiled\n", last)


def test_of_a_step_that_fails_the_output_is_shown() -> None:
    done = step("tea", "sh", "-c", "echo no water; exit 3")
    assert (done.returncode, done.stderr) == (3, "tea: failed\nno water\n")
