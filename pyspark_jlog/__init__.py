"""Spark looks for `DefaultSource` in every top-level package whose name begins with pyspark_."""

from jlog.spark.source import JournalDataSource as DefaultSource

__all__ = ["DefaultSource"]
