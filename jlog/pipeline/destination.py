"""The tables of a pipeline. Table and checkpoint are compared at each start and before each batch.

The table says up to where it has been loaded, and the checkpoint remembers what the table has said last. So a checkpoint or a
table that was restored, replaced or lost is noticed before a row is written, and before a subscriber moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jlog.errors import JournalError
from jlog.pipeline.plan import ADD, PARQUET
from jlog.pipeline.tables.connector import CONNECTORS, check_catalog
from jlog.pipeline.tables.delta import DeltaTable
from jlog.pipeline.tables.iceberg import IcebergTable
from jlog.pipeline.tables.parquet import ParquetTable
from jlog.pipeline.tables.table import AnotherPipeline, BatchId, Check, Table, TableState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jlog.pipeline.checkpoint import Checkpoint, QueryCheckpoint
    from jlog.pipeline.plan import PipelinePlan

FORMATS: dict[str, type[DeltaTable | IcebergTable]] = {"delta": DeltaTable, "iceberg": IcebergTable}
ANEW = "Or begin anew with another destination and another checkpoint"
ADOPT = "Or go on after the table's last batch, with --adopt and a new --checkpoint"
RELOAD = "Or load again what the sources still have, with --adopt and a new --checkpoint"


@dataclass(frozen=True)
class Added:
    """The rows of a batch that are in the table. is_new: whether this call has added them."""

    rows: int
    is_new: bool


class Destination:
    """A table to which a pipeline adds its batches. key: the name under which the checkpoint remembers it."""

    def __init__(self, table: Table, checkpoint: Checkpoint, key: str) -> None:
        self.table = table
        self.name: str = table.name
        self._checkpoint = checkpoint
        self._key = f"{key}.last"

    def compare(self, query: QueryCheckpoint | None = None) -> TableState | None:
        """Compares what table and checkpoint know, and returns the state of the table; None where it is new. query: at the
        start, the query that adds to it; later is known which batch comes. Raises JournalError where they do not agree."""
        state, last = self.table.state(), self._last()
        if state is None:
            if last is not None:
                raise self._error(f"but {self.name} has no batch of it: it was removed, replaced or is not mounted", last, "it")
            if not self.table.is_free():
                if query is not None and not query.is_new():
                    raise ValueError(
                        f"{self.name} and the checkpoint {self._checkpoint.path} are a pipeline that an earlier version of "
                        "jlog has begun, and this version cannot go on with it: begin it anew with another destination and "
                        "another checkpoint"
                    )
                raise ValueError(f"{self.name} already has Parquet files, which belong to no pipeline. Write somewhere else")
            return None
        if state.pipeline != self._checkpoint.kept_id():
            raise AnotherPipeline(self.name, state)
        there = state.batch
        if last is not None and state.taken_by:
            raise JournalError(
                f"the checkpoint {self._checkpoint.path} has loaded {self.name} up to batch {last.number}, and "
                f"{state.taken_by} has taken away all rows. Restore the table to the version before. {RELOAD}. {ANEW}"
            )
        if last is not None and not state.is_partial:
            if there is None or there.number < last.number:
                upto = "not even its first one" if there is None else f"only those up to {there.number}"
                raise self._error(f"but {self.name} has {upto}: it was restored from an older copy", last, "its newest content")
            if there.number == last.number and there != last:
                raise self._error(f"but {self.name} has another batch of that number", last, "the one that belongs to it")
        if query is not None and there is not None and not query.knows(there):
            raise self._older(f"the checkpoint {self._checkpoint.path} does not know it", there)
        if query is not None and state.retries:  # no batch comes again that would complete it
            self.table.complete(state)
        return state

    def add(self, batch: BatchId, frame: DataFrame, check: Check = lambda _: None) -> Added:
        """Adds the rows, if the table does not have this batch already; see Table.write."""
        known = self.compare()
        if known is not None and self._is_repeated(batch, known.batch):
            self.table.complete(known)
            added = Added(known.rows_of_batch, False)
        else:
            new = (known or TableState(self._checkpoint.kept_id(), self._checkpoint.path)).after(batch)
            added = Added(self.table.write(new, known, frame, check), True)
        self._checkpoint.keep_settings(self._key, {"number": batch.number, "digest": batch.digest})
        return added

    def add_retried(self, frame: DataFrame, check: Check) -> int:
        """Adds rows of the quarantine after the last batch, which stays the last one; returns their number."""
        state = self.compare()
        if state is None or state.batch is None:
            raise JournalError(f"{self.name} has no batch of this pipeline yet; retry the quarantine after its first one")
        return self.table.write(state.after_retry(), state, frame, check)

    def adopt(self) -> None:
        """Gives a table of another pipeline, if it is there, to this one, which begins after its last batch."""
        state = self.table.state()
        if state is not None and state.pipeline != self._checkpoint.kept_id():
            self.table.complete(state)
            new = TableState(self._checkpoint.kept_id(), self._checkpoint.path, end=state.end)
            self.table.claim(new, state)

    def last_batch(self) -> int | None:
        """Returns the number of the last batch that the table has of this pipeline."""
        state = self.table.state()
        return None if state is None or state.batch is None else state.batch.number

    def _last(self) -> BatchId | None:
        found = self._checkpoint.settings(self._key)
        return None if found is None else BatchId(**found)

    def _is_repeated(self, batch: BatchId, last: BatchId | None) -> bool:
        """Says whether the table has this batch already. Raises JournalError where the batch is another one under the same
        number, or an earlier one."""
        if last is None or batch.number > last.number:
            return False
        if batch == last:
            return True
        if batch.number == last.number:
            raise self._older(f"Spark comes with other records under the number {batch.number}", last)
        raise self._older(f"Spark comes with batch {batch.number}", last)

    def _older(self, problem: str, last: BatchId) -> JournalError:
        return JournalError(
            f"{self.name} has batch {last.number}, and {problem}: the checkpoint has lost files, or is an older copy. Bring "
            f"its newest files back. {ADOPT}. {ANEW}"
        )

    def _error(self, problem: str, last: BatchId, back: str) -> JournalError:
        return JournalError(
            f"the checkpoint {self._checkpoint.path} has loaded {self.name} up to batch {last.number}, {problem}. Bring {back} "
            f"back. {ADOPT}. {ANEW}"
        )


@dataclass(frozen=True)
class Tables:
    """The tables for records, and for those that could not be parsed."""

    records: Destination
    quarantine: Destination

    @property
    def by_name(self) -> dict[str, Destination]:
        """The tables by the names that a query knows them by."""
        return {"records": self.records, "quarantine": self.quarantine}

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
    return Tables(records, table(plan.quarantine, "quarantine"))
