"""An error that tests without memory and the torture take for CPython's own happens without a line of jlog."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from faults.shim import is_pythons_own


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="another CPython without memory does something else, or crashes")
def test_python_itself_loses_the_error_of_a_function_that_had_no_memory():
    pytest.importorskip("_testcapi")
    done = subprocess.run(
        [sys.executable, "-I", Path(__file__).with_name("losing.py")], capture_output=True, text=True, check=True
    )
    errors = [SystemError(line) for line in done.stdout.splitlines()]
    assert any("returned NULL" in str(error) for error in errors), done.stdout
    assert any("error return" in str(error) for error in errors), done.stdout
    assert all(is_pythons_own(error) for error in errors), done.stdout


def test_no_other_error_is_taken_for_pythons_own():
    for error in (
        SystemError("<method 'take' of 'jlog._core.work.tasks.TaskSource' objects> returned NULL without setting an exception"),
        SystemError("<cyfunction Reader.read at 0x7f1788291d00> returned NULL without setting an exception"),
        SystemError("<function Reader.read at 0x7f1788291d00> returned a result with an exception set"),
        RuntimeError("<function Reader.read at 0x7f1788291d00> returned NULL without setting an exception"),
        RuntimeError("lock is not held"),
    ):
        assert not is_pythons_own(error), error
