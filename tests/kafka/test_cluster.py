"""A journal on its way through Kafka to a table, on a cluster that shares nothing with the journal's host."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.dataset
import pytest
from kafka_broker import Broker

from kafka.processes import Process, fill, position, run_to_end
from kafka.witness import Witness
from patience import wait_until
from spark.clusters import Cluster, skip_without_namespaces

RECORDS = 100_000


@pytest.fixture
def cluster(_jars: None, tmp_path: Path) -> Iterator[Cluster]:
    skip_without_namespaces()
    started = Cluster(tmp_path / "cluster")
    yield started
    started.stop()


@pytest.mark.exhaustive
@pytest.mark.timeout(1_800)
def test_each_record_arrives_once_despite_kills(
    cluster: Cluster, broker: Broker, jars: str, topic: str, url: str, witness: Witness, processes: Callable[..., Process]
) -> None:
    """Of the mirror, an executor and the driver. A killed mirror leaves an aborted transaction in the topic, which must not be
    in the table."""
    witness.make(topic, partitions=1)
    journal, dest = cluster.private / "journal", cluster.shared / "lake"
    chance = random.Random(3)
    for first in (0, RECORDS):
        fill(journal, RECORDS, first)
        mirror = processes("to-kafka", journal, url, "--rate", 50_000)
        wait_until(lambda first=first: position(journal) > first)  # type: ignore[misc]
        assert mirror.runs_for(chance.uniform(0, 0.6))
        mirror.kill()
    conf = {"spark.jars": jars}
    running = cluster.pipeline("--batch-records", RECORDS // 10, "--trigger", "1s", url, dest, conf=conf)
    try:
        running.until(lambda: list(dest.glob("date=*/*.parquet")))
        cluster.kill_an_executor()
        run_to_end("to-kafka", journal, url)
    finally:
        running.kill()
    cluster.pipeline(url, dest, conf=conf).summary()
    found = pyarrow.dataset.dataset(str(dest), format="parquet", partitioning="hive").to_table(columns=["value"])
    values = Counter(found.column("value").to_pylist())
    assert set(values.values()) == {1}
    assert len(values) == 2 * RECORDS
