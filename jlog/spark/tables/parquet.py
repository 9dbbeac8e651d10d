"""Directories of Parquet files to which each batch of a query is added once, for every reader, and not only for Spark.

A batch is staged, and the list of its moves is written down before the first file is moved. A process that is killed meanwhile
leaves either nothing, or a list that the next run goes through again; the query's replay of that batch then writes nothing.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = "_staging"  # every reader of Parquet skips names that begin so


@dataclass
class Output:
    """Rows to add to a directory."""

    frame: DataFrame
    directory: str
    partition_by: list[str]


@dataclass
class Added:
    """The rows that a batch added, by directory."""

    records: dict[str, int] = field(default_factory=dict)
    moves: list[tuple[str, str]] = field(default_factory=list)


class Lake:
    """Adds batches to directories. checkpoint: the directory for its lists, which belongs to the query alone."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self.files = Files(spark)
        self._lists = checkpoint
        self._id = self._make_id()

    def _make_id(self) -> str:
        """Makes the id that names of files contain, so that they differ after a checkpoint was begun anew."""
        path = f"{self._lists}/id"
        found = self.files.read(path)
        if found is None:
            self.files.write(path, secrets.token_hex(4))
            found = self.files.read(path)
        assert found is not None
        return found

    def add(self, batch: int, outputs: Callable[[], Iterable[Output]]) -> Added:
        """Adds a batch. `outputs` is called if nothing of the batch has been added yet; each output is written before the next
        one is asked for."""
        path = f"{self._lists}/{batch}.json"
        text = self.files.read(path)
        if text is None:
            added = self._stage(batch, outputs())
            self.files.write(path, json.dumps({"records": added.records, "moves": added.moves}))
        else:
            added = Added(**json.loads(text))
        for source, target in added.moves:
            self.files.move(source, target)
        self.files.sync({os.path.dirname(target) for _, target in added.moves})
        for directory in added.records:
            self.files.remove(f"{directory}/{STAGING}-{self._id}")
        self.files.remove(f"{self._lists}/{batch - 1}.json")
        return added

    def _stage(self, batch: int, outputs: Iterable[Output]) -> Added:
        added = Added()
        for output in outputs:
            staging = f"{output.directory}/{STAGING}-{self._id}"
            output.frame.write.mode("overwrite").partitionBy(*output.partition_by).parquet(staging)
            records = 0
            for number, (path, below) in enumerate(self.files.parquet_below(staging)):
                records += self.files.records(path)
                name = f"part-{batch:05}-{number:04}-{self._id}.parquet"
                added.moves.append((path, "/".join(filter(None, [output.directory, below, name]))))
            added.records[output.directory] = records
        self.files.sync(source for source, _ in added.moves)
        return added


class Files:
    """Files on any file system that Hadoop knows: this machine's, HDFS, object stores."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        found = self._jvm.org.apache.hadoop.fs.Path(path)
        return found.getFileSystem(self._conf), found

    def exists(self, path: str) -> bool:
        system, at = self._at(path)
        return bool(system.exists(at))

    def read(self, path: str) -> str | None:
        if not self.exists(path):
            return None
        system, at = self._at(path)
        stream = system.open(at)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        """Writes a file as a whole or not at all, even if the process is killed."""
        made = f"{os.path.dirname(path)}/_{os.path.basename(path)}"
        system, at = self._at(made)
        stream = system.create(at, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        self.sync([made])
        self.move(made, path)
        self.sync([os.path.dirname(path)])

    def move(self, source: str, target: str) -> None:
        """Moves a file to where there is none; or finds that this was done before."""
        system, to = self._at(target)
        if system.exists(to):
            return
        system.mkdirs(to.getParent())
        if not system.rename(self._at(source)[1], to):
            raise OSError(f"{source} could not be renamed to {target}")

    def remove(self, path: str) -> None:
        system, at = self._at(path)
        system.delete(at, True)

    def forget_first_batch(self, checkpoint: str) -> None:
        """Removes the remains of a driver that was killed while it noted a query's first batch. Spark 4.3 does not go on beside
        them (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY), though nothing was noted."""
        offsets = f"{checkpoint}/offsets"
        if self.exists(offsets):
            system, at = self._at(offsets)
            found = [file.getPath() for file in system.listStatus(at)]
            if all(path.getName().startswith(".") for path in found):
                for path in found:
                    system.delete(path, False)

    def is_empty(self, path: str) -> bool:
        """Says whether the directory has no file that a reader would look at."""
        return not self.exists(path) or next(self.parquet_below(path), None) is None

    def parquet_below(self, path: str) -> Iterator[tuple[str, str]]:
        """Yields each file, with the directory below `path` that it is in."""
        system, at = self._at(path)
        root = system.makeQualified(at).toString() + "/"
        found = system.listFiles(at, True)
        names = []
        while found.hasNext():
            names.append(found.next().getPath().toString().removeprefix(root))
        for name in sorted(names):
            if not any(part.startswith(("_", ".")) for part in name.split("/")):
                yield root + name, os.path.dirname(name)

    def records(self, path: str) -> int:
        """Returns the number of records in the file's footer."""
        hadoop = self._jvm.org.apache.parquet.hadoop
        reader = hadoop.ParquetFileReader.open(hadoop.util.HadoopInputFile.fromPath(self._at(path)[1], self._conf))
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()

    def sync(self, paths: Iterable[str]) -> None:
        """Syncs files and directories on this machine's file systems; other file systems do so themselves."""
        for path in paths:
            url = urlsplit(path)
            if url.scheme in ("", "file"):
                fd = os.open(path.removeprefix("file://").removeprefix("file:"), os.O_RDONLY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
