"""What tables of Delta Lake and Iceberg have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from jlog.pipeline.tables.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROPERTY = "jlog"  # of the table: the state in which a pipeline has claimed it


class CatalogTable:
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

    def _partitioned(self, creator: Any) -> Any:
        """Adds the columns to partition by to what creates the table."""
        columns = [f.col(f"`{name}`") for name in self._partition_by]
        return creator.partitionedBy(*columns) if columns else creator
