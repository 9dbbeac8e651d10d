"""docs/libjlog.md: what it shows happens."""

import shutil
from pathlib import Path

import pytest

from docs.console import DOCS, run_page


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash: apt-get install bash")
def test_the_page_on_libjlog_shows_what_happens(tmp_path: Path) -> None:
    run_page(DOCS / "libjlog.md", tmp_path, not_run="sh")  # of a writer that is in production
