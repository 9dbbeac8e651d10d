"""An Iceberg table to which each batch is added once, by Iceberg's own snapshots: write, audit, publish.

A batch is staged as a snapshot that no reader sees, and checked. Then one commit publishes it and moves a tag to it. The tag
has the name of the pipeline, and keeps the last batch's snapshot when old ones expire. Its summary has the state of the table
after the batch; a property of the table has the claim.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from jlog.errors import JournalError
from jlog.pipeline.tables.files import directories_of
from jlog.pipeline.tables.table import (
    PROPERTY,
    AnotherPipeline,
    CatalogTable,
    Check,
    TableState,
    check_rows,
    counted,
    takes_all,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CATALOG = "org.apache.iceberg.spark.SparkCatalog"
STAGES = "write.wap.enabled"
STAGED_AS = "spark.wap.id"
STAGED_ID = "wap.id"  # in a snapshot's summary
OVERWRITES = "replace-partitions"  # in the summary of a dynamic INSERT OVERWRITE
TAG = "jlog-"
# Each batch adds a file that lists all snapshots: without the second one their number would grow with each batch.
PROPERTIES = {STAGES: "true", "write.metadata.delete-after-commit.enabled": "true"}


class IcebergTable(CatalogTable):
    """A table at a path, or of a catalog."""

    _sql: str | None = None

    # --- Reading ------------------------------------------------------------------------------------------------------

    @property
    def _sql_name(self) -> str:
        if self._sql is None:
            self._sql = _name_of_path(self._spark, self.name) if self._is_path else self.name
        return self._sql

    def exists(self) -> bool:
        return bool(self._spark.catalog.tableExists(self._sql_name))

    def state(self) -> TableState | None:
        return _state_of(self._load()) if self.exists() else None

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

    def place(self) -> str | None:
        return str(self._load().location()) if self.exists() else None

    def takes_column(self, name: str) -> bool:  # noqa: ARG002
        return True

    # --- Adding -------------------------------------------------------------------------------------------------------

    def claim(self, new: TableState, known: TableState | None) -> None:
        """Sets the property if nobody has changed the table since it was looked at."""
        table = self._load()
        operations = table.operations()
        base = operations.refresh()
        state = _state_of(table)
        if state != known:
            raise AnotherPipeline(self.name, state)
        found = self._spark.sparkContext._jvm.java.util.HashMap(base.properties())  # type: ignore[union-attr]
        found.put(PROPERTY, new.as_json)
        try:
            operations.commit(base, base.replaceProperties(found))
        except Py4JJavaError as error:
            if "CommitFailedException" not in str(error.java_exception):
                raise
            self.claim(new, known)  # another writer was faster

    def write(self, new: TableState, known: TableState | None, frame: DataFrame, check: Check) -> int:
        """See Table.write. Rows that are not as they were written are never seen."""
        if known is None:
            self._claim_or_create(new, frame)
        table = self._load()
        before = _state_of(table)
        if before is None or before.pipeline != new.pipeline:
            raise AnotherPipeline(self.name, before)
        if table.properties().get(STAGES) != "true":
            table.updateProperties().set(STAGES, "true").commit()
        written = self._stage(new, frame, table)
        check(written)
        table.refresh()
        snapshot = self._staged(new, table)
        self._check(snapshot, table, written)
        publishing = table.manageSnapshots().cherrypick(snapshot.snapshotId())
        tag = f"{TAG}{new.pipeline}"
        tagged = publishing.createTag if table.refs().get(tag) is None else publishing.replaceTag
        tagged(tag, snapshot.snapshotId()).commit()
        self._sync(snapshot, table)
        return written

    def complete(self, state: TableState) -> None:
        table = self._load()
        snapshot = None if state.batch is None else _tagged(table, state.pipeline)
        if snapshot is not None:
            self._sync(snapshot, table)  # the driver may have been killed before it has done so

    def _create(self, empty: DataFrame, claim: TableState) -> None:
        creator = self._partitioned(empty.writeTo(self._sql_name).using("iceberg"))
        for name, value in {**PROPERTIES, PROPERTY: claim.as_json}.items():
            creator = creator.tableProperty(name, value)
        creator.create()

    def _stage(self, new: TableState, frame: DataFrame, table: Any) -> int:
        """Writes the rows to files, and a snapshot that no reader sees."""
        session = frame.sparkSession  # that of the query, a copy of ours
        rows, written = counted(self._aligned(frame, table))
        # Without a shuffle after the count: it may repeat a task, whose rows would be counted again.
        writer = rows.writeTo(self._sql_name).option("distribution-mode", "none").option("fanout-enabled", "true")
        writer = writer.option(f"snapshot-property.{PROPERTY}", new.as_json)
        session.sql(f"REFRESH TABLE {self._sql_name}")
        session.conf.set(STAGED_AS, _id_of(new))
        try:
            writer.append()
        finally:
            session.conf.unset(STAGED_AS)
        return written()

    def _aligned(self, frame: DataFrame, table: Any) -> DataFrame:
        """Adds the frame's new columns to the table, where it evolves, and the table's other columns to the frame, as null."""
        jvm: Any = self._spark.sparkContext._jvm
        convert = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert
        if self._evolves:
            table.updateSchema().unionByNameWith(convert(frame._jdf.schema())).commit()
        known = StructType.fromJson(json.loads(convert(table.schema()).json()))
        self._check_types(frame.schema, known)
        given = {name.lower() for name in frame.columns}
        missing = [f.lit(None).cast(one.dataType).alias(one.name) for one in known if one.name.lower() not in given]
        return frame.select("*", *missing) if missing else frame

    def _staged(self, new: TableState, table: Any) -> Any:
        """Returns the newest snapshot with this batch; a killed driver may have left others."""
        found = [one for one in table.snapshots().iterator() if one.summary().get(STAGED_ID) == _id_of(new)]
        if not found:
            raise JournalError(
                f"{self.name} has no snapshot of the batch {_id_of(new)}, which was written just now: something has replaced "
                "the table, or has removed the snapshot. Run the pipeline again"
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
        if self.exists():
            jvm: Any = self._spark.sparkContext._jvm
            table = self._load()
            jvm.org.apache.iceberg.spark.actions.SparkActions.get(self._spark._jsparkSession).rewriteDataFiles(table).execute()
            table.refresh()
            if self._expires is not None:  # the tag keeps the last batch's
                table.expireSnapshots().expireOlderThan(round((time.time() - self._expires) * 1000)).commit()
            if table.currentSnapshot() is not None:
                self._sync(table.currentSnapshot(), table)


def _state_of(table: Any) -> TableState | None:
    """Returns the state that the tag's snapshot has; before the first batch the claim. Where others have rolled the table back,
    the last batch is the newest one that it still has."""
    text = table.properties().get(PROPERTY)
    if text is None:
        return None
    claim = TableState.of(text)
    last, taken_by = _published(table, _tagged(table, claim.pipeline), claim.pipeline)
    if taken_by:
        return claim.without_rows(taken_by)
    if last is None:
        return claim
    summary = last.summary()
    return replace(TableState.of(summary.get(PROPERTY)), rows=int(summary.get("added-records") or 0))


def _published(table: Any, last: Any, pipeline: str) -> tuple[Any, str]:
    """Returns the snapshot of the last batch, if readers still have it, or that of the last one that they have; and what has
    taken all rows away, where that is why they have none. Readers see the current snapshot and those that it was made from.
    The tag says only which one was the last."""
    ancestor, is_undone = table.currentSnapshot(), False
    if last is not None and ancestor is None:
        return None, "a CREATE OR REPLACE TABLE"
    while last is not None and ancestor is not None:
        source = int(ancestor.summary().get("source-snapshot-id") or -1)
        if last.snapshotId() in (ancestor.snapshotId(), source):
            return last, ""
        if not is_undone and _takes_all(ancestor):
            return None, f"snapshot {ancestor.snapshotId()} ({ancestor.operation()})"
        if ancestor.sequenceNumber() < last.sequenceNumber():
            is_undone, found = True, _batch_in(table, ancestor, pipeline)
            if found is not None:
                return found, ""
        if ancestor.parentId() is None and not is_undone:
            return None, f"a CREATE OR REPLACE TABLE, which began with snapshot {ancestor.snapshotId()},"
        ancestor = None if ancestor.parentId() is None else table.snapshot(ancestor.parentId())
    return (None if is_undone else last), ""  # what is between them may have expired


def _takes_all(snapshot: Any) -> bool:
    summary = snapshot.summary()
    total, added, removed = (int(summary.get(f"{what}-records") or 0) for what in ("total", "added", "deleted"))
    is_overwrite = added > removed or summary.get(OVERWRITES) == "true"  # else it may be a DELETE, UPDATE or MERGE
    return takes_all(there=total - added + removed, removed=removed, rewritten=0 if is_overwrite else added)


def _batch_in(table: Any, snapshot: Any, pipeline: str) -> Any:
    """Returns the snapshot, or that from which it was made when it was published, if a batch of the pipeline is in it."""
    source = snapshot.summary().get("source-snapshot-id")
    found = snapshot if source is None else table.snapshot(int(source))
    text = None if found is None else found.summary().get(PROPERTY)
    return found if text is not None and TableState.of(text).pipeline == pipeline else None


def _tagged(table: Any, pipeline: str) -> Any:
    tag = table.refs().get(f"{TAG}{pipeline}")
    return None if tag is None else table.snapshot(tag.snapshotId())


def _id_of(state: TableState) -> str:
    assert state.batch is not None
    retry = f":{state.retries}" if state.retries else ""
    return f"jlog:{state.pipeline}:{state.batch.number}:{state.batch.digest}{retry}"


def _name_of_path(spark: SparkSession, path: str) -> str:
    """Returns the name of the table at this path, in a catalog that is the directory around it."""
    parent, _, name = path.rpartition("/")
    catalog = f"jlog_{hashlib.sha256(parent.encode()).hexdigest()[:8]}"
    settings = {"": CATALOG, ".type": "hadoop", ".warehouse": parent or "/", ".cache-enabled": "false"}
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}{key}", value)
    return f"{catalog}.`{name.replace('`', '``')}`"
