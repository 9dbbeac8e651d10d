"""Calls without memory: none ends the process, and a MemoryError says that nothing was appended."""

from __future__ import annotations

import pytest

from faults import shim
from faults.starved import CALLS


@pytest.mark.parametrize("name", sorted(CALLS))
def test_without_memory_nothing_is_half_done(name):
    done = shim.run("faults.starved", name, PYTHONMALLOC="malloc")
    assert done.returncode == 0, done.stderr[-4000:]
