"""A table of Delta Lake to which each batch is added once, by Delta's own transactions.

The note of each commit (`userMetadata`) has the state of the table after it, and so has the commit that claims the table. The
table's property keeps the claim when Delta removes old files of its log. Delta also keeps the number of the last batch of each
writer with its data (`txnAppId` and `txnVersion`), and skips a batch that it has.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

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
    from pyspark.sql import DataFrame

logger: logging.Logger = logging.getLogger("jlog.spark")

NOTE = "spark.databricks.delta.commitInfo.userMetadata"
VERSION = re.compile(r"\d{20}\.json", re.ASCII)
LOG_FILES = (".json", ".crc", ".checkpoint.parquet")
MAPPING = "delta.columnMapping.mode"
CHANGED = "DELTA_METADATA_CHANGED"  # in the error of a commit beside a change of properties
EXISTS = "TABLE_OR_VIEW_ALREADY_EXISTS"  # in the error of a table's creation where its log's directory is there already
REFUSED = set(" ,;{}()\n\t=")  # in names of columns, unless the table maps them to others

EDITS = {"DELETE", "MERGE", "UPDATE"}  # which write the other rows of a file again

Entries = list[dict[str, Any]]  # of one version in Delta's log


@dataclass(frozen=True)
class Commit:
    """A version of the table that a pipeline has committed. attempt: grows with each batch that was taken back, since Delta
    would skip the batch's number for the same writer. is_first: it claims a table that belonged to no pipeline."""

    version: int
    state: TableState
    attempt: int = 0
    is_first: bool = False

    @classmethod
    def of(cls, version: int, entries: Entries) -> Commit | None:
        """Returns the commit of these entries; None where it is of somebody else."""
        text = _info_of(entries).get("userMetadata") or ""
        if not text.startswith(f'{{"{PROPERTY}": {{'):
            return None
        note = json.loads(text)
        state = replace(TableState.of(json.dumps(note[PROPERTY])), rows=_rows_in(entries))
        return cls(version, state, note["attempt"], note["is_first"])

    def without_rows(self, taken_by: str) -> Commit:
        """Returns the commit as it counts once others have taken away all rows: the same batches may come again."""
        return replace(self, state=self.state.without_rows(taken_by), attempt=self.attempt + 1)


def _note(state: TableState, attempt: int, *, is_first: bool = False) -> str:
    found = json.loads(replace(state, rows=0).as_json)
    return json.dumps({PROPERTY: found, "attempt": attempt, "is_first": is_first})


