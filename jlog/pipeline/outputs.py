"""The tables of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jlog.pipeline.destination import Destination
from jlog.pipeline.plan import ADD, PARQUET
from jlog.pipeline.tables.connector import CONNECTORS, check_catalog
from jlog.pipeline.tables.delta import DeltaTable
from jlog.pipeline.tables.iceberg import IcebergTable
from jlog.pipeline.tables.parquet import ParquetTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jlog.pipeline.checkpoint import Checkpoint
    from jlog.pipeline.plan import PipelinePlan

FORMATS: dict[str, type[DeltaTable | IcebergTable]] = {"delta": DeltaTable, "iceberg": IcebergTable}


@dataclass(frozen=True)
class Tables:
    """The tables for records, for those that could not be parsed, and for counts."""

    records: Destination
    quarantine: Destination
    windows: Destination | None = None

    @property
    def by_name(self) -> dict[str, Destination]:
        """The tables by the names that a query knows them by."""
        found = {"records": self.records, "quarantine": self.quarantine}
        return found if self.windows is None else {**found, "windows": self.windows}

    def places(self) -> list[str]:
        """Returns the directories of the tables that are there."""
        return [place for one in self.by_name.values() if (place := one.table.place()) is not None]


def tables_of(spark: SparkSession, plan: PipelinePlan, checkpoint: Checkpoint) -> Tables:
    """Returns the tables of a plan. Raises JournalError where Spark lacks the connector of their format, or their catalog."""
    if plan.format != PARQUET:
        CONNECTORS[plan.format].check(spark)
    if plan.is_table:
        check_catalog(spark, plan.dest)

    def table(place: str, key: str, partition_by: Sequence[str] = ("date",), *, evolves: bool = False) -> Destination:
        if plan.format == PARQUET:
            return Destination(ParquetTable(spark, place, partition_by), checkpoint, key)
        is_path = not plan.is_table
        made = FORMATS[plan.format](spark, place, partition_by, is_path=is_path, evolves=evolves, expires=plan.expire_seconds)
        return Destination(made, checkpoint, key)

    records = table(plan.dest, "records", plan.partition_by, evolves=plan.evolve == ADD)
    quarantine = table(plan.quarantine, "quarantine")
    return Tables(records, quarantine, None if plan.windows is None else table(plan.windows.directory, "windows"))
