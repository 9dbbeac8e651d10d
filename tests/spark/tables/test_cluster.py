"""Tables of Delta Lake and Iceberg on a master and two workers, each on a host of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import jlog
from spark.clusters import Cluster, skip_without_namespaces
from spark.tables.running import PYSPARK, TableDriver

pytestmark = [pytest.mark.timeout(900), pytest.mark.exhaustive]
RECORDS = 250_000  # which take more than one task


@pytest.fixture(scope="module")
def _hosts(_spark_environment: None, jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    skip_without_namespaces()
    cluster = Cluster(tmp_path_factory.mktemp("hosts"), PYSPARK)
    yield cluster
    cluster.stop()


def fill(path: Path, records: int) -> None:
    with jlog.Writer(path, segment_bytes=1 << 20) as writer:
        for _ in range(0, records, 1_000):
            writer.extend([b'{"level": "info", "message": "%020d"}' % 1] * 1_000)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_each_record_is_there_once_despite_kills(hosts: Cluster, tables: TableDriver, jars: str, name: str, kind: str) -> None:
    """An executor is killed, and then the driver."""
    journal, dest = hosts.shared / name / "journal", hosts.shared / name / "table"
    fill(journal, RECORDS)
    arguments = ["--format", kind, "--parse", "json", "--subscriber", "lake", journal, dest]
    conf = {"spark.jars": jars}
    running = hosts.pipeline("--trigger", "1s", *arguments, conf=conf)
    try:
        running.until(lambda: jlog.Journal(journal).subscribers() and list(dest.rglob("*.parquet")))
        hosts.kill_an_executor()
        before = len(list(dest.rglob("*.parquet")))
        fill(journal, RECORDS)
        running.until(lambda: len(list(dest.rglob("*.parquet"))) > before)
    finally:
        running.kill()
    summary = hosts.pipeline(*arguments, conf=conf).summary()
    if jlog.Journal(journal).subscribers()["lake"].lag:  # the run has ended with the batch that it had to repeat
        summary = hosts.pipeline(*arguments, conf=conf).summary()
    assert summary["records_bad"] == 0
    assert tables.records(kind, str(dest)) == [2 * RECORDS, 2 * RECORDS, 2 * RECORDS - 1]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_that_one_host_hides_are_not_counted(hosts: Cluster, tables: TableDriver, jars: str, name: str, kind: str) -> None:
    """The catalog knows the place of the table, so only the rows themselves show that a host does not share it."""
    journal, dest = hosts.shared / name / "journal", hosts.partly / name
    fill(journal, RECORDS)
    catalog = "spark_catalog" if kind == "delta" else "shop"
    conf = {"spark.jars": jars, "spark.sql.warehouse.dir": str(dest)}
    if kind == "iceberg":
        conf["spark.sql.catalog.shop"] = "org.apache.iceberg.spark.SparkCatalog"
        conf |= {"spark.sql.catalog.shop.type": "hadoop", "spark.sql.catalog.shop.warehouse": str(dest)}
    table = f"{catalog}.default.orders"
    checkpoint = hosts.shared / name / "checkpoint"
    arguments = ["--format", kind, "--table", table, "--checkpoint", checkpoint, "--subscriber", "lake", journal]
    told = hosts.pipeline(*arguments, conf=conf).error()
    assert f"worker-2 does not share {dest}" in told
    assert "worker-1" not in told
    assert jlog.Journal(journal).subscribers()["lake"].sequence == 0
