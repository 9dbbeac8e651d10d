"""The code blocks of the pages that need a broker. tests/docs/test_pages.py has all the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_broker import Broker

from docs.console import pages_for
from docs.running import PAGE_SECONDS, run_page

HERE = pages_for("kafka")
HOSTS = r"kafka://(?:localhost|host|broker)(?::9092)?(?=[/\"])"


@pytest.mark.exhaustive
@pytest.mark.timeout(PAGE_SECONDS)
@pytest.mark.usefixtures("_jars")
@pytest.mark.parametrize("page", HERE)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    with Broker(tmp_path / "broker", session_seconds=3600) as broker:  # the pages have topics of the same names
        run_page(HERE[page], tmp_path, "kafka", {HOSTS: f"kafka://{broker.address}"})
