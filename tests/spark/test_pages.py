"""The code blocks of the pages that need Spark. tests/docs/test_pages.py has all the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.console import pages_for
from docs.running import PAGE_SECONDS, run_page

HERE = pages_for("spark")


@pytest.mark.exhaustive
@pytest.mark.timeout(PAGE_SECONDS)
@pytest.mark.usefixtures("_spark_environment")
@pytest.mark.parametrize("page", HERE)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, s3: str) -> None:
    addresses = {"s3://logs": f"{s3}/{HERE[page].stem}", r"spark://\w+:7077": "local[2]"}
    run_page(HERE[page], tmp_path, "spark", addresses)
