"""The programs that run for an hour each week, for seconds: each begins, and finds nothing."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import exhaustive
from weekly import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
SECONDS = exhaustive.count(2, 60)
SANITIZERS = {"headers": "address,undefined", "publish": "thread"}
# These are the tests themselves, and take the time that they take.
TESTS = ("sanitizers", "tests")
# It judges a flow by the seconds that brokers were away, and beside other tests these are longer.
ALONE = ("kafka-torture", "kafka-torture-secured")
# These fetch programs of others, and the first takes half an hour.
FETCHES = ("brokers", "oldest", "types")


@pytest.mark.usefixtures("failpoints")
@pytest.mark.parametrize(
    "program", [exhaustive.only(name) if name in ALONE else name for name in PROGRAMS if name not in (*TESTS, *FETCHES)]
)
def test_a_program_finds_nothing(tmp_path: Path, program: str) -> None:
    if program in SANITIZERS:
        skip_without_sanitizer(SANITIZERS[program], tmp_path)
    if program == "histories" and shutil.which("go") is None:
        pytest.skip("no Go, which compiles the judge: apt-get install golang-go")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "weekly.py"), program, "--seconds", str(SECONDS)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def skip_without_sanitizer(sanitizers: str, folder: Path) -> None:
    program = folder / "program"
    compiler = [*shlex.split(os.environ.get("CC", "cc")), f"-fsanitize={sanitizers}", "-x", "c", "-", "-o", str(program)]
    compiled = subprocess.run(compiler, input=b"int main(void) { return 0; }", capture_output=True, check=False)
    if compiled.returncode or subprocess.run([program], check=False).returncode:
        pytest.skip(f"the C compiler has no -fsanitize={sanitizers}; gcc and clang of Debian have it")


@pytest.mark.parametrize("program", TESTS)
def test_tests_are_run_by_a_target_of_make(program: str) -> None:
    target = PROGRAMS[program].removeprefix("make ")
    assert re.search(f"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_a_program_that_fails_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import weekly

    monkeypatch.setitem(PROGRAMS, "calls", "test {seed} = 8")
    monkeypatch.setattr(sys, "argv", ["weekly.py", "calls", "--seconds", "3", "--seed", "7"])
    assert weekly.main() == 1
    assert capfd.readouterr().err == "failed: make weekly ARGS='calls --seconds 3 --seed 7'\n"


def test_the_workflow_runs_each_program() -> None:
    text = (ROOT / ".github/workflows/weekly.yml").read_text(encoding="utf-8")
    assert re.findall(r"^ {10}- ([a-z-]+)$", text, re.MULTILINE) == [*PROGRAMS]
