"""A directory of Parquet files to which each batch is added once, for every reader, and not only for Spark.

The directory has a log of its own, `_jlog`, in which no reader of Parquet looks. A batch is staged, and the next file of the
log is created in one step: it has the state of the table with this batch, and the list of its moves. Of two pipelines one
creates it. A process that is killed meanwhile leaves either nothing, or a list that the next run goes through again.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jlog.errors import JournalError
from jlog.pipeline.tables.files import Files, directories_of
from jlog.pipeline.tables.table import AnotherPipeline, Check, TableState, check_rows, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOG = "_jlog"
STAGING = "_staging"
GLOB = re.compile(r"[\[\]{}*?\\]")  # where Spark reads, these letters stand for others


@dataclass(frozen=True)
class Entry:
    """The newest file of the log. columns: the types of the table's columns. moves: each staged file, from the directory
    `staging` on, with its name in the table."""

    number: int
    state: TableState
    columns: dict[str, str]
    staging: str = ""
    moves: Sequence[tuple[str, str]] = ()

    @property
    def as_json(self) -> str:
        more = {"columns": self.columns, "staging": self.staging, "moves": self.moves}
        return json.dumps({"state": json.loads(self.state.as_json), **more})

    @classmethod
    def of(cls, number: int, text: str) -> Entry:
        found = json.loads(text)
        return cls(number, TableState.of(json.dumps(found.pop("state"))), **found)


class ParquetTable:
    """A directory."""

    def __init__(self, spark: SparkSession, directory: str, partition_by: Sequence[str] = ()) -> None:
        self.name = directory
        self._spark = spark
        self._partition_by = partition_by
        self._files = Files(spark)

    def state(self) -> TableState | None:
        newest = self._newest()
        return None if newest is None else newest.state

    def is_free(self) -> bool:
        return self._files.is_empty(self.name)

    def frame(self) -> DataFrame | None:
        return None if self._files.is_empty(self.name) else self._spark.read.parquet(GLOB.sub(r"\\\g<0>", self.name))

    def place(self) -> str | None:
        return self.name

    def takes_column(self, name: str) -> bool:  # noqa: ARG002
        return False

    def compact(self) -> None:
        raise NotImplementedError("while plain Parquet files are joined, a reader would see rows twice or miss them")

    # --- The log ------------------------------------------------------------------------------------------------------

    def _newest(self) -> Entry | None:
        numbers = self._numbers()
        text = self._files.read(self._path_of(numbers[-1])) if numbers else None
        if numbers and text is None:
            raise JournalError(f"{self.name}: another pipeline writes there just now; stop one of them")
        return None if text is None else Entry.of(numbers[-1], text)

    def _numbers(self) -> list[int]:
        names = (name.removesuffix(".json") for name in self._files.names(f"{self.name}/{LOG}"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _path_of(self, number: int) -> str:
        return f"{self.name}/{LOG}/{number:010}.json"

    def _append(self, entry: Entry) -> None:
        """Appends to the log. A pipeline that comes late, and creates a file whose namesake was removed already, is not the
        newest one."""
        path = self._path_of(entry.number)
        if not self._files.create(path, entry.as_json):
            raise AnotherPipeline(self.name, self.state())
        if self._numbers()[-1] != entry.number:
            self._files.remove(path)
            raise AnotherPipeline(self.name, self.state())

    def claim(self, new: TableState, known: TableState | None) -> None:
        newest = self._newest()
        if newest is None or newest.state != known:
            raise AnotherPipeline(self.name, None if newest is None else newest.state)
        self._append(Entry(newest.number + 1, new, newest.columns))

    # --- Adding -------------------------------------------------------------------------------------------------------

    def write(self, new: TableState, known: TableState | None, frame: DataFrame, check: Check) -> int:
        """See Table.write. The files are synced before their list is written, on this machine's file systems."""
        newest = self._newest()
        if (None if newest is None else newest.state) != known:
            raise AnotherPipeline(self.name, None if newest is None else newest.state)
        assert new.batch is not None
        columns = self._checked_columns(frame, {} if newest is None else newest.columns)
        staging = f"{STAGING}-{new.pipeline}"
        rows, written = counted(frame)
        rows.write.mode("overwrite").partitionBy(*self._partition_by).parquet(f"{self.name}/{staging}")
        token = secrets.token_hex(6)  # so that no other batch has a file of this name, whatever was restored meanwhile
        found, moves = 0, []
        for number, name in enumerate(self._files.parquet_below(f"{self.name}/{staging}")):
            found += self._files.records(f"{self.name}/{staging}/{name}")
            moves.append(
                (name, f"{name.rpartition('/')[0]}/part-{new.batch.number:05}-{number:04}-{token}.parquet".lstrip("/"))
            )
        check(written())
        check_rows(self.name, written(), found)
        self._files.sync(f"{self.name}/{staging}/{name}" for name, _ in moves)
        state = replace(new, rows=found)
        # Without a row there is no file, and the fields may not be known yet.
        entry = Entry(0 if newest is None else newest.number + 1, state, columns if found else {}, staging, moves)
        try:
            self._append(entry)
        except AnotherPipeline:
            self._files.remove(f"{self.name}/{staging}")
            raise
        self._move(entry)
        return found

    def complete(self, state: TableState) -> None:
        newest = self._newest()
        if newest is not None and newest.state == state:
            self._move(newest)

    def _move(self, entry: Entry) -> None:
        """Moves the staged files, if they were not moved before: then the directory around them is gone."""
        staging = f"{self.name}/{entry.staging}"
        if entry.staging and self._files.exists(staging):
            for source, target in entry.moves:
                self._files.move(f"{staging}/{source}", f"{self.name}/{target}")
            self._files.sync(directories_of([f"{self.name}/{target}" for _, target in entry.moves], self.name))
            self._files.remove(staging)
        for number in self._numbers():
            if number < entry.number:
                self._files.remove(self._path_of(number))

    def _checked_columns(self, frame: DataFrame, known: dict[str, str]) -> dict[str, str]:
        """Returns the types of all columns. Raises JournalError for one that readers could not follow: many take the columns of
        one file, and none reads a column of two types."""
        now = {one.name: one.dataType.simpleString() for one in frame.schema}
        wrong = [f"{name} {kind}" for name, kind in now.items() if known and known.get(name) != kind]
        if wrong:
            there = ", ".join(f"{name} {kind}" for name, kind in known.items())
            raise JournalError(
                f"{self.name} cannot take the columns {', '.join(wrong)}: its files have {there}, and readers of plain Parquet "
                "files could not follow. Give a --schema with these types, or write to another destination"
            )
        return known or now