class DeltaTable(CatalogTable):
    """A table at a path, or of a catalog."""

    _last: Commit | None = None
    _location: str | None = None

    # --- Reading ------------------------------------------------------------------------------------------------------

    @property
    def _sql_name(self) -> str:
        return f"delta.`{self.name.replace('`', '``')}`" if self._is_path else self.name

    def exists(self) -> bool:
        if self._is_path:  # another pipeline may have made the log's directory, and its first version not yet
            return self._files.exists(self._log_file(0)) or self._version() >= 0
        return bool(self._spark.catalog.tableExists(self.name))

    def state(self) -> TableState | None:
        found = self._newest() if self.exists() else None
        return None if found is None else found.state

    def frame(self) -> DataFrame | None:
        if not self.exists():
            return None
        return self._spark.read.format("delta").load(self.name) if self._is_path else self._spark.table(self.name)

    def place(self) -> str | None:
        return self._root() if self.exists() else None

    def takes_column(self, name: str) -> bool:
        """Says whether a column of this name can be added. A table of another writer may not map names."""
        return not REFUSED.intersection(name) or not self.exists() or self._properties().get(MAPPING) in ("name", "id")

    def _properties(self) -> dict[str, str]:
        return {row["key"]: row["value"] for row in self._spark.sql(f"SHOW TBLPROPERTIES {self._sql_name}").collect()}

    def _newest(self) -> Commit | None:
        """Returns the newest commit of a pipeline; or, where Delta has removed it from its log, the claim."""
        self._last = self._commit_before(self._version() + 1)
        if self._last is not None:
            return self._last
        claim = self._properties().get(PROPERTY)
        return None if claim is None else Commit(-1, replace(TableState.of(claim), is_partial=True))

    def _commit_before(self, end: int) -> Commit | None:
        """Returns the newest commit of a pipeline below this version. A table that others have restored is what it was. A first
        claim counts only where no other pipeline has the table already: of several, the earliest one."""
        upto, newest, taken_by = end - 1, None, ""
        for version, entries in self._history(end):
            found = Commit.of(version, entries) if version <= upto else None
            if found is not None:
                if newest is not None and newest.state.pipeline == found.state.pipeline:
                    return newest
                newest = found.without_rows(taken_by) if taken_by else found
                if not found.is_first:
                    return newest
            elif version <= upto:
                upto = self._restored_to(version, entries)
                if upto == version and newest is None and not taken_by and self._takes_all(version, entries):
                    taken_by = f"version {version} ({_info_of(entries).get('operation')})"
        return newest

    def _takes_all(self, version: int, entries: Entries) -> bool:
        """Judges a version of another writer, which may remove files also to join them, or to mark rows in them as deleted."""
        removed = {
            entry["remove"]["path"] for entry in entries if "remove" in entry and entry["remove"].get("dataChange", True)
        }
        added = {entry["add"]["path"] for entry in entries if "add" in entry}
        if not removed or not self._files.exists(self._log_file(version - 1)):  # a cleaned log has no batch below it
            return False
        reader = self._spark.read.format("delta").option("versionAsOf", version - 1)
        before = reader.load(self.name) if self._is_path else reader.table(self.name)
        rewritten = len(added) if _info_of(entries).get("operation") in EDITS else 0
        return takes_all(there=len(before.inputFiles()), removed=len(removed - added), rewritten=rewritten)

    def _restored_to(self, version: int, entries: Entries) -> int:
        """Returns the version to which this one has restored the table; or itself."""
        info = _info_of(entries)
        if info.get("operation") != "RESTORE":
            return version
        wanted = info.get("operationParameters", {}).get("version")
        if wanted is None:
            raise JournalError(
                f"version {version} of {self.name} has restored the table to a time, and does not say which batches it "
                f"has. Restore it to the version of that time: RESTORE TABLE {self._sql_name} TO VERSION AS OF …"
            )
        return int(wanted)

    def _history(self, end: int) -> Iterator[tuple[int, Entries]]:
        """Yields each version below this one that Delta's log has, the newest first, and its entries there. The driver reads
        them: with DESCRIBE HISTORY executors do, and leave out what they do not see."""
        version = end - 1
        while (entries := self._entries(version)) is not None:
            yield version, entries
            version -= 1

    def _version(self) -> int:
        """Returns the newest version. The log may have files of many thousands of versions, and is listed only where nothing
        says where its end is."""
        log = f"{self._root()}/_delta_log"
        if self._last is not None and self._files.exists(self._log_file(self._last.version)):
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

    def _entries(self, version: int) -> Entries | None:
        """Returns what Delta's log has of this version; None where it has nothing."""
        text = None if version < 0 else self._files.read(self._log_file(version))
        return None if text is None else [json.loads(line) for line in text.splitlines()]

    # --- Adding -------------------------------------------------------------------------------------------------------

    def claim(self, new: TableState, known: TableState | None) -> None:
        """Delta does not compare before it sets a property. So what counts is looked at afterwards, by the order of commits."""
        before = self._newest()
        if (None if before is None else before.state) != known:
            raise AnotherPipeline(self.name, self.state())
        try:
            with self._noted(_note(new, 0, is_first=known is None)):
                self._set_property(new)
        except (PySparkException, Py4JError) as error:
            if self.state() == known:
                raise
            raise AnotherPipeline(self.name, self.state()) from error
        now = self._newest()
        if now is not None and now.state.pipeline != new.pipeline:
            self._set_property(now.state)
        elif now is not None and self._commit_before(now.version) == before:
            return
        raise AnotherPipeline(self.name, None if now is None else now.state)

    def _set_property(self, state: TableState) -> None:
        text = replace(state, rows=0).as_json.replace("\\", r"\\").replace("'", r"\'")
        self._spark.sql(f"ALTER TABLE {self._sql_name} SET TBLPROPERTIES ('{PROPERTY}' = '{text}')")

    @contextmanager
    def _noted(self, note: str) -> Iterator[None]:
        """Has Delta store the note with the commits of this session."""
        self._spark.conf.set(NOTE, note)
        try:
            yield
        finally:
            self._spark.conf.unset(NOTE)

    def write(self, new: TableState, known: TableState | None, frame: DataFrame, check: Check) -> int:
        """See Table.write. Delta makes a commit visible at once. So one that does not hold what was written is taken back: the
        table is restored to the version before."""
        if known is None:
            self._claim_or_create(new, frame)
        assert new.batch is not None
        table = None if self._evolves else self.frame()  # where new columns are merged, Delta refuses other types itself
        if table is not None:
            self._check_types(frame.schema, table.schema)
        rows, written = counted(frame)
        before = self._append(new, rows)
        commit = self._newest()
        if commit is None or _written(commit.state) != _written(new):
            raise JournalError(
                f"{self.name} has skipped batch {new.batch.number}: it already has a batch of this number, which is older than "
                "its history. Begin anew with another destination and another checkpoint"
            )
        try:
            check(written())
        except JournalError:
            self._take_back(commit, before)
            raise
        self._check(commit, before, written())
        return commit.state.rows

    def complete(self, state: TableState) -> None:  # noqa: ARG002
        commit = self._newest()
        if commit is not None and commit.state.batch is not None and not self._is_read_since(commit.version):
            self._check(commit, self._commit_before(commit.version), commit.state.rows)

    def _create(self, empty: DataFrame, claim: TableState) -> None:
        creator = empty.writeTo(self._sql_name).using("delta").tableProperty(PROPERTY, claim.as_json)
        writer = empty.write.format("delta").partitionBy(*self._partition_by)
        if self._evolves or any(REFUSED.intersection(name) for name in empty.columns):
            creator, writer = creator.tableProperty(MAPPING, "name"), writer.option(MAPPING, "name")
        with self._noted(_note(claim, 0, is_first=True)):
            try:
                self._partitioned(creator).create()
            except PySparkException as error:
                if EXISTS not in str(error) or self.exists():
                    raise
                # another pipeline is about to write the log's first version, or was killed there: Delta lets one of them do it
                self._save(writer.mode("error"))
                self._set_property(claim)
        self._sync(0)  # the version to which a first batch is taken back

    def _append(self, new: TableState, rows: DataFrame) -> Commit:
        """Appends the rows as the batch. Returns the commit before. Delta refuses an append beside a change of the table's
        properties, which another pipeline makes that wanted the table too. The append then begins anew."""
        assert new.batch is not None
        for is_last in (False, False, True):
            before = self._newest()
            if before is None or before.state.pipeline != new.pipeline:
                raise AnotherPipeline(self.name, None if before is None else before.state)
            attempt = before.attempt + (1 if new.batch == before.state.batch else 0)  # a retry has its batch's number
            writer = rows.write.format("delta").mode("append").option("userMetadata", _note(new, attempt))
            writer = writer.option("txnAppId", f"jlog-{new.pipeline}-{attempt}")
            writer = writer.option("txnVersion", str(new.batch.number))
            try:
                self._save(writer.option("mergeSchema", str(self._evolves).lower()))
            except (PySparkException, Py4JError) as error:
                if is_last or CHANGED not in str(error):
                    raise
            else:
                return before
        raise AssertionError("the last try has ended")

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
            raise JournalError(
                f"{self.name}: the driver does not find version {version}, which it has written, in Delta's log. Use a place "
                "that the driver and all executors share"
            )
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
        state = replace(commit.state, batch=None, end=None) if before is None else before.state
        with self._noted(_note(state, commit.attempt + 1)):
            self._spark.sql(f"RESTORE TABLE {self._sql_name} TO VERSION AS OF {commit.version - 1}")
        restored = self._newest()
        version = commit.version + 1 if restored is None else restored.version
        if version != commit.version + 1:  # another writer's commit came between the look and the RESTORE
            raise JournalError(
                f"{self.name}: version {version} has taken back version {commit.version}, whose rows the driver does not "
                f"find. Other writers wrote the versions from {commit.version + 1} to {version - 1} in the same moment, "
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
        if self.exists():
            self._spark.sql(f"OPTIMIZE {self._sql_name}")
            self._sync(self._version())


def _written(state: TableState) -> tuple[object, ...]:
    return state.pipeline, state.batch, state.retries


def _info_of(entries: Entries) -> dict[str, Any]:
    """Returns what Delta says of a commit beside its files; an empty dict where it says nothing."""
    return next((entry["commitInfo"] for entry in entries if "commitInfo" in entry), {})


def _rows_in(entries: Entries) -> int:
    """Returns the rows that a commit has added, by its metrics; or by the statistics of its files, where it has no metrics."""
    rows = _info_of(entries).get("operationMetrics", {}).get("numOutputRows")
    if rows is not None:
        return int(rows)
    return sum(json.loads(entry["add"].get("stats") or "{}").get("numRecords", 0) for entry in entries if "add" in entry)
