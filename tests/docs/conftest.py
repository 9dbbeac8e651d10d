"""The site that `make docs` builds, once for all tests of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chromium import browser  # noqa: F401 - a fixture
from docs.console import DOCS


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", str(folder / "doctrees"), str(DOCS)]
    done = subprocess.run([*command, str(folder / "html")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"
