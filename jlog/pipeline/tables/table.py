"""A table takes each batch of a query once, and knows the batch that it took last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from jlog.errors import JournalError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class BatchId:
    """A batch of a streaming query. number: Spark's. digest: of the source positions where it begins and ends. Spark may build
    another batch under the same number where its checkpoint has lost its newest files."""

    number: int
    digest: str


@dataclass(frozen=True)
class Added:
    """The rows of a batch that are in the table. is_new: whether this call has added them."""

    rows: int
    is_new: bool


class RowsMissing(JournalError):
    """The driver does not find all rows that the tasks have written."""


# Is called with the number of rows that the tasks have written, before they count. It raises JournalError for a wrong one.
Check = Callable[[int], None]


class Table(Protocol):
    """A place for rows: a directory, or a table of a catalog."""

    name: str

    def is_empty(self) -> bool:
        """Says whether there is nothing that a reader would find."""

    def add(self, batch: BatchId, frame: DataFrame, check: Check = lambda _: None) -> Added:
        """Adds the rows, if the table does not have this batch already: as a whole or not at all for every reader, and for
        good. Raises JournalError where the batch does not follow the last one (see `is_repeated`), where the driver does not
        find the rows that the tasks have written (see `check_rows`), or where `check` does. Then the batch is discarded."""

    def last_batch(self) -> int | None:
        """Returns the number of the batch that it took last; None where it has none."""

    def frame(self) -> DataFrame | None:
        """Returns all rows; None where there are none yet."""

    def place(self) -> str | None:
        """Returns the directory of its files; None where there is no table yet."""

    def takes_column(self, name: str) -> bool:
        """Says whether a column of this name can be added."""


def is_repeated(batch: BatchId, last: BatchId | None, table: str) -> bool:
    """Says whether the table has this batch already. last: the batch that it took last; it need not have taken every one.
    Raises JournalError where the batch is another one under the same number, or an earlier one."""
    if last is None or batch.number > last.number:
        return False
    if batch == last:
        return True
    if batch.number == last.number:
        problem = f"Spark comes with other records under the number {batch.number} of a batch that {table} has"
    else:
        problem = f"Spark comes with batch {batch.number}, and the last one that {table} has is {last.number}"
    raise JournalError(
        f"{problem}: the checkpoint has lost files, or is an older copy. Bring its newest files back, or begin anew with "
        f"another destination and another checkpoint"
    )


def counted(frame: DataFrame) -> tuple[DataFrame, Callable[[], int]]:
    """Returns the frame to write, and a function that says, once it is written, how many rows Spark has counted meanwhile. Make
    it the last step before the write: a stage that runs again would count its rows again."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

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
