"""The connectors of tables, on a Spark that they are not made for."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from jlog import JournalError
from jlog.spark.tables.connector import CONNECTORS, DELTA, ICEBERG, Connector


@pytest.mark.parametrize("connector", CONNECTORS.values(), ids=CONNECTORS)
def test_a_missing_connector_is_named_with_its_spark(spark: SparkSession, connector: Connector) -> None:
    with pytest.raises(JournalError, match=r"not there, and this is Spark.* tested with Spark 4\.1") as refused:
        connector.check(spark)
    for told in (connector.package, "pip install 'pyspark==4.1.*'", "spark.jars.packages"):
        assert told in str(refused.value)


def test_extensions_of_others_stay() -> None:
    conf = {"spark.sql.extensions": "a.B", "spark.sql.catalog.spark_catalog": "c.D"}
    found = DELTA.with_settings(conf)
    assert found["spark.sql.extensions"] == "a.B,io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.sql.catalog.spark_catalog"] == "c.D"
    assert ICEBERG.with_settings(conf) == conf
