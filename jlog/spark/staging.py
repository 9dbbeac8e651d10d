"""Rows on their way into a journal: files of Arrow's, one for each task, in a directory of the query's.

By default it lies in the journal's own directory, where no reader of the journal looks: <journal>/spark/<query>/<batch>/.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain

import portalocker
import pyarrow
from pyspark.sql.datasource import WriterCommitMessage

from jlog.errors import JournalError, JournalNotFound
from jlog.filesystem import share
from jlog.spark.beside import beside

DIRECTORY = "spark"
STALE_SECONDS = 24 * 3600
AT_ONCE_BYTES = 8 << 20  # a batch up to this size is appended at once: readers see all of it or nothing


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task has staged, as the driver is told. Without records there is no file."""

    query: str
    batch: int
    partition: int
    file: str
    records: int
    bytes: int


class Staging:
    """Where the query's files are. directory: another place than the journal's own, which driver and executors see; uuid: the
    journal's, for it may not be the only one that stages there; durable: what a commit has begun with can be ended after a
    power loss."""

    def __init__(self, journal: str, uuid: str, query: str, directory: str | None, *, durable: bool) -> None:
        self.journal = journal
        self.query = query
        self._durable = durable
        self._home = os.path.join(journal, DIRECTORY, query)
        self._files = (
            self._home if directory is None else os.path.join(directory, f"{DIRECTORY}-{uuid}", query)
        )

    def batch(self, number: int) -> str:
        return os.path.join(self._files, str(number))

    # --- The task's part --------------------------------------------------------------------------------------------

    def write(
        self, batches: Iterator[pyarrow.RecordBatch], columns: list[str], batch: int, partition: int
    ) -> Staged:
        """All of them in one file. A task that fails leaves none, one that is killed leaves one that nobody asks for."""
        first = next((found for found in batches if found.num_rows), None)
        if first is None:
            return Staged(self.query, batch, partition, "", 0, 0)
        folder = self._make(batch)
        name = f"part-{partition:05}-{secrets.token_hex(8)}.arrow"
        path = os.path.join(folder, name)
        try:
            rows = (found.select(columns) for found in chain([first], batches))
            records, size = _write(path, first.select(columns).schema, rows, self._durable)
        except BaseException:
            if os.path.exists(path):
                os.unlink(path)
            raise
        return Staged(self.query, batch, partition, name, records, size)

    def _make(self, batch: int) -> str:
        if self._files == self._home and not os.path.exists(os.path.join(self.journal, "journal.meta")):
            raise JournalNotFound(
                f"{self.journal} is no journal on {socket.gethostname()}, where this task runs: rows are staged beside the "
                f"journal. Give the sink the option stagingDirectory, a directory that the driver and all executors see"
            )
        folder = self.batch(batch)
        os.makedirs(folder, exist_ok=True)
        if self._files == self._home:
            for path in (os.path.dirname(self._home), self._home, folder):
                share(path, self.journal)
        return folder

    # --- The driver's part ------------------------------------------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[None]:
        """One commit of the query at a time, even where an older driver has come back to life. The kernel lets go of it when
        the process dies."""
        while True:
            os.makedirs(self._home, exist_ok=True)
            fd = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                portalocker.lock(fd, portalocker.LOCK_EX)
                if _is_at(fd, self._home):
                    yield
                    return
            finally:
                os.close(fd)

    def keep(self, staged: list[Staged]) -> str:
        """Lists them; returns the list's name. From then on a commit can be resumed."""
        name = f"commit-{secrets.token_hex(8)}.json"
        path = os.path.join(self._home, name)
        with open(path, "x", encoding="utf-8") as file:
            json.dump([asdict(part) for part in staged], file)
        if self._durable:
            folder = self.batch(staged[0].batch)
            files = [os.path.join(folder, part.file) for part in staged]
            for made in (*files, folder, path, self._home, os.path.dirname(self._home), self.journal):
                _sync(made)
        return name

    def kept(self, name: str, appended: int) -> list[Staged]:
        try:
            with open(os.path.join(self._home, name), encoding="utf-8") as file:
                return [Staged(**part) for part in json.load(file)]
        except FileNotFoundError:
            raise self._gone(os.path.join(self._home, name), appended) from None

    def read(self, staged: list[Staged], skipped: int = 0) -> Iterator[pyarrow.RecordBatch]:
        """The rows behind the first so many, in the order of the partitions."""
        left = skipped
        for part in staged:
            if left >= part.records:
                left -= part.records
                continue
            path = os.path.join(self.batch(part.batch), part.file)
            try:
                with pyarrow.OSFile(path) as file:
                    for found in _batches(file, path, part.records):
                        if left < found.num_rows:
                            yield found.slice(left)
                        left = max(0, left - found.num_rows)
            except FileNotFoundError:
                raise self._gone(path, skipped) from None

    def _gone(self, path: str, appended: int) -> JournalError:
        return JournalError(
            f"{path} is gone: {appended} records of a batch of query {self.query} are in {self.journal}, the others were "
            f"staged there. Bring it back; or jlog.spark.forget({self.journal!r}, {self.query!r}), and the whole batch is "
            f"appended once more"
        )

    def remove(self) -> None:
        """All that is staged for the query."""
        for path in {self._files, self._home}:
            shutil.rmtree(path, ignore_errors=True)  # a task that nobody waits for any more may write there
            _remove_if_empty(os.path.dirname(path))

    def remove_stale(self, unfinished: set[str]) -> None:
        """What other queries have left that have done nothing for a day, but for commits that can still be resumed."""
        for root in {os.path.dirname(self._home), os.path.dirname(self._files)}:
            for name in os.listdir(root) if os.path.isdir(root) else ():
                path = os.path.join(root, name)
                if name != self.query and name not in unfinished and _age(path) > STALE_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


def _write(
    path: str, schema: pyarrow.Schema, batches: Iterator[pyarrow.RecordBatch], durable: bool
) -> tuple[int, int]:
    """Returns the records and their bytes. durable: of a batch that is not appended at once, the disk has most when a
    commit asks for it."""
    records = 0
    with (
        pyarrow.OSFile(path, "wb") as file,
        beside(partial(os.fdatasync, file.fileno())) as sync,
        pyarrow.ipc.new_file(file, schema) as writer,
    ):
        for batch in batches:
            writer.write_batch(batch)
            records += batch.num_rows
            if durable and file.tell() > AT_ONCE_BYTES:
                sync()
        writer.close()
        return records, file.tell()


def _batches(file: pyarrow.NativeFile, path: str, records: int) -> Iterator[pyarrow.RecordBatch]:
    try:
        reader = pyarrow.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            records -= batch.num_rows
            yield batch
    except pyarrow.ArrowInvalid as error:
        raise JournalError(f"{path}: what was staged there cannot be read: {error}") from error
    if records:
        raise JournalError(f"{path}: {records} of the records that were staged there are missing")


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove_if_empty(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:
        return  # another query stages there


def _age(path: str) -> float:
    """Seconds since anything was done below it."""
    newest = 0.0
    for folder, _, names in os.walk(path):
        for name in ("", *names):
            try:
                newest = max(newest, os.stat(os.path.join(folder, name)).st_mtime)
            except FileNotFoundError:
                continue
    return time.time() - newest
