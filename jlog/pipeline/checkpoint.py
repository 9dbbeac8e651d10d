"""The checkpoint of a pipeline: its settings, where its query began, Spark's own files, and the lock of its driver."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import portalocker
from pyspark.sql.types import StructType

from jlog.errors import JournalError
from jlog.pipeline.tables.files import Files, directories_of
from jlog.pipeline.tables.table import BatchId, Offset
from jlog.spark.checkpoint import digest_of, files_of, offsets_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger: logging.Logger = logging.getLogger("jlog.spark")

FIELDS = "fields"
RECORDS = "records"  # the name of the query


class Checkpoint:
    """A directory that belongs to one pipeline."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path
        self._files = Files(spark)
        self._token = secrets.token_hex(8)
        self._id: str | None = None

    def settings(self, name: str) -> dict[str, Any] | None:
        """Returns what keep_settings() has kept last under this name; None in a new checkpoint."""
        text = self._files.read(f"{self.path}/{name}.json")
        return None if text is None else dict(json.loads(text))

    def keep_settings(self, name: str, settings: dict[str, Any]) -> None:
        self._files.replace(f"{self.path}/{name}.json", json.dumps(settings))

    def kept_id(self) -> str:
        """Returns the id of this pipeline. It is created once."""
        if self._id is None:
            path = f"{self.path}/id"
            self._files.create(path, secrets.token_hex(8))
            self._id = self._files.read(path)
        assert self._id is not None
        return self._id

    def fields(self) -> StructType | None:
        """Returns the fields of the values that were kept last; None where there are none yet."""
        kept = self.settings(FIELDS)
        return None if kept is None else StructType.fromJson(kept)

    def keep_fields(self, fields: StructType) -> None:
        self.keep_settings(FIELDS, json.loads(fields.json()))

    def query(self, name: str = RECORDS) -> QueryCheckpoint:
        return QueryCheckpoint(self._files, f"{self.path}/{name}")

    # --- One driver at a time -----------------------------------------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lets one driver at a time run the pipeline. On a file system of this machine, or one that is mounted here, another
        driver is refused at once, and the lock ends with the process. Where there are no such locks, in HDFS, object stores and
        some mounts of NFS, the newest driver goes on, and one before it fails in check_owner()."""
        path = self._files.local_path(self.path)
        with nullcontext() if path is None else self._locked(path):
            self._files.replace(self._owner_path, self._token)
            yield

    @contextmanager
    def _locked(self, path: str) -> Iterator[None]:
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "lock"), "a+", encoding="utf-8") as file:
            try:
                portalocker.lock(file, portalocker.LOCK_EX | portalocker.LOCK_NB)
                file.truncate(0)
                file.write(f"{os.getpid()} on {socket.gethostname()}\n")
                file.flush()
            except portalocker.AlreadyLocked:
                file.seek(0)
                raise JournalError(
                    f"another pipeline runs on the checkpoint {self.path}: process {file.read().strip() or 'unknown'}. Stop it "
                    f"first; or give this one another destination and another checkpoint"
                ) from None
            except portalocker.LockException as error:
                logger.warning("%s has no locks: %s. See that no second driver runs this pipeline", self.path, error)
            yield

    def check_owner(self) -> None:
        """Raises JournalError where another driver has begun to run the pipeline."""
        if self._files.read(self._owner_path) != self._token:
            raise JournalError(f"another pipeline has begun to run on the checkpoint {self.path}; this one ends here")

    @property
    def _owner_path(self) -> str:
        return f"{self.path}/owner"


class QueryCheckpoint:
    """The checkpoint of the pipeline's query, as Spark keeps it, and beside it the offsets where the query began."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files

    @property
    def local_path(self) -> str | None:
        """Its path on this machine; None on other file systems."""
        return self._files.local_path(self.path)

    def is_new(self) -> bool:
        """Says whether Spark has noted no batch of this query."""
        return not any(name.isdecimal() for name in self._files.names(self._offsets))

    def unfinished(self) -> int | None:
        """Returns the number of the batch that Spark has noted and not completed, which runs again in the next run; None where
        there is none."""
        noted, completed = self._newest(self._offsets), self._newest(f"{self.path}/commits")
        return noted if noted > completed else None

    def _newest(self, directory: str) -> int:
        return max((int(name) for name in self._files.names(directory) if name.isdecimal()), default=-1)

    def forget_first_batch(self) -> None:
        """Removes the remains of a driver that was killed while it noted the first batch. Spark 4.3 does not go on beside them
        (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY), though nothing was noted."""
        names = self._files.names(self._offsets)
        if all(name.startswith(".") for name in names):
            for name in names:
                self._files.remove(f"{self._offsets}/{name}")

    # --- Batches ------------------------------------------------------------------------------------------------------

    def batch(self, number: int) -> BatchId:
        """Returns the batch, whose offsets are synced. So a table never knows of a batch that Spark forgets in a power loss."""
        found = self._noted(number)
        if found is None:
            raise JournalError(
                f"{self._offsets}/{number}, which Spark wrote for this batch, is gone; begin anew with another destination "
                "and another checkpoint"
            )
        there = [name for name in files_of(self.path, number) if self._files.exists(name)]
        self._files.sync([*there, *directories_of(there, os.path.dirname(self.path))])
        return found

    def _noted(self, number: int) -> BatchId | None:
        """Returns the batch as Spark has noted it; None where it has not, or has removed that."""
        begin, end = self._text(number - 1), self._text(number)
        if end is None or (begin is None and number > 0):
            return None
        return BatchId(number, digest_of(begin, end), _parsed(end))

    def knows(self, batch: BatchId) -> bool:
        """Says whether Spark has noted this batch, as far as it still knows: it removes old notes."""
        noted = self._noted(batch.number)
        return batch.number < self._newest(self._offsets) if noted is None else noted == batch

    def begin_of(self, batch: BatchId) -> list[Offset | None]:
        """Returns where the sources of a batch begin, in their order in the query: the journals are the last of them. A source
        that has had no record yet has None."""
        begin = self._text(batch.number - 1)
        return [*[None] * (len(batch.end or ()) - 1), self.first()] if begin is None else _parsed(begin)

    def first_of_topic(self, index: int) -> Offset | None:
        """Returns where this source, a topic, began in the query, as Spark's source for Kafka keeps it; None where it does not.
        It writes a version before the JSON."""
        text = self._files.read(f"{self.path}/sources/{index}/0") or ""
        return dict(json.loads(text[text.index("{") :])) if "{" in text else None

    @property
    def _offsets(self) -> str:
        return f"{self.path}/offsets"

    def _text(self, number: int) -> str | None:
        return None if number < 0 else self._files.read(f"{self._offsets}/{number}")

    # --- The beginning ------------------------------------------------------------------------------------------------

    def first(self) -> Offset | None:
        """Returns the offset where the query's journals began; None where that is not known."""
        text = self._files.read(f"{self.path}.begin.json")
        return None if text is None else dict(json.loads(text))

    def keep_first(self, offset: Offset) -> None:
        """Keeps the offset where the query's journals begin, which Spark does not keep. So a first batch that runs again begins
        at the same place."""
        self._files.replace(f"{self.path}.begin.json", json.dumps(offset))

    def topics(self) -> Offset:
        """Returns the offsets where the query's topics begin, by topic, if it goes on after another one."""
        return dict(json.loads(self._files.read(f"{self.path}.topics.json") or "{}"))

    def keep_topics(self, offsets: Offset) -> None:
        self._files.replace(f"{self.path}.topics.json", json.dumps(offsets))


def _parsed(text: str) -> list[Offset | None]:
    return [None if line == "-" else json.loads(line) for line in offsets_in(text)]
