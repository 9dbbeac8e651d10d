"""The tables of the pipeline. JOURNAL is the journal's path."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Returns each record of the journal as a row: each run adds those that are new."""
    # The subscriber keeps the journal from removing what the pipeline has not read.
    source = spark.readStream.format("jlog").option("subscriber", "lake").option("maxRecordsPerTrigger", 200)
    return source.load(os.environ["JOURNAL"]).selectExpr("sequence", "timestamp", "cast(value AS string) AS value")


@dp.materialized_view
def per_customer() -> DataFrame:
    return spark.read.table("orders").selectExpr("get_json_object(value, '$.customer') AS customer").groupBy("customer").count()
