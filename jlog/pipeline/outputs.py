"""The tables of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jlog.pipeline.plan import ADD, PARQUET
from jlog.pipeline.tables.connector import CONNECTORS, check_catalog
from jlog.pipeline.tables.delta import DeltaTable
from jlog.pipeline.tables.iceberg import IcebergTable
from jlog.pipeline.tables.parquet import ParquetTable
from jlog.pipeline.tables.table import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jlog.pipeline.checkpoint import Checkpoint
    from jlog.pipeline.plan import PipelinePlan

FORMATS: dict[str, type[DeltaTable | IcebergTable]] = {"delta": DeltaTable, "iceberg": IcebergTable}


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

    def places(self) -> list[str]:
        """Returns the directories of the tables that are there."""
        return [place for table in self.by_name.values() if (place := table.place()) is not None]


def tables_of(spark: SparkSession, plan: PipelinePlan, checkpoint: Checkpoint) -> Tables:
    """Returns the tables of a plan. Raises JournalError where Spark lacks the connector of their format, or their catalog."""
    if plan.format != PARQUET:
        CONNECTORS[plan.format].check(spark)
    if plan.is_table:
        check_catalog(spark, plan.dest)

    def table(place: str, lists: str, partition_by: Sequence[str], *, evolves: bool = False) -> Table:
        if plan.format == PARQUET:
            return ParquetTable(spark, place, f"{plan.checkpoint}/{lists}", partition_by)
        pipeline, is_path = checkpoint.kept_id(), not plan.is_table
        return FORMATS[plan.format](spark, place, pipeline, partition_by, is_path=is_path, evolves=evolves)

    records = table(plan.dest, "batches", plan.partition_by, evolves=plan.evolve == ADD)
    quarantine = table(plan.quarantine, "quarantine-batches", ("date",))
    if plan.windows is None:
        return Tables(records, quarantine)
    return Tables(records, quarantine, table(plan.windows.directory, "window-batches", ("date",)))


def compact(table: Table) -> None:
    """Joins the table's small files, where its format has transactions."""
    if isinstance(table, DeltaTable | IcebergTable):
        table.compact()
