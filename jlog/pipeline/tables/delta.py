"""A table of Delta Lake to which each batch is added once, by Delta's own transactions.

Delta keeps the number of the last batch of each writer with its data (`txnAppId` and `txnVersion`), and skips a batch that it
has. The commit's own note (`userMetadata`) has the digest of the batch.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from jlog.errors import JournalError
from jlog.pipeline.tables.files import Files, directories_of
from jlog.pipeline.tables.table import Added, BatchId, Check, check_rows, counted, is_repeated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("jlog.spark")

NOTE_KEY = "jlog"
NOTE = "spark.databricks.delta.commitInfo.userMetadata"
VERSION = re.compile(r"\d{20}\.json", re.ASCII)
LOG_FILES = (".json", ".crc", ".checkpoint.parquet")
MAPPING = "delta.columnMapping.mode"
REFUSED = set(" ,;{}()\n\t=")  # in names of columns, unless the table maps them to others


@dataclass(frozen=True)
class Note:
    """The note of a commit. pipeline: the id of the writer. batch and digest: None where a restored table has no batch yet.
    attempt: grows with each batch that was taken back, since Delta would skip the batch's number for the same writer."""

    pipeline: str
    attempt: int
    batch: int | None
    digest: str | None

    @property
    def as_json(self) -> str:
        return json.dumps({NOTE_KEY: asdict(self)})

    @classmethod
    def of(cls, text: str | None) -> Note | None:
        """Returns the note in this text; None where it is of somebody else."""
        return cls(**json.loads(text)[NOTE_KEY]) if text is not None and text.startswith(f'{{"{NOTE_KEY}": {{') else None


@dataclass(frozen=True)
class Commit:
    """A version of the table that a pipeline has committed. rows: as the tasks have reported them."""

    version: int
    rows: int
    note: Note


