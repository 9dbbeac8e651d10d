"""What a pipeline is to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jlog.spark.parquet.parsing import Parser

BATCH_RECORDS = 5_000_000


@dataclass(frozen=True)
class Windows:
    """Counts for each window of time, and each value of these columns: in a directory of their own, when the watermark, so
    many seconds behind the newest record, has passed it."""

    directory: str
    seconds: float
    watermark_seconds: float = 600.0
    by: tuple[str, ...] = ()


@dataclass(frozen=True)
class PipelinePlan:
    """sources: journals' paths and kafka:// URLs. dest, checkpoint, quarantine: directories of any file system that Spark
    knows. interval: seconds from batch to batch; None: what is there now, and then the end. schema: of the fields, as DDL;
    None: as the first records have them. subscriber: whose position in the journals follows."""

    sources: tuple[str, ...]
    dest: str
    checkpoint: str
    quarantine: str
    parser: Parser
    schema: str | None = None
    partition_by: tuple[str, ...] = ("date",)
    interval: float | None = None
    batch_records: int = BATCH_RECORDS
    subscriber: str | None = None
    windows: Windows | None = None
    query: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same whenever the pipeline goes on."""
        return {
            "dest": self.dest,
            "quarantine": self.quarantine,
            "parse": self.parser.kind,
            "partition_by": list(self.partition_by),
        }
