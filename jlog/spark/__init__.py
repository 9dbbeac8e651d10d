"""Reads and writes journals with Spark: spark.read.format("jlog"), readStream, and the same with write.

Needs PySpark 4.1 or newer and pyarrow: pip install 'pyjlog[spark]'. Nothing has to be registered; docs/spark.md is the guide.
"""

from jlog.spark.frames import load
from jlog.spark.progress import JournalProgress, progress
from jlog.spark.writing.ledger import Entry, forget, queries
from jlog.spark.writing.left_over import clean

__all__ = ["Entry", "JournalProgress", "clean", "forget", "load", "progress", "queries"]
