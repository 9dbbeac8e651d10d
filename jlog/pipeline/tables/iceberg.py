"""An Iceberg table to which each batch is added once, by Iceberg's own snapshots: write, audit, publish.

A batch is staged as a snapshot that no reader sees, and checked. Then one commit publishes it and moves a tag to it. The tag
has the name of the pipeline, and keeps the last batch's snapshot, whose summary says which batch it is, when old ones expire.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jlog.errors import JournalError
from jlog.pipeline.tables.files import Files, directories_of
from jlog.pipeline.tables.table import Added, BatchId, Check, check_rows, counted, is_repeated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALOG = "org.apache.iceberg.spark.SparkCatalog"
STAGES = "write.wap.enabled"
STAGED_AS = "spark.wap.id"
STAGED_ID = "wap.id"  # in a snapshot's summary
TAG = "jlog-"
BATCH_ID = re.compile(r"jlog:(?P<pipeline>\w+):(?P<number>\d+):(?P<digest>\w+)")


class IcebergTable:
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
        self._sql_name = _name_of_path(spark, name) if is_path else name

    # --- Reading ------------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        return bool(self._spark.catalog.tableExists(self._sql_name))

    def is_empty(self) -> bool:
        """Says whether no pipeline has added a batch. Rows of other writers do not count."""
        if not self.exists():
            return not self._is_path or self._files.is_empty(self.name)
        return not any(str(name).startswith(TAG) for name in self._load().refs())

    def last_batch(self) -> int | None:
        last = self._newest(self._load()) if self.exists() else None
        return None if last is None else last[0].number

    def frame(self) -> DataFrame | None:
        if not self.exists():
            return None
        self._spark.sql(f"REFRESH TABLE {self._sql_name}")  # a catalog keeps tables in memory, for each session
        return self._spark.table(self._sql_name)

    def _load(self) -> Any:
        jvm: Any = self._spark.sparkContext._jvm
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._spark._jsparkSession, self._sql_name)
        table.refresh()
        return table

    def _newest(self, table: Any) -> tuple[BatchId, Any] | None:
        """Returns the last batch of this pipeline, and its snapshot."""
        tag = table.refs().get(self._tag)
        snapshot = None if tag is None else table.snapshot(tag.snapshotId())
        if snapshot is None:
            return None
        found = BATCH_ID.fullmatch(snapshot.summary().get(STAGED_ID) or "")
        if found is None or found["pipeline"] != self._pipeline:
            raise JournalError(
                f"the tag {self._tag} of {self.name} points to a snapshot that this pipeline did not create; remove the tag"
            )
        return BatchId(int(found["number"]), found["digest"]), snapshot

    @property
    def _tag(self) -> str:
        return f"{TAG}{self._pipeline}"

    def place(self) -> str | None:
        return str(self._load().location()) if self.exists() else None

    def takes_column(self, name: str) -> bool:  # noqa: ARG002
        return True

    # --- Adding -------------------------------------------------------------------------------------------------------

    def add(self, batch: BatchId, frame: DataFrame, check: Check = lambda _: None) -> Added:
        """Adds the rows; see Table.add. Rows that are not as they were written are never seen."""
        if not self.exists():
            self._create(frame)
        table = self._load()
        last = self._newest(table)
        if last is not None and is_repeated(batch, last[0], self.name):
            self._sync(last[1], table)  # the driver may have been killed before it has done so
            return Added(int(last[1].summary().get("added-records") or 0), False)
        return Added(self._write(batch, frame, table, check, is_first=last is None), True)

    def _write(self, batch: BatchId, frame: DataFrame, table: Any, check: Check, *, is_first: bool) -> int:
        if table.properties().get(STAGES) != "true":
            table.updateProperties().set(STAGES, "true").commit()
        written = self._stage(batch, frame, table)
        check(written)
        table.refresh()
        snapshot = self._staged(batch, table)
        self._check(snapshot, table, written)
        publishing = table.manageSnapshots().cherrypick(snapshot.snapshotId())
        tagged = publishing.createTag if is_first else publishing.replaceTag
        tagged(self._tag, snapshot.snapshotId()).commit()
        self._sync(snapshot, table)
        return written

    def _create(self, frame: DataFrame) -> None:
        from pyspark.sql import functions as f

        writer = self._spark.createDataFrame([], frame.schema).writeTo(self._sql_name).using("iceberg")
        if self._partition_by:
            writer = writer.partitionedBy(*(f.col(f"`{name}`") for name in self._partition_by))
        writer.tableProperty(STAGES, "true").create()

    def _id_of(self, batch: BatchId) -> str:
        return f"jlog:{self._pipeline}:{batch.number}:{batch.digest}"

    def _stage(self, batch: BatchId, frame: DataFrame, table: Any) -> int:
        """Writes the rows to files, and a snapshot that no reader sees."""
        session = frame.sparkSession  # that of the query, a copy of ours
        rows, written = counted(self._aligned(frame, table))
        # Without a shuffle after the count: it may repeat a task, whose rows would be counted again.
        writer = rows.writeTo(self._sql_name).option("distribution-mode", "none").option("fanout-enabled", "true")
        session.sql(f"REFRESH TABLE {self._sql_name}")
        session.conf.set(STAGED_AS, self._id_of(batch))
        try:
            writer.append()
        finally:
            session.conf.unset(STAGED_AS)
        return written()

    def _aligned(self, frame: DataFrame, table: Any) -> DataFrame:
        """Adds the frame's new columns to the table, where it evolves, and the table's other columns to the frame, as null."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import StructType

        jvm: Any = self._spark.sparkContext._jvm
        convert = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert
        if self._evolves:
            table.updateSchema().unionByNameWith(convert(frame._jdf.schema())).commit()
        known = StructType.fromJson(json.loads(convert(table.schema()).json()))
        given = {name.lower() for name in frame.columns}
        missing = [f.lit(None).cast(one.dataType).alias(one.name) for one in known if one.name.lower() not in given]
        return frame.select("*", *missing) if missing else frame

    def _staged(self, batch: BatchId, table: Any) -> Any:
        """Returns the newest snapshot with this batch; a killed driver may have left others."""
        found = [one for one in table.snapshots().iterator() if one.summary().get(STAGED_ID) == self._id_of(batch)]
        if not found:
            raise JournalError(
                f"{self.name} has no snapshot of batch {batch.number}, which was written; was the table replaced?"
            )
        return found[-1]

    # --- Checking -----------------------------------------------------------------------------------------------------

    def _check(self, snapshot: Any, table: Any, written: int) -> None:
        """Raises JournalError where the driver does not find the rows in the snapshot's files that were written."""
        added = snapshot.addedDataFiles(table.io()).iterator()
        found = sum(file.recordCount() for file in added if table.io().newInputFile(file.location()).exists())
        check_rows(self.name, written, found)

    def _sync(self, snapshot: Any, table: Any) -> None:
        """Syncs the files of a snapshot and of the table's newest version on this machine's file systems; Iceberg does not."""
        metadata = table.operations().current().metadataFileLocation()
        if "://" in metadata or self._files.local_path(metadata) is None:
            return
        newest = table.currentSnapshot()
        paths = [file.location() for file in snapshot.addedDataFiles(table.io()).iterator()]
        paths += [manifest.path() for one in (snapshot, newest) for manifest in one.dataManifests(table.io())]
        paths += [snapshot.manifestListLocation(), newest.manifestListLocation(), metadata]
        paths += [f"{os.path.dirname(metadata)}/version-hint.text"]
        found = {path for path in paths if self._files.exists(path)}
        self._files.sync([*found, *directories_of(found, table.location())])

    # --- Small files --------------------------------------------------------------------------------------------------

    def compact(self) -> None:
        """Joins small files into larger ones. Readers see the same rows all the time."""
        if self.exists():
            jvm: Any = self._spark.sparkContext._jvm
            table = self._load()
            jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._spark._jsparkSession).rewriteDataFiles(table).execute()
            table.refresh()
            if table.currentSnapshot() is not None:
                self._sync(table.currentSnapshot(), table)


def _name_of_path(spark: SparkSession, path: str) -> str:
    """Returns the name of the table at this path, in a catalog that is the directory around it."""
    parent, _, name = path.rpartition("/")
    catalog = f"jlog_{hashlib.sha256(parent.encode()).hexdigest()[:8]}"
    settings = {"": CATALOG, ".type": "hadoop", ".warehouse": parent or "/", ".cache-enabled": "false"}
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}{key}", value)
    return f"{catalog}.`{name.replace('`', '``')}`"
