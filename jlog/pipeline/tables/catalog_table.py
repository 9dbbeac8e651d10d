"""What tables of Delta Lake and Iceberg have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

from jlog.errors import JournalError
from jlog.pipeline.fitting import holds_all
from jlog.pipeline.tables.files import Files
from jlog.pipeline.tables.table import AnotherPipeline, Table, TableState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PROPERTY = "jlog"  # of the table: the state in which a pipeline has claimed it


class CatalogTable(Table):
    """A table at a path, or of a catalog. evolves: whether new columns are added. expires: the age in seconds at which
    snapshots may be removed; None: never."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        partition_by: Sequence[str] = (),
        *,
        is_path: bool = True,
        evolves: bool = False,
        expires: float | None = None,
    ) -> None:
        self.name = name
        self._spark = spark
        self._partition_by = partition_by
        self._is_path = is_path
        self._evolves = evolves
        self._expires = expires
        self._files = Files(spark)

    def exists(self) -> bool:
        raise NotImplementedError

    def is_free(self) -> bool:
        return self.exists() or not self._is_path or self._files.is_empty(self.name)

    def _claim_or_create(self, new: TableState, frame: DataFrame) -> None:
        """Gives the table to the pipeline of the new state, before its first batch. Of several pipelines that create it in the
        same moment, one does."""
        claim = replace(new, batch=None, end=None)
        if self.exists():
            self.claim(claim, None)
            return
        try:
            self._create(self._spark.createDataFrame([], frame.schema), claim)
        except (PySparkException, Py4JError) as error:
            state = self.state() if self.exists() else claim
            if state is not None and state.pipeline == claim.pipeline:
                raise
            raise AnotherPipeline(self.name, state) from error

    def _create(self, empty: DataFrame, claim: TableState) -> None:
        """Creates the table with the columns of a frame without rows."""
        raise NotImplementedError

    def _check_types(self, rows: StructType, table: StructType) -> None:
        """Raises JournalError where a column of the table would change values: the table has an older schema, or is
        another writer's."""
        there = {one.name.lower(): one for one in table}
        pairs = [(one, there[one.name.lower()]) for one in rows if one.name.lower() in there]
        wrong = [(one, column) for one, column in pairs if not holds_all(column.dataType, one.dataType)]
        if wrong:
            new = ", ".join(f"{one.name} {one.dataType.simpleString()}" for one, _ in wrong)
            old = ", ".join(f"{column.name} {column.dataType.simpleString()}" for _, column in wrong)
            raise JournalError(
                f"{self.name} cannot take the columns {new}: it has {old}, which would change values. Give a --schema with "
                "these types, or write to another destination"
            )

    def _partitioned(self, creator: Any) -> Any:
        """Adds the columns to partition by to what creates the table."""
        columns = [f.col(f"`{name}`") for name in self._partition_by]
        return creator.partitionedBy(*columns) if columns else creator
