"""Staged rows on their way into a journal: files that can become segments, some for each task, in a directory of the query.

By default it lies in the journal's own directory, where no reader of the journal looks: <journal>/spark/<query>/<batch>/.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import portalocker
import pyarrow
from pyspark.sql.datasource import WriterCommitMessage

from jlog.errors import JournalError, JournalNotFound
from jlog.spark.writing.ledger import NAMELESS
from jlog.spark.writing.left_over import BEGUN, DIRECTORY, elsewhere, is_at, remove_if_empty, remove_left_over
from jlog.system.files import Directory, sync_files, write_whole
from jlog.writer import Piece, SegmentBuilder

AT_ONCE_BYTES = 8 << 20  # a batch up to this size is appended in one piece: readers see all of it or nothing
PIECE_BYTES = 2 << 20  # pieces of a larger batch; larger ones do not fit into the processor's cache
FIRST_FILE_BYTES = 8 << 20  # a task's first file, which is copied: small batches have no other
SEGMENT_BYTES_MIN = 16 << 20  # the other files; one that is smaller, or than a quarter of a segment, is copied too


@dataclass(frozen=True)
class StagedFile:
    name: str
    bytes: int
    pieces: list[Piece]

    @property
    def records(self) -> int:
        return sum(piece.records for piece in self.pieces)


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """The files that a task has staged, for the driver."""

    query: str
    batch: int
    partition: int
    files: list[StagedFile]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


class Staging:
    """The files of a query. directory: a place that driver and executors see, instead of the journal's own. uuid: the
    journal's, for several may stage there."""

    def __init__(
        self, journal: str, uuid: str, query: str, directory: str | None, compression: str, segment_bytes: int
    ) -> None:
        self.journal = journal
        self._uuid = uuid
        self.query = query
        self._compression = compression
        self._segment_bytes = segment_bytes
        self._home = os.path.join(journal, DIRECTORY, query)
        self._files = self._home if directory is None else os.path.join(elsewhere(directory, uuid), query)

    def batch(self, number: int) -> str:
        return os.path.join(self._files, str(number))

    # --- The task's part --------------------------------------------------------------------------------------------

    def write(self, batches: Iterator[pyarrow.RecordBatch], columns: list[str], batch: int, partition: int) -> Staged:
        """Stages the rows of a task. A task that fails leaves no file; one that is killed leaves files that nobody asks for."""
        lowered = (rows.rename_columns([name.lower() for name in rows.schema.names]) for rows in batches if rows.num_rows)
        pieces = _in_pieces(rows.select(columns) for rows in lowered)
        files: list[SegmentBuilder] = []
        attempt = secrets.token_hex(8)
        try:
            for first in pieces:
                name = f"part-{partition:05}-{attempt}-{len(files):05}"
                path, is_first = os.path.join(self._make(batch), name), not files
                files.append(SegmentBuilder(path, "none" if is_first else self._compression))
                self._fill(files[-1], chain([first], pieces), is_first=is_first)
                if len(files) > 2:  # the disk had the time of another file to write the one before
                    files[-2].sync()
                    files[-2].close()
            if len(files) > 1:
                files[-1].sync()
        except BaseException:
            for file in files:
                with suppress(FileNotFoundError):
                    os.unlink(file.path)
            raise
        finally:
            for file in files:
                file.close()
        staged = [StagedFile(os.path.basename(file.path), file.bytes, file.pieces) for file in files]
        return Staged(self.query, batch, partition, staged)

    def _fill(self, file: SegmentBuilder, pieces: Iterator[pyarrow.Table], *, is_first: bool) -> None:
        """Fills the file with as many rows as fit, at least one. A task's first file, which is copied unless it is one large
        row, is synced when a commit begins that can be resumed."""
        room = FIRST_FILE_BYTES if is_first else max(self._segment_bytes, SEGMENT_BYTES_MIN)
        for piece in pieces:
            file.add(piece)
            if not is_first:
                file.start_writeback()
            if file.bytes + PIECE_BYTES > room:
                return

    def _make(self, batch: int) -> str:
        if self._files == self._home and not os.path.exists(os.path.join(self.journal, "journal.meta")):
            raise JournalNotFound(
                f"{self.journal} is not a journal on {socket.gethostname()}, where this task runs: rows are staged beside the "
                f"journal. Give the sink the option stagingDirectory, a directory that the driver and all executors see"
            )
        folder = self.batch(batch)
        if self._files == self._home:
            Directory(self.journal, DIRECTORY, self.query, str(batch), make=True).close()
        else:
            os.makedirs(folder, exist_ok=True)
        return folder

    # --- The driver's part ------------------------------------------------------------------------------------------

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the lock that allows one commit of the query at a time, even where an older driver has come back to life. The
        kernel releases it when the process dies."""
        while True:
            with Directory(self.journal, DIRECTORY, self.query, make=True) as home:
                # A forked child shares the lock. It cannot release it for its parent, since nothing unlocks it: it is only
                # closed. No commit forks a child that outlives it, and a program that is started instead has the descriptor
                # closed.
                portalocker.lock(home.fd, portalocker.LOCK_EX)
                if is_at(home.fd, self._home):
                    if self.is_nameless:
                        self._note_begin(home)
                    yield
                    return

    def _note_begin(self, home: Directory) -> None:
        with suppress(FileExistsError), home.create(BEGUN) as file:
            write_whole(file.fd, os.fsencode(self._files), 0)

    def keep(self, staged: list[Staged]) -> str | None:
        """Lists the staged files, and returns the list's name. From then on a commit can be resumed, also after a power loss.
        Returns None for a nameless write, which nobody resumes."""
        if self.is_nameless:
            return None
        name = f"commit-{secrets.token_hex(8)}.json"
        path = os.path.join(self._home, name)
        with open(path, "x", encoding="utf-8") as file:
            json.dump([asdict(part) for part in staged], file)
        folder = self.batch(staged[0].batch)
        files = [os.path.join(folder, file.name) for part in staged for file in part.files]
        sync_files((*files, *_up(folder, 3), path, *_up(self._home, 2)))
        return name

    def kept(self, name: str, appended: int) -> list[Staged]:
        try:
            with open(os.path.join(self._home, name), encoding="utf-8") as file:
                return [_staged(part) for part in json.load(file)]
        except FileNotFoundError:
            raise self._gone(os.path.join(self._home, name), appended) from None

    def path(self, part: Staged, file: StagedFile, appended: int) -> str:
        path = os.path.join(self.batch(part.batch), file.name)
        if not os.path.exists(path):
            raise self._gone(path, appended)
        return path

    def is_segment(self, file: StagedFile) -> bool:
        """Says whether the file is large enough to become a segment."""
        return file.bytes >= max(SEGMENT_BYTES_MIN, self._segment_bytes // 4)

    def _gone(self, path: str, appended: int) -> JournalError:
        return JournalError(
            f"{path} is gone: {appended} records of a batch of query {self.query} are in {self.journal}, the others were "
            f"staged there. Bring it back; or jlog.spark.forget({self.journal!r}, {self.query!r}), and the whole batch is "
            f"appended once more"
        )

    def remove(self) -> None:
        """Removes everything that is staged for the query."""
        for path in {self._files, self._home}:
            shutil.rmtree(path, ignore_errors=True)  # a task that has been given up may still write there
            remove_if_empty(os.path.dirname(path))

    @property
    def is_nameless(self) -> bool:
        """Says whether no later run can complete a commit that has begun."""
        return self.query.startswith(NAMELESS)

    def remove_left_over(self) -> None:
        """Removes the remains of other queries that died, in the journal and where this query stages."""
        remove_left_over(self.journal, self._uuid, {os.path.dirname(self._files)}, self.query)


def _in_pieces(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.Table]:
    """Yields tables of about PIECE_BYTES."""
    found: list[pyarrow.RecordBatch] = []
    size = 0
    for batch in batches:
        for part in _cut(batch):
            if found and size + part.nbytes > PIECE_BYTES:
                yield pyarrow.Table.from_batches(found)
                found, size = [], 0
            found.append(part)
            size += part.nbytes
    if found:
        yield pyarrow.Table.from_batches(found)


def _cut(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    if batch.nbytes <= PIECE_BYTES or batch.num_rows == 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _cut(batch.slice(0, half))
    yield from _cut(batch.slice(half))


def _staged(given: dict[str, Any]) -> Staged:
    files = [
        StagedFile(file["name"], file["bytes"], [Piece(*piece) for piece in file["pieces"]]) for file in given.pop("files")
    ]
    return Staged(**given, files=files)


def _up(folder: str, levels: int) -> list[str]:
    """Returns the directory, and so many above it, each of which may be new."""
    found = [folder]
    while len(found) <= levels:
        found.append(os.path.dirname(found[-1]))
    return found
