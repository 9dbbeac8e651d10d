"""A table takes each batch of a query once, and says itself which pipeline it belongs to and which batch it took last."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as f

from jlog.errors import JournalError
from jlog.pipeline.fitting import holds_all
from jlog.pipeline.tables.files import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PROPERTY = "jlog"  # of a table of a catalog: the state in which a pipeline has claimed it

Offset = dict[str, Any]  # of a source; Spark keeps it as JSON


@dataclass(frozen=True)
class BatchId:
    """A batch of a streaming query. number: Spark's. digest: of the source positions where it begins and ends. Spark may build
    another batch under the same number where its checkpoint has lost its newest files. end: these positions."""

    number: int
    digest: str
    end: list[Offset | None] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class TableState:
    """What a table says of itself. It is stored in the table, in one step with the rows of a batch.

    pipeline: the id of the pipeline that it belongs to. checkpoint: the place of that pipeline's checkpoint.
    batch: the last batch that it took, of this pipeline; None before the first one.
    rows: the number of the batch's rows; not stored where the table's format counts them itself.
    end: the source positions up to which it has been loaded, by this pipeline or by one before.
    retries: how often rows of the quarantine were added after this batch. Then `rows` are those of the last time, and
    batch_rows those of the batch.
    is_partial: the table's own history was cleaned, and does not say what its last batch is.
    taken_by: the change by which others took away all rows, and with them the last batch; see `takes_all`. Never stored."""

    pipeline: str
    checkpoint: str
    batch: BatchId | None = None
    rows: int = 0
    end: list[Offset | None] | None = None
    retries: int = 0
    batch_rows: int = 0
    is_partial: bool = False
    taken_by: str = ""

    @property
    def as_json(self) -> str:
        found = asdict(replace(self, batch=self.batch and replace(self.batch, end=None), taken_by=""))
        return json.dumps({name: value for name, value in found.items() if value not in (None, 0, False, "")})

    @classmethod
    def of(cls, text: str) -> TableState:
        found = json.loads(text)
        batch = found.pop("batch", None)
        return cls(**found, batch=None if batch is None else BatchId(batch["number"], batch["digest"]))

    def after(self, batch: BatchId) -> TableState:
        """Returns the state once this batch was added."""
        return replace(self, batch=batch, rows=0, end=batch.end, retries=0, batch_rows=0, is_partial=False, taken_by="")

    def without_rows(self, taken_by: str) -> TableState:
        """Returns the state once others have taken away all rows."""
        return replace(self, batch=None, rows=0, end=None, retries=0, batch_rows=0, taken_by=taken_by)

    def after_retry(self) -> TableState:
        """Returns the state once rows of the quarantine were added, which belong to no batch of the query."""
        return replace(self, retries=self.retries + 1, batch_rows=self.rows_of_batch)

    @property
    def rows_of_batch(self) -> int:
        return self.batch_rows if self.retries else self.rows


class RowsMissing(JournalError):
    """The driver does not find all rows that the tasks have written."""


class AnotherPipeline(JournalError):
    """The table belongs to another pipeline, which may have claimed it in the same moment."""

    def __init__(self, table: str, state: TableState | None) -> None:
        of = "another pipeline" if state is None else f"another pipeline, with the checkpoint {state.checkpoint}"
        super().__init__(
            f"{table} belongs to {of}. Use the checkpoint of that pipeline, or write somewhere else. Where that checkpoint is "
            "lost: --adopt and a new --checkpoint take over the table, and go on after its last batch"
        )


# Is called with the number of rows that the tasks have written, before they count. It raises JournalError for a wrong one.
Check = Callable[[int], None]


class Table(Protocol):
    """A place for rows: a directory, or a table of a catalog."""

    name: str

    def state(self) -> TableState | None:
        """Returns what the table says now; None where it belongs to no pipeline, or is not there."""

    def is_free(self) -> bool:
        """Says whether a pipeline can begin to write there: to a table of other writers, but not beside other files."""

    def claim(self, new: TableState, known: TableState | None) -> None:
        """Gives the table, which must be there, to a pipeline. Raises AnotherPipeline where it does not say any more what is
        known of it: of pipelines that begin in the same moment, one gets it."""

    def write(self, new: TableState, known: TableState | None, frame: DataFrame, check: Check) -> int:
        """Adds the batch of the new state and returns the number of its rows: as a whole or not at all for every reader, and
        for good. known: what the table has said before; it is claimed where that is None. Raises JournalError where the driver
        does not find the rows that the tasks have written (see `check_rows`), or where `check` does. Then the batch is
        discarded."""

    def complete(self, state: TableState) -> None:
        """Completes the batch of this state, where the driver was killed after it was added, and before it was looked at."""

    def frame(self) -> DataFrame | None:
        """Returns all rows; None where there are none yet."""

    def place(self) -> str | None:
        """Returns the directory of its files; None where there is no table yet."""

    def takes_column(self, name: str) -> bool:
        """Says whether a column of this name can be added."""

    def compact(self) -> None:
        """Joins small files into larger ones. Readers see the same rows all the time."""


class CatalogTable(Table):
    """A table of Delta Lake or Iceberg, at a path or of a catalog. evolves: whether new columns are added. expires: the age in
    seconds at which snapshots may be removed; None: never."""

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


def takes_all(*, there: int, removed: int, rewritten: int) -> bool:
    """Judges a change by another writer: whether it took away all that was there, as CREATE OR REPLACE, TRUNCATE, an overwrite
    and a DELETE without a condition do. One that leaves some, or writes it again, as UPDATE does, has chosen what to change.
    The numbers are those of rows or of files. rewritten: those among the added ones that may have been there before."""
    return 0 < there <= removed and not rewritten


def counted(frame: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """Returns the frame to write, and a function that says, once it is written, how many rows Spark has counted meanwhile. Make
    it the last step before the write: a stage that runs again would count its rows again."""
    seen = Observation()
    return frame.observe(seen, f.count(f.lit(1)).alias("rows")), lambda: int(seen.get["rows"])


def check_rows(table: str, written: int, found: int) -> None:
    """Compares the rows that tasks have written with those that the driver finds in the table. Raises RowsMissing where they
    differ."""
    if found != written:
        raise RowsMissing(
            f"{table}: the tasks have written {written} rows, and the driver finds {found} of them: not every host sees the "
            f"same files there. The whole batch is discarded. Use a place that the driver and all executors share"
        )
