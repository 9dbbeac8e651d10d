"""Spark looks for `DefaultSource` in every top-level module whose name begins with pyspark_. It is installed as one."""

from jlog.spark.data_source import JournalDataSource as DefaultSource

__all__ = ["DefaultSource"]