class DeltaTable:
    """A table at a path, or of a catalog. pipeline: an id that the checkpoint keeps. evolves: whether new columns are added."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        pipeline: str,
        partition_by: Sequence[str] = (),
        *,
        is_path: bool = True,
        evolves: bool = False,
    ) -> None:
        self.name = name
        self._spark = spark
        self._pipeline = pipeline
        self._partition_by = partition_by
        self._is_path = is_path
        self._evolves = evolves
        self._files = Files(spark)
        self._sql_name = f"delta.`{name.replace('`', '``')}`" if is_path else name
        self._location: str | None = None
        self._last: Commit | None = None

    # --- Reading ------------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        if self._is_path:
            return self._files.exists(f"{self.name}/_delta_log")
        return bool(self._spark.catalog.tableExists(self.name))

    def is_empty(self) -> bool:
        """Says whether no pipeline has added a batch. Rows of other writers do not count."""
        if not self.exists():
            return not self._is_path or self._files.is_empty(self.name)
        return self._find(lambda _: True) is None

    def last_batch(self) -> int | None:
        last = self._newest() if self.exists() else None
        return None if last is None else last.note.batch

    def frame(self) -> DataFrame | None:
        if not self.exists():
            return None
        return self._spark.read.format("delta").load(self.name) if self._is_path else self._spark.table(self.name)

    def place(self) -> str | None:
        return self._root() if self.exists() else None

    def takes_column(self, name: str) -> bool:
        """Says whether a column of this name can be added. A table of another writer may not map names."""
        if not REFUSED.intersection(name) or not self.exists():
            return True
        properties = self._spark.sql(f"DESCRIBE DETAIL {self._sql_name}").select("properties").collect()[0][0]
        return properties.get(MAPPING) in ("name", "id")

    def _newest(self) -> Commit | None:
        return self._find(lambda note: note.pipeline == self._pipeline)

    def _find(self, wanted: Callable[[Note], bool]) -> Commit | None:
        """Returns the newest commit with such a note."""
        for version, entries in self._history():
            found = [Note.of(entry["commitInfo"].get("userMetadata")) for entry in entries if "commitInfo" in entry]
            note = found[0] if found else None
            if note is not None and wanted(note):
                return Commit(version, _rows_in(entries), note)
        return None

    def _history(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        """Yields each version that Delta's log has, the newest first, and its entries there. The driver reads them: with
        DESCRIBE HISTORY executors do, and leave out what they do not see."""
        version = self._version()
        while (entries := self._entries(version)) is not None:
            yield version, entries
            version -= 1

    def _version(self) -> int:
        """Returns the newest version. The log may have files of many thousands of versions, and is listed only where nothing
        says where its end is."""
        log = f"{self._root()}/_delta_log"
        if self._last is not None:
            version = self._last.version
        elif (checkpoint := self._files.read(f"{log}/_last_checkpoint")) is not None:
            version = int(json.loads(checkpoint)["version"])
        else:
            found = [name for name in self._files.names(log) if VERSION.fullmatch(name)]
            version = int(max(found, default="-1.json").partition(".")[0])
        while self._files.exists(self._log_file(version + 1)):
            version += 1
        return version

    def _log_file(self, version: int) -> str:
        return f"{self._root()}/_delta_log/{version:020}.json"

    def _entries(self, version: int) -> list[dict[str, Any]] | None:
        """Returns what Delta's log has of this version; None where it has nothing."""
        text = None if version < 0 else self._files.read(self._log_file(version))
        return None if text is None else [json.loads(line) for line in text.splitlines()]

    # --- Adding -------------------------------------------------------------------------------------------------------

    def add(self, batch: BatchId, frame: DataFrame, check: Check = lambda _: None) -> Added:
        """Adds the rows; see Table.add. Delta makes a commit visible at once. So one that does not hold what was written is
        taken back: the table is restored to the version before."""
        if self._last is None:
            if not self.exists():
                self._create(frame)
            self._last = self._newest()
        last = self._last
        if last is None or not is_repeated(batch, _batch_of(last), self.name):
            return Added(self._write(batch, frame, last, check), True)
        if not self._is_read_since(last.version):
            self._check(last, None, last.rows)  # the driver may have been killed before it has looked
        return Added(last.rows, False)

    def _create(self, frame: DataFrame) -> None:
        """Creates the table without rows, so that there is a version to which it can be restored."""
        empty = self._spark.createDataFrame([], frame.schema).write.format("delta").mode("append")
        if self._evolves or any(REFUSED.intersection(name) for name in frame.columns):
            empty = empty.option(MAPPING, "name")
        self._save(empty.partitionBy(*self._partition_by))
        self._sync(0)

    def _write(self, batch: BatchId, frame: DataFrame, last: Commit | None, check: Check) -> int:
        attempt = 0 if last is None else last.note.attempt
        note = Note(self._pipeline, attempt, batch.number, batch.digest)
        rows, written = counted(frame)
        writer = rows.write.format("delta").mode("append").option("userMetadata", note.as_json)
        writer = writer.option("txnAppId", f"jlog-{self._pipeline}-{attempt}").option("txnVersion", str(batch.number))
        self._save(writer.option("mergeSchema", str(self._evolves).lower()))
        self._last = self._newest()
        if self._last is None or self._last.note != note:
            raise JournalError(
                f"{self.name} has skipped batch {batch.number}: it already has a batch of this number, which is older than "
                "its history. Begin anew with another destination and another checkpoint"
            )
        try:
            check(written())
        except JournalError:
            self._take_back(self._last, last)
            raise
        self._check(self._last, last, written())
        return self._last.rows

    def _save(self, writer: Any) -> None:
        if self._is_path:
            writer.save(self.name)
        else:
            writer.saveAsTable(self.name)

    # --- Checking -----------------------------------------------------------------------------------------------------

    def _check(self, commit: Commit, before: Commit | None, written: int) -> None:
        """Raises JournalError where the driver does not find the rows that were written, and takes them back first."""
        files = self._added_by(commit.version)
        found = sum(self._files.records(path) for path in files if self._files.exists(path))
        if found != written:
            try:
                self._take_back(commit, before)
            except (Py4JError, PySparkException):  # it needs executors, which do not see the table: the next run does it
                logger.exception("%s: version %d could not be taken back", self.name, commit.version)
            check_rows(self.name, written, found)
        self._sync(commit.version)

    def _is_read_since(self, version: int) -> bool:
        """Says whether a later version has replaced files of this one, as compaction does: so its writer has found them, and
        they may be gone by now."""
        files = {entry["add"]["path"] for entry in self._entries(version) or () if "add" in entry}
        later = (self._entries(number) or () for number in range(version + 1, self._version() + 1))
        return any(entry["remove"]["path"] in files for entries in later for entry in entries if "remove" in entry)

    def _added_by(self, version: int) -> list[str]:
        """Returns the files that this version adds, as Delta's log has them."""
        entries = self._entries(version)
        if entries is None:
            raise JournalError(f"{self.name}: the driver does not find version {version}, which it has written, in Delta's log")
        paths = [unquote(entry["add"]["path"]) for entry in entries if "add" in entry]
        return [path if "://" in path or path.startswith("file:") else f"{self._root()}/{path}" for path in paths]

    def _root(self) -> str:
        if self._location is None and self._is_path:
            self._location = self.name.rstrip("/")
        elif self._location is None:
            detail = self._spark.sql(f"DESCRIBE DETAIL {self._sql_name}").select("location").collect()
            self._location = str(detail[0][0])
        return self._location

    def _take_back(self, commit: Commit, before: Commit | None) -> None:
        newest = self._version()
        if newest != commit.version:
            raise JournalError(
                f"version {commit.version} of {self.name} has rows in files that the driver does not find, and there are newer "
                f"versions already. Restore the table to version {commit.version - 1}, or bring these files to where the "
                f"driver and all executors share them"
            )
        note = Note(self._pipeline, commit.note.attempt + 1, None, None)
        if before is not None:
            note = Note(self._pipeline, commit.note.attempt + 1, before.note.batch, before.note.digest)
        self._spark.conf.set(NOTE, note.as_json)
        try:
            self._spark.sql(f"RESTORE TABLE {self._sql_name} TO VERSION AS OF {commit.version - 1}")
        finally:
            self._spark.conf.unset(NOTE)
        restore = self._find(lambda known: known == note)
        restored = commit.version + 1 if restore is None else restore.version
        self._last = None
        if restored != commit.version + 1:  # another writer's commit came between the look and the RESTORE
            raise JournalError(
                f"{self.name}: version {restored} has taken back version {commit.version}, whose rows the driver does not "
                f"find. Other writers wrote the versions from {commit.version + 1} to {restored - 1} in the same moment, "
                "which are taken back too: let these writers write them again. Delta keeps their files until VACUUM removes "
                "them"
            )

    def _sync(self, version: int) -> None:
        """Syncs the files of a version on this machine's file systems, which Delta does not do."""
        root = self._root()
        if self._files.local_path(root) is None:
            return
        log = [f"{root}/_delta_log/{name}" for name in (*(f"{version:020}{end}" for end in LOG_FILES), "_last_checkpoint")]
        files = [path for path in (*self._added_by(version), *log) if self._files.exists(path)]
        self._files.sync([*files, *directories_of(files, root)])

    # --- Small files --------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Joins small files into larger ones. Readers see the same rows all the time."""
        if self.exists():
            self._spark.sql(f"OPTIMIZE {self._sql_name}")
            self._sync(self._version())


def _rows_in(entries: list[dict[str, Any]]) -> int:
    """Returns the rows that a commit has added, by its metrics; or by the statistics of its files, where it has no metrics."""
    for entry in entries:
        rows = entry.get("commitInfo", {}).get("operationMetrics", {}).get("numOutputRows")
        if rows is not None:
            return int(rows)
    return sum(json.loads(entry["add"].get("stats") or "{}").get("numRecords", 0) for entry in entries if "add" in entry)


def _batch_of(commit: Commit) -> BatchId | None:
    note = commit.note
    return None if note.batch is None or note.digest is None else BatchId(note.batch, note.digest)
