"""A driver with the connectors of Delta Lake and Iceberg, and with the PySpark that they are made for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka_broker import Missing, fetch

from spark.tables.running import PYSPARK, TableDriver

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def jars() -> str:
    """The connectors, for `spark.jars`."""
    if not PYSPARK.is_dir():
        pytest.skip(f"no {PYSPARK}; `make java` installs it")
    try:
        return ",".join(map(str, fetch(HERE / "connectors.xml").glob("*.jar")))
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def tables(_spark_environment: None, jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableDriver]:
    """One driver for all tests that do not kill theirs."""
    driver = TableDriver(tmp_path_factory.mktemp("tables"), jars)
    yield driver
    driver.kill()


@pytest.fixture
def start(_spark_environment: None, jars: str, tmp_path: Path) -> Iterator[Callable[[], TableDriver]]:
    """Starts drivers of their own, to be killed; none is left."""
    started: list[TableDriver] = []

    def begin() -> TableDriver:
        started.append(TableDriver(tmp_path / "spark", jars))
        return started[-1]

    yield begin
    for driver in started:
        driver.kill()
