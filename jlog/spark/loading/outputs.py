"""The tables of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jlog.spark.tables.parquet import ParquetTable
from jlog.spark.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jlog.spark.loading.plan import PipelinePlan


@dataclass(frozen=True)
class Tables:
    """The tables for records, for those that could not be parsed, and for counts."""

    records: Table
    quarantine: Table
    windows: Table | None = None

    @property
    def by_name(self) -> dict[str, Table]:
        """The tables by the names that a query knows them by."""
        found = {"records": self.records, "quarantine": self.quarantine}
        return found if self.windows is None else {**found, "windows": self.windows}


def tables_of(spark: SparkSession, plan: PipelinePlan) -> Tables:
    records = ParquetTable(spark, plan.dest, f"{plan.checkpoint}/batches", plan.partition_by)
    quarantine = ParquetTable(spark, plan.quarantine, f"{plan.checkpoint}/quarantine-batches", ("date",))
    if plan.windows is None:
        return Tables(records, quarantine)
    windows = ParquetTable(spark, plan.windows.directory, f"{plan.checkpoint}/window-batches", ("date",))
    return Tables(records, quarantine, windows)
