"""A directory of Parquet files to which each batch is added once, for every reader, and not only for Spark.

A batch is staged, and the list of its moves is written down before the first file is moved. A process that is killed meanwhile
leaves either nothing, or a list that the next run goes through again.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from jlog.pipeline.tables.files import Files, directories_of
from jlog.pipeline.tables.table import Added, BatchId, Check, check_rows, counted, is_repeated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = "_staging"  # every reader of Parquet skips names that begin so
GLOB = re.compile(r"[\[\]{}*?\\]")  # where Spark reads, these letters stand for others


@dataclass(frozen=True)
class MoveList:
    """The staged files of a batch, each with its name in the table."""

    number: int
    digest: str
    rows: int
    moves: list[tuple[str, str]]

    @property
    def batch(self) -> BatchId:
        return BatchId(self.number, self.digest)


class ParquetTable:
    """A directory. lists: a directory for its lists, which belongs to it alone."""

    def __init__(self, spark: SparkSession, directory: str, lists: str, partition_by: Sequence[str] = ()) -> None:
        self.name = directory
        self._spark = spark
        self._partition_by = partition_by
        self._lists = lists
        self._files = Files(spark)
        self._id: str | None = None
        self._last: MoveList | None = None

    def is_empty(self) -> bool:
        return self._files.is_empty(self.name)

    def last_batch(self) -> int | None:
        last = self._newest()
        return None if last is None else last.number

    def frame(self) -> DataFrame | None:
        return None if self.is_empty() else self._spark.read.parquet(GLOB.sub(r"\\\g<0>", self.name))

    def place(self) -> str | None:
        return self.name

    def takes_column(self, name: str) -> bool:  # noqa: ARG002
        return False

    def add(self, batch: BatchId, frame: DataFrame, check: Check = lambda _: None) -> Added:
        """Adds the rows; see Table.add. The files are synced before their list is written, on this machine's file systems."""
        before = last = self._newest()
        repeated = last is not None and is_repeated(batch, last.batch, self.name)
        if last is None or not repeated:
            last = self._stage(batch, frame, check)
            self._files.write(self._path_of(batch.number), json.dumps(asdict(last)))
            self._last = last
        for source, target in last.moves:
            self._files.move(source, target)
        self._files.sync(directories_of([target for _, target in last.moves], self.name))
        self._files.remove(self._staging)
        if before is not None and not repeated:
            self._files.remove(self._path_of(before.number))
        return Added(last.rows, not repeated)

    def _newest(self) -> MoveList | None:
        if self._last is None:
            names = (name.removesuffix(".json") for name in self._files.names(self._lists))
            numbers = sorted(int(name) for name in names if name.isdecimal())
            for number in numbers[:-1]:
                self._files.remove(self._path_of(number))
            if numbers:
                self._last = MoveList(**json.loads(self._files.read(self._path_of(numbers[-1])) or ""))
        return self._last

    def _path_of(self, number: int) -> str:
        return f"{self._lists}/{number}.json"

    def _stage(self, batch: BatchId, frame: DataFrame, check: Check) -> MoveList:
        rows, written = counted(frame)
        rows.write.mode("overwrite").partitionBy(*self._partition_by).parquet(self._staging)
        found, moves = 0, []
        for number, (path, below) in enumerate(self._files.parquet_below(self._staging)):
            found += self._files.records(path)
            name = f"part-{batch.number:05}-{number:04}-{self._kept_id()}.parquet"
            moves.append((path, "/".join(filter(None, [self.name, below, name]))))
        check(written())
        check_rows(self.name, written(), found)
        self._files.sync(source for source, _ in moves)
        return MoveList(batch.number, batch.digest, found, moves)

    @property
    def _staging(self) -> str:
        return f"{self.name}/{STAGING}-{self._kept_id()}"

    def _kept_id(self) -> str:
        """Returns the id that names of files contain, so that they differ after a checkpoint was begun anew."""
        if self._id is None:
            path = f"{self._lists}/id"
            self._id = self._files.read(path)
            if self._id is None:
                self._id = secrets.token_hex(4)
                self._files.write(path, self._id)
        return self._id
